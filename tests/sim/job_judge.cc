#include "tests/sim/job_judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/failure/quorum.h"
#include "tests/sim/control_plane.h"
#include "tests/sim/sight_judge.h"

namespace unisono::sim {
namespace {

using Seen = SimulatedRank::Seen;

class JobJudge {
 public:
  explicit JobJudge(const JobFacts& facts)
      : facts_(facts),
        c_(facts.c),
        seats_(facts.seats),
        partitions_(lasting_partitions(c_)),
        culprits_(culprits(c_)) {}

  std::string judge() {
    judge_failures();
    judge_agreement();
    judge_survivors();
    judge_reset();
    judge_refused();
    judge_partition();
    judge_sights();
    return wrong_;
  }

 private:
  void accuse(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  const Seat& seat(Rank rank) const { return seats_[static_cast<std::size_t>(rank)]; }
  bool has_fault(bool (*is_one)(const Fault&)) const {
    return std::any_of(c_.faults.begin(), c_.faults.end(), is_one);
  }
  bool has_only(bool (*is_one)(const Fault&)) const {
    return std::all_of(c_.faults.begin(), c_.faults.end(), is_one);
  }
  /// Those that a fault of their own has struck by then.
  std::set<Rank> struck_by(TimePoint when) const { return struck(c_, when - facts_.began); }
  /// Its control connection was.
  bool is_reset(Rank rank, TimePoint by) const {
    return std::any_of(c_.faults.begin(), c_.faults.end(), [&](const Fault& fault) {
      return fault.kind == Fault::Kind::kReset && fault.rank == rank &&
             facts_.began + fault.at <= by;
    });
  }
  bool may_hold_arbiter(Rank rank) const {
    return rank == 0 || std::count(facts_.standbys.begin(), facts_.standbys.end(), rank) > 0;
  }
  template <typename IsOne>
  bool has_partition(IsOne is_one) const {
    return std::any_of(partitions_.begin(), partitions_.end(),
                       [&](const Fault* each) { return is_one(*each); });
  }
  TimePoint begins(const Fault& partition) const { return facts_.began + partition.at; }
  bool has_parted(TimePoint when) const {
    return has_partition([&](const Fault& each) { return when >= begins(each); });
  }
  /// The network is back: who hears both parts then has the word of the one or of the other.
  bool has_joined(TimePoint when) const {
    return has_partition([&](const Fault& each) {
      return !each.is_for_ever() && when >= begins(each) + each.lasts;
    });
  }
  bool may_join() const {
    return has_partition([](const Fault& each) { return !each.is_for_ever(); });
  }
  /// The network between them is down for good, or has been so long that somebody was missed.
  bool are_apart(Rank one, Rank other, TimePoint when) const {
    return has_partition([&](const Fault& each) {
      return is_inside(each, one) != is_inside(each, other) && when >= begins(each);
    });
  }
  bool are_apart_at_last(Rank one, Rank other) const { return are_apart(one, other, kNever); }
  /// Whose those are that it is never apart from.
  std::vector<bool> side_of(Rank rank) const {
    std::vector<bool> side;
    for (const Fault* const each : partitions_) side.push_back(is_inside(*each, rank));
    return side;
  }
  /// It hears the arbiter of the other part, which does not hear it.
  bool hears_other_part(Rank rank, TimePoint when) const {
    return has_partition([&](const Fault& each) {
      return each.is_one_way && !is_inside(each, rank) && is_inside(each, 0) &&
             when >= begins(each);
    });
  }
  /// One may hear that the other is lost, or whom the other part misses.
  bool may_miss(Rank one, Rank other, TimePoint when) const {
    return are_apart(one, other, when) || hears_other_part(one, when);
  }
  /// The others have not waited for it.
  bool was_late(const Seat& its) const {
    if (!is_impatient(c_) || its.rank->refusal().code() != ErrorCode::kTimeout) return false;
    const std::uint32_t from = its.rank->lent().members().id();
    return std::any_of(seats_.begin(), seats_.end(), [&](const Seat& other) {
      const auto& all = other.rank->shrunk();
      return std::any_of(all.begin(), all.end(),
                         [&](const auto& each) { return each.from == from; });
    });
  }
  bool has_closed(Rank rank, const Seen& seen) const {
    return seat(rank).rank->has_closed_by(seen.communicator, seen.when) ||
           seat(rank).has_left_by(seen.when);
  }

  void judge_failures();
  bool is_true(const Seat& its, const Seen& seen) const;
  bool is_loss_true(const Seat& its, const Seen& seen) const;
  bool has_ended_part(Rank rank, TimePoint when) const;
  bool is_departure_true(const Seat& its, const Seen& seen) const;
  bool is_timeout_true(const Seat& its, const Seen& seen) const;
  bool is_own_timeout_true(const Seat& its, const Seen& seen) const;
  bool is_own_timeout(const Seat& its, const Seen& seen) const;
  bool may_have_lost_arbiter(const Seat& its, TimePoint when) const;
  bool is_held_up(Rank rank, const Seen& seen) const;
  bool may_be_of_smaller_part(Rank rank, TimePoint when) const;
  bool may_count_elsewhere(Rank other, Rank rank, TimePoint when) const;
  void judge_agreement();
  bool may_be_told_else(const Seat& its, const Seen& seen) const;
  void judge_survivors();
  bool are_parted(const SimulatedRank::Shrunk& shrunk) const;
  bool ends_at_once(const SimulatedRank::Shrunk& shrunk) const;
  void judge_reset();
  void judge_refused();
  void judge_partition();
  void judge_sights();
  /// Whether an arbiter may have been on its side of a partition then.
  bool may_have_arbiter(Rank rank, TimePoint when) const;

  const JobFacts& facts_;
  const Case& c_;
  const std::vector<Seat>& seats_;
  const std::vector<const Fault*> partitions_;
  const std::set<Rank> culprits_;
  std::string wrong_;
};

// ---- Who is named, and why ----------------------------------------------------------------------

void JobJudge::judge_failures() {
  const bool only_crashes = has_only(
      [](const Fault& f) { return f.kind == Fault::Kind::kCrash || f.kind == Fault::Kind::kSlow; });
  for (const Seat& each : seats_) {
    if (!each.is_judged()) continue;
    for (const Seen& seen : each.rank->failures()) {
      if (!is_true(each, seen)) {
        return accuse(fmt::format("blames rank {}, which did nothing: {} ({})", seen.failure.rank(),
                                  each.rank->whereabouts(), seen.failure.message()));
      }
      // Who dies is noticed by that.
      if (only_crashes && seen.failure.code() == ErrorCode::kTimeout) {
        return accuse("a death is taken for a passed deadline: " + each.rank->whereabouts());
      }
    }
  }
}

bool JobJudge::is_true(const Seat& its, const Seen& seen) const {
  const Rank named = seen.failure.rank();
  const bool differs =
      has_fault([](const Fault& fault) { return fault.kind == Fault::Kind::kDiffers; });
  const bool is_mismatch = seen.failure.code() == ErrorCode::kMismatch;
  if (differs || is_mismatch) {
    return differs && is_mismatch && (named < 0 || culprits_.contains(named));
  }
  switch (seen.failure.code()) {
    case ErrorCode::kPartitioned:
      return named == its.rank->rank() && may_be_of_smaller_part(named, seen.when);
    case ErrorCode::kRankLeft:
      return is_departure_true(its, seen);
    case ErrorCode::kTimeout:
      return is_timeout_true(its, seen);
    default:
      return is_loss_true(its, seen);
  }
}

bool JobJudge::is_loss_true(const Seat& its, const Seen& seen) const {
  const Rank named = seen.failure.rank();
  const std::set<Rank> struck = struck_by(seen.when);
  // The whole failed while it was split: its dead may be in another part.
  if (named < 0) return seen.is_part && !culprits_.empty();
  // Of one broken link nobody can tell which end it was.
  if (struck.contains(named) || facts_.isolates) return true;
  // Nor whether it was the arbiter that has died.
  if (is_reset(its.rank->rank(), seen.when) && may_hold_arbiter(named)) return true;
  // Who was missed finds the links closed by the others, and nobody to ask once they have left.
  if (its.is_missed && seen.was_alone) return true;
  // So does who is alone in a part without an arbiter.
  if (seen.was_alone && has_parted(seen.when) && seat(named).has_left_by(seen.when)) return true;
  return has_ended_part(named, seen.when) || may_miss(its.rank->rank(), named, seen.when) ||
         has_joined(seen.when);
}

// It has heard that its part ends, and is lost to the others.
bool JobJudge::has_ended_part(Rank rank, TimePoint when) const {
  const auto& failures = seat(rank).rank->failures();
  return std::any_of(failures.begin(), failures.end(), [&](const Seen& each) {
    return each.failure.code() == ErrorCode::kPartitioned && each.when <= when;
  });
}

// All that need a member hear that it has left, and none of several for which a receive from any
// waits. It is named where what it had sent may be lost with a link, or to who was missed.
bool JobJudge::is_departure_true(const Seat& its, const Seen& seen) const {
  const Rank named = seen.failure.rank();
  const std::set<Rank> struck = struck_by(seen.when);
  const bool is_parted = outlasts_leaving(c_) || has_parted(seen.when);
  if (named >= 0) {
    const bool may_need_it =
        its.is_missed || is_parted || facts_.isolates || struck.contains(named);
    return has_closed(named, seen) && may_need_it;
  }
  return (is_parted || !struck.empty()) && seen.waited_for_any &&
         std::all_of(seen.members.begin(), seen.members.end(), [&](Rank member) {
           return member == its.rank->rank() || has_closed(member, seen);
         });
}

bool JobJudge::is_timeout_true(const Seat& its, const Seen& seen) const {
  const Rank named = seen.failure.rank();
  const std::set<Rank> struck = struck_by(seen.when);
  if (named < 0) return !struck.empty() || has_parted(seen.when);
  return struck.contains(named) || facts_.isolates ||
         may_miss(its.rank->rank(), named, seen.when) || has_joined(seen.when) ||
         is_own_timeout_true(its, seen);
}

// Who finds no arbiter goes by what it knows: for whom it waits, and not for whom that one does.
bool JobJudge::is_own_timeout_true(const Seat& its, const Seen& seen) const {
  return is_own_timeout(its, seen) && seen.waited_for_named() &&
         is_held_up(seen.failure.rank(), seen);
}

// So does whom the arbiter has not answered, of which it shows later that it is silent.
bool JobJudge::is_own_timeout(const Seat& its, const Seen& seen) const {
  const bool is_own_word = seen.failure.code() == ErrorCode::kTimeout &&
                           seen.failure.message().find("deadline (limit") != std::string::npos;
  return (seen.is_own_timeout() || is_own_word) && may_have_lost_arbiter(its, seen.when);
}

bool JobJudge::may_have_lost_arbiter(const Seat& its, TimePoint when) const {
  const auto is_lost = [&](Rank holder) {
    const Seat& there = seat(holder);
    return there.is_gone_by(when) || !there.stops.empty() ||
           are_apart(its.rank->rank(), holder, when);
  };
  return !its.stops.empty() || is_lost(0);
}

// It has not ended its calls there, and never does.
bool JobJudge::is_held_up(Rank rank, const Seen& seen) const {
  const Seat& its = seat(rank);
  if (!its.is_judged()) return true;
  const auto& failures = its.rank->failures();
  return std::any_of(failures.begin(), failures.end(),
                     [&](const Seen& each) { return each.communicator == seen.communicator; });
}

// Whether the arbiter that it has may have heard too few then: the others of its part that were
// there for certain are no more than half. Once the network is back, they may be with the others.
bool JobJudge::may_be_of_smaller_part(Rank rank, TimePoint when) const {
  if (struck_by(when).contains(rank)) return true;
  rendezvous::Parts parts{{rank}, {}};
  for (Rank other = 0; other < c_.ranks; ++other) {
    if (other == rank) continue;
    const Seat& its = seat(other);
    const bool is_there = !its.is_gone_by(when) && !has_joined(when) &&
                          !are_apart(rank, other, when) &&
                          !its.was_stopped(when - 2 * c_.silence, when);
    if (is_there) {
      parts.here.insert(other);
    } else if (may_count_elsewhere(other, rank, when)) {
      parts.elsewhere.insert(other);
    }
  }
  return !rendezvous::may_go_on(parts);
}

// Not where it has left, or its kernel has told that it ended, which may be lost on its way.
bool JobJudge::may_count_elsewhere(Rank other, Rank rank, TimePoint when) const {
  const Seat& its = seat(other);
  if (!its.is_gone_by(when) || its.runs_again == kNever) return true;
  const auto is_lost = [&](Rank holder) { return seat(holder).is_gone_by(when); };
  const bool has_lost_arbiter =
      is_lost(0) || std::any_of(facts_.standbys.begin(), facts_.standbys.end(), is_lost);
  return has_lost_arbiter || are_apart(rank, other, its.gone_at + kControlDelay);
}

// ---- What all hear ------------------------------------------------------------------------------

// All that are left name the same one.
void JobJudge::judge_agreement() {
  // By communicator, and side of a partition.
  std::map<std::pair<std::uint32_t, std::vector<bool>>, std::pair<const SimulatedRank*, Status>>
      told;
  for (const Seat& each : seats_) {
    if (!each.is_judged() || each.is_missed) continue;  // the job has gone on without it
    for (const Seen& seen : each.rank->failures()) {
      if (may_be_told_else(each, seen)) continue;
      const auto& [first, verdict] =
          told.try_emplace({seen.communicator, side_of(each.rank->rank())}, each.rank.get(),
                           seen.failure)
              .first->second;
      if (verdict.code() != seen.failure.code() || verdict.rank() != seen.failure.rank()) {
        return accuse(fmt::format("verdicts on {} differ: {} ({}); {} ({})", seen.communicator,
                                  first->whereabouts(), verdict.message(), each.rank->whereabouts(),
                                  seen.failure.message()));
      }
    }
  }
}

bool JobJudge::may_be_told_else(const Seat& its, const Seen& seen) const {
  const Rank rank = its.rank->rank();
  // Each rank of a smaller part hears it of itself.
  if (seen.failure.code() == ErrorCode::kPartitioned) return true;
  // Who hears both parts, as the network is back, has the word of the one or of the other.
  if (may_join()) return true;
  // What was said as the network went down may have reached some only.
  if (has_partition([&](const Fault& each) {
        return std::chrono::abs(seen.when - begins(each)) <= kControlDelay;
      })) {
    return true;
  }
  // Where the standbys of a part are elsewhere or have left, each goes by its own deadline.
  const bool was_left_alone = !partitions_.empty() && seen.failure.code() == ErrorCode::kTimeout;
  if (was_left_alone || !may_have_arbiter(rank, facts_.began)) return true;
  if (seen.is_own_timeout() || is_own_timeout(its, seen)) return true;
  // Who has nobody left to ask says that it was the other end.
  const bool links_broke = has_fault([](const Fault& f) {
    return f.kind == Fault::Kind::kCut || f.kind == Fault::Kind::kIsolate;
  });
  return seen.was_alone && (links_broke || !may_have_arbiter(rank, seen.when));
}

// ---- Who goes on --------------------------------------------------------------------------------

// The network goes down while they agree: some do not hear that all have made it.
bool JobJudge::are_parted(const SimulatedRank::Shrunk& shrunk) const {
  return has_partition([&](const Fault& each) {
    const auto inside = std::count_if(shrunk.members.begin(), shrunk.members.end(),
                                      [&](Rank member) { return is_inside(each, member); });
    return inside > 0 && inside < std::ssize(shrunk.members) &&
           shrunk.when + kControlDelay >= begins(each);
  });
}

// So few of its members have heard that all have made it that they cannot shrink it: most agree
// anew with others beyond the partition, and it ends with the first call.
bool JobJudge::ends_at_once(const SimulatedRank::Shrunk& shrunk) const {
  std::set<Rank> users;
  for (const Rank member : shrunk.members) {
    for (const auto& each : seat(member).rank->shrunk()) {
      if (each.to == shrunk.to) users.insert(member);
    }
  }
  const std::size_t twice = 2 * users.size();
  const bool is_half = twice == shrunk.members.size() && users.contains(shrunk.members.front());
  return are_parted(shrunk) && twice <= shrunk.members.size() && !is_half;
}

// All survivors of a communicator go on in the same one, or in none.
void JobJudge::judge_survivors() {
  std::map<std::uint32_t, const SimulatedRank::Shrunk*> made;
  for (const Seat& each : seats_) {
    if (!each.is_judged() || each.is_missed) continue;
    for (const SimulatedRank::Shrunk& shrunk : each.rank->shrunk()) {
      if (ends_at_once(shrunk)) continue;
      const auto& known = made.try_emplace(shrunk.from, &shrunk).first->second;
      if (known->to != shrunk.to || known->members != shrunk.members) {
        return accuse(fmt::format("survivors go on apart: {} with {} in {}, others with {} in {}",
                                  each.rank->whereabouts(), fmt::join(shrunk.members, " "),
                                  shrunk.to, fmt::join(known->members, " "), known->to));
      }
    }
  }
  for (const auto& entry : made) {
    const SimulatedRank::Shrunk* const shrunk = entry.second;
    if (are_parted(*shrunk)) continue;
    for (const Rank member : shrunk->members) {
      const Seat& its = seat(member);
      if (!its.is_judged() || its.is_missed) continue;
      const auto& all = its.rank->shrunk();
      const bool went_on = std::any_of(all.begin(), all.end(),
                                       [&](const auto& each) { return each.to == shrunk->to; });
      if (!went_on) accuse("a survivor does not go on with the others: " + its.rank->whereabouts());
    }
  }
}

// Whose control connection was reset the others take for dead, and go on without it. So it does not
// go on, also once they have gone; unless only the arbiter's has, of which it has the word of a
// kernel.
void JobJudge::judge_reset() {
  if (facts_.isolates) return;
  Rank holder = 0;
  for (const Rank rank : facts_.standbys) {
    if (!seat(holder).is_judged()) holder = rank;
  }
  std::map<std::uint32_t, std::uint32_t> ways, holders_ways;
  for (const Seat& each : seats_) {
    if (each.is_missed) continue;
    auto& its = each.rank->rank() == holder ? holders_ways : ways;
    for (const SimulatedRank::Shrunk& shrunk : each.rank->shrunk()) its[shrunk.from] = shrunk.to;
  }
  const auto is_other = [](const auto& known, const SimulatedRank::Shrunk& shrunk) {
    const auto way = known.find(shrunk.from);
    return way != known.end() && way->second != shrunk.to;
  };
  for (const Seat& each : seats_) {
    if (!each.is_judged() || !is_reset(each.rank->rank(), kNever)) continue;
    for (const SimulatedRank::Shrunk& shrunk : each.rank->shrunk()) {
      const bool is_last = std::all_of(seats_.begin(), seats_.end(), [&](const Seat& other) {
        return &other == &each || other.rank->rank() == holder || other.is_gone_by(shrunk.when);
      });
      if (is_other(ways, shrunk) || (!is_last && is_other(holders_ways, shrunk))) {
        accuse("a rank whose connection was reset goes on apart: " + each.rank->whereabouts());
      }
    }
  }
}

// Who did nothing goes on. Where rank 0 is lost its successors may have left, or be one rank alone;
// and where most have left, those that are silent may be the greater part.
void JobJudge::judge_refused() {
  const bool is_minority = 2 * culprits_.size() >= seats_.size();
  const auto stayed = std::count_if(seats_.begin(), seats_.end(), [&](const Seat& each) {
    return each.is_judged() && (each.rank->is_refused() || !each.rank->shrunk().empty()) &&
           !culprits_.contains(each.rank->rank());
  });
  const bool are_few = static_cast<std::size_t>(stayed) <= culprits_.size();
  if (is_minority || are_few || facts_.isolates || culprits_.contains(0)) return;
  for (const Seat& each : seats_) {
    if (each.is_judged() && each.rank->is_refused() && !was_late(each) &&
        !culprits_.contains(each.rank->rank())) {
      return accuse("a survivor is left out: " + each.rank->whereabouts());
    }
  }
}

bool JobJudge::may_have_arbiter(Rank rank, TimePoint when) const {
  if (partitions_.empty()) return true;
  const auto is_beside = [&](Rank holder) {
    return seat(holder).gone_at >= when && !are_apart_at_last(holder, rank);
  };
  const std::vector<Rank>& standbys = facts_.standbys;
  return is_beside(0) || std::any_of(standbys.begin(), standbys.end(), is_beside);
}

// Of two parts that do not hear each other the right one goes on, if any, and the other one hears
// why it may not. Where somebody dies as well it depends on who has heard of that; and where the
// network is back in the end, on who is heard again in time, but some go on.
void JobJudge::judge_partition() {
  if (partitions_.empty() || c_.faults.size() > 1 || !can_shrink(c_)) return;
  rendezvous::Parts parts;
  bool have_all_tried = true;
  for (Rank rank = 0; rank < c_.ranks; ++rank) {
    const SimulatedRank& its = *seat(rank).rank;
    (are_apart_at_last(rank, 0) ? parts.elsewhere : parts.here).insert(rank);
    have_all_tried = have_all_tried && (its.is_refused() || !its.shrunk().empty());
  }
  if (!have_all_tried || parts.elsewhere.empty()) return;
  // Without an arbiter nobody goes on.
  const bool is_of_zero =
      rendezvous::may_go_on(parts) || !may_have_arbiter(*parts.elsewhere.begin(), facts_.began);
  const std::set<Rank>& right = is_of_zero ? parts.here : parts.elsewhere;
  if (may_join()) {
    const bool some_go_on = std::any_of(seats_.begin(), seats_.end(), [](const Seat& each) {
      return !each.rank->shrunk().empty();
    });
    if (!some_go_on && may_have_arbiter(*right.begin(), facts_.began))
      accuse("no part of a partition goes on");
    return;
  }
  for (const Seat& each : seats_) {
    const SimulatedRank& its = *each.rank;
    const bool is_right = right.contains(its.rank());
    if (!is_right && !its.shrunk().empty()) {
      return accuse("the wrong part goes on: " + its.whereabouts());
    }
    // Who hears the other part is told why that goes on without it.
    if (!is_right && !hears_other_part(its.rank(), kNever) && !was_late(each) &&
        its.refusal().code() != ErrorCode::kPartitioned) {
      return accuse("a part that may not go on is told something else: " + its.refusal().message() +
                    "; " + its.whereabouts());
    }
    if (is_right && may_have_arbiter(its.rank(), facts_.began) && !was_late(each) &&
        its.shrunk().empty()) {
      return accuse("the part that may does not go on: " + its.refusal().message() + "; " +
                    its.whereabouts());
    }
  }
}

void JobJudge::judge_sights() {
  const SightJudge judge(facts_);
  for (const Seat& each : seats_) {
    if (!each.is_judged() || each.is_missed) continue;
    for (const Seen& seen : each.rank->failures()) accuse(judge.judge(each, seen));
  }
}

}  // namespace

std::string judge_job(const JobFacts& facts) { return JobJudge(facts).judge(); }

}  // namespace unisono::sim
