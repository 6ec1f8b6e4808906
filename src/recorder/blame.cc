#include "recorder/blame.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "base/collective.h"

namespace unisono::recorder {
namespace {

// Survivors have got over the end of a rank by then: found out, shrunk, and grown.
constexpr std::int64_t kAftermathNs = 60'000'000'000;

// The first call that ended with a failure which the rank has not got over since: whoever goes on
// starts other calls.
const RecordedCall* first_failure(const RankRecord& record) {
  const RecordedCall* first = nullptr;
  std::int64_t last_start_ns = INT64_MIN;
  for (auto call = record.calls.rbegin(); call != record.calls.rend(); ++call) {
    const bool has_failed = call->state == EntryState::kFailed;
    if (has_failed && last_start_ns < call->ended_ns) first = &*call;
    if (!has_failed) last_start_ns = std::max(last_start_ns, call->started_ns);
  }
  return first;
}

bool has_failed(const RankRecord& record) { return first_failure(record) != nullptr; }

// The call in flight that began first, of those that a thread waits in if there are such and else
// of collectives; or the first that has failed.
const RecordedCall* call_that_holds_up(const RankRecord& record) {
  const RecordedCall *collective = nullptr, *message = nullptr;
  for (const RecordedCall& call : record.calls) {
    if (call.state != EntryState::kStarted) continue;
    if (!call.is_asynchronous) return &call;
    const RecordedCall*& first = call.is_message() ? message : collective;
    if (first == nullptr) first = &call;
  }
  if (collective != nullptr) return collective;
  return message != nullptr ? message : first_failure(record);
}

// When the rank is known to have been there last.
std::int64_t last_seen_ns(const RankRecord& record) {
  std::int64_t last_ns = record.opened_ns;
  for (const RecordedCall& call : record.calls) {
    last_ns = std::max({last_ns, call.started_ns, call.ended_ns});
  }
  return last_ns;
}

std::int64_t last_failure_ns(const RankRecord& record) {
  std::int64_t last_ns = 0;
  for (const RecordedCall& call : record.calls) {
    if (call.state == EntryState::kFailed) last_ns = std::max(last_ns, call.ended_ns);
  }
  return last_ns;
}

// Who is in a communicator, as far as records say.
struct Group {
  int size = 0;
  std::map<Rank, Rank> world_ranks;     // by member
  std::map<Rank, std::uint64_t> begun;  // by member
  bool is_numbered_as_world = true;

  // -1: no record tells.
  Rank world_rank(Rank member) const {
    const auto known = world_ranks.find(member);
    if (known != world_ranks.end()) return known->second;
    return is_numbered_as_world ? member : -1;
  }
};

class Court {
 public:
  explicit Court(std::span<const Witness> witnesses) : witnesses_(witnesses) {
    for (const Witness& witness : witnesses_) {
      by_rank_[witness.record.rank] = &witness;
      for (const RecordedCommunicator& each : witness.record.communicators) {
        Group& group = groups_[each.id];
        group.size = std::max(group.size, each.size);
        group.world_ranks[each.member] = witness.record.rank;
        group.begun[each.member] = std::max(group.begun[each.member], each.begun);
        if (each.member != witness.record.rank || each.size != witness.record.world_size) {
          group.is_numbered_as_world = false;
        }
      }
    }
  }

  Verdict judge() {
    for (const Witness& witness : witnesses_) verdict_.standings.push_back(standing_of(witness));
    std::sort(verdict_.standings.begin(), verdict_.standings.end(),
              [](const Standing& a, const Standing& b) { return a.rank < b.rank; });
    find_first();
    if (verdict_.first.empty()) {
      judge_without_waits();
    } else if (verdict_.kind != Verdict::Kind::kCycle) {
      verdict_.kind = kind_of(verdict_.first.front());
    }
    return std::move(verdict_);
  }

 private:
  const Witness* find_witness(Rank rank) const {
    const auto found = by_rank_.find(rank);
    return found == by_rank_.end() ? nullptr : found->second;
  }
  bool stands_still(Rank rank) const {
    const Witness* const witness = find_witness(rank);
    return witness != nullptr && witness->stands_still();
  }
  // It makes no call any more.
  bool is_over(Rank rank) const {
    const Witness* const witness = find_witness(rank);
    if (witness == nullptr) return false;
    return witness->life == Life::kGone || witness->record.closed_ns != 0 ||
           has_failed(witness->record);
  }

  Verdict::Kind kind_of(Rank first) const {
    const bool is_told = std::any_of(
        verdict_.standings.begin(), verdict_.standings.end(), [&](const Standing& each) {
          return each.is_told &&
                 std::binary_search(each.waits_for.begin(), each.waits_for.end(), first);
        });
    return is_told || is_over(first) ? Verdict::Kind::kStopped : Verdict::Kind::kMissing;
  }

  Standing standing_of(const Witness& witness) const {
    Standing standing{.rank = witness.record.rank, .witness = &witness};
    standing.call = call_that_holds_up(witness.record);
    standing.is_held_up = standing.call != nullptr;
    if (standing.is_held_up) {
      find_waits(witness, &standing);
    } else {
      standing.call = witness.record.last_call();
    }
    return standing;
  }

  void find_waits(const Witness& witness, Standing* standing) const {
    const RecordedCall& call = *standing->call;
    const auto found = groups_.find(call.communicator);
    const RecordedCommunicator* const own = witness.record.find(call.communicator);
    if (found == groups_.end() || own == nullptr) return;
    const Group& group = found->second;
    // What the job has found out is better evidence than what can be worked out afterwards.
    if (call.state == EntryState::kFailed && call.failed_rank >= 0) {
      standing->is_told = true;
      if (call.failed_rank != own->member) add(group, call.failed_rank, standing);
    } else if (call.is_message()) {
      if (call.peer >= 0) add(group, call.peer, standing);
    } else if (call.is_numbered) {
      add_missing(group, call, own->member, standing);
    }
    if (witness.was_ended()) {
      std::erase_if(standing->waits_for,
                    [&](Rank rank) { return has_given_up(rank, call.communicator); });
    }
    std::sort(standing->waits_for.begin(), standing->waits_for.end());
  }

  // It has left, or heard that the communicator has failed, of which an ended rank heard nothing:
  // that one's end came first.
  bool has_given_up(Rank rank, std::uint32_t communicator) const {
    const Witness* const witness = find_witness(rank);
    if (witness == nullptr) return false;
    const std::vector<RecordedCall>& calls = witness->record.calls;
    return witness->record.closed_ns != 0 ||
           std::any_of(calls.begin(), calls.end(), [&](const RecordedCall& call) {
             return call.communicator == communicator && call.state == EntryState::kFailed;
           });
  }

  static void add(const Group& group, Rank member, Standing* standing) {
    const Rank rank = member < group.size ? group.world_rank(member) : -1;
    if (rank < 0) {
      ++standing->unknown;
    } else {
      standing->waits_for.push_back(rank);
    }
  }

  enum class Arrival : std::uint8_t { kArrived, kMissing, kUnknown };
  Arrival arrival_of(const Group& group, Rank member, const RecordedCall& call) const {
    const auto begun = group.begun.find(member);
    if (begun != group.begun.end()) {
      return begun->second <= call.sequence() ? Arrival::kMissing : Arrival::kArrived;
    }
    const Witness* const witness = find_witness(group.world_rank(member));
    if (witness == nullptr) return Arrival::kUnknown;
    // A record has room for so many communicators; this one may have been left out.
    const RankRecord& record = witness->record;
    const bool may_be_left_out =
        record.damaged > 0 || record.communicators.size() >= kCommunicators;
    return may_be_left_out ? Arrival::kUnknown : Arrival::kMissing;
  }

  // True where the member is not known to have arrived.
  bool add_if_missing(const Group& group, Rank member, const RecordedCall& call,
                      Standing* standing) const {
    const Arrival arrival = arrival_of(group, member, call);
    if (arrival == Arrival::kMissing) add(group, member, standing);
    if (arrival == Arrival::kUnknown) ++standing->unknown;
    return arrival != Arrival::kArrived;
  }

  // Members that have not arrived; where all have, those that stand still in the call.
  void add_missing(const Group& group, const RecordedCall& call, Rank self,
                   Standing* standing) const {
    const CollectiveFacts& facts = facts_of(static_cast<Collective>(call.record.collective));
    const Rank root = call.record.root;
    if (facts.flow == Flow::kRootToAll && root != self &&
        add_if_missing(group, root, call, standing)) {
      return;
    }
    const int members = facts.is_prefix() ? self : group.size;
    for (Rank member = 0; member < members; ++member) {
      if (member != self) add_if_missing(group, member, call, standing);
    }
    if (!standing->waits_for.empty() || standing->unknown > 0) return;
    for (Rank member = 0; member < members; ++member) {
      if (member == self || !stands_still(group.world_rank(member))) continue;
      if (is_in(group.world_rank(member), call)) add(group, member, standing);
    }
  }

  bool is_in(Rank rank, const RecordedCall& call) const {
    const std::vector<RecordedCall>& calls = find_witness(rank)->record.calls;
    return std::any_of(calls.begin(), calls.end(), [&](const RecordedCall& each) {
      return each.communicator == call.communicator && !each.is_message() && each.is_numbered &&
             each.sequence() == call.sequence() && each.state == EntryState::kStarted;
    });
  }

  // Those who are waited for and wait for nobody that could still come.
  void find_first() {
    std::map<Rank, int> waited_for, told;
    for (const Standing& each : verdict_.standings) {
      for (const Rank rank : each.waits_for) {
        ++waited_for[rank];
        if (each.is_told) ++told[rank];
      }
    }
    for (const auto& [rank, waiting] : waited_for) {
      const Standing* const standing = verdict_.find(rank);
      const bool waits = standing != nullptr && !standing->waits_for.empty();
      if (!waits || stands_still(rank) || told.contains(rank)) verdict_.first.push_back(rank);
    }
    if (verdict_.first.empty()) find_those_who_compute();
    const std::vector<Rank> ended = ended_without_being_waited_for(told);
    std::vector<Rank>& first = verdict_.first;
    const bool went_on = went_on_without(ended);
    if (!went_on) first.insert(first.end(), ended.begin(), ended.end());
    const auto weight = [&](Rank rank) {
      return std::tuple(-told[rank], stands_still(rank) ? 0 : 1, is_over(rank) ? 0 : 1,
                        -waited_for[rank], rank);
    };
    std::sort(first.begin(), first.end(), [&](Rank a, Rank b) { return weight(a) < weight(b); });
    if (went_on) first.insert(first.end(), ended.begin(), ended.end());
    if (first.empty() && !waited_for.empty()) find_cycle(waited_for.begin()->first);
  }

  // Survivors of a rank that was ended wait for it no more: where nothing else explains who is late
  // among them, it may be so because of it, as in grow(), where they wait for its successor.
  std::vector<Rank> ended_without_being_waited_for(const std::map<Rank, int>& told) const {
    const std::vector<Rank>& first = verdict_.first;
    const bool is_explained = std::any_of(first.begin(), first.end(), [&](Rank rank) {
      return told.contains(rank) || stands_still(rank) || is_over(rank);
    });
    std::vector<Rank> ended;
    if (first.empty() || is_explained) return ended;
    for (const Witness& witness : witnesses_) {
      if (witness.was_ended()) ended.push_back(witness.record.rank);
    }
    return ended;
  }

  // All who are late have made calls long after the end of these, by their own clocks where they
  // have heard of it: that was not the cause.
  bool went_on_without(const std::vector<Rank>& ended) const {
    std::int64_t end_ns = 0;
    for (const Rank rank : ended) {
      end_ns = std::max(end_ns, last_seen_ns(find_witness(rank)->record));
    }
    return std::all_of(verdict_.first.begin(), verdict_.first.end(), [&](Rank rank) {
      const Witness* const late = find_witness(rank);
      if (late == nullptr) return false;
      const std::int64_t since_ns = std::max(end_ns, last_failure_ns(late->record));
      return last_seen_ns(late->record) - since_ns > kAftermathNs;
    });
  }

  // Ranks that wait in a ring, unless one has only started calls, of which it may be that nobody
  // waits for them, and has not come to a collective that others are in.
  void find_those_who_compute() {
    std::set<Rank> missing;
    for (const Standing& each : verdict_.standings) {
      if (each.is_held_up && !each.call->is_message()) {
        missing.insert(each.waits_for.begin(), each.waits_for.end());
      }
    }
    for (const Rank rank : missing) {
      const Standing* const standing = verdict_.find(rank);
      if (standing != nullptr && standing->has_only_started()) verdict_.first.push_back(rank);
    }
  }

  std::int64_t last_sign_of(Rank rank) const {
    const Standing* const standing = verdict_.find(rank);
    return standing == nullptr || standing->call == nullptr ? 0 : standing->call->since_ns();
  }

  // Everybody who is waited for waits as well, so that the way comes back somewhere.
  void find_cycle(Rank from) {
    std::vector<Rank> way;
    Rank rank = from;
    while (std::find(way.begin(), way.end(), rank) == way.end()) {
      way.push_back(rank);
      rank = verdict_.find(rank)->waits_for.front();
    }
    way.erase(way.begin(), std::find(way.begin(), way.end(), rank));
    verdict_.first = std::move(way);
    verdict_.kind = Verdict::Kind::kCycle;
  }

  void judge_without_waits() {
    std::vector<Rank> over;
    bool all_left = true, some_run = false;
    for (const Standing& each : verdict_.standings) {
      const Witness& witness = *each.witness;
      if (witness.stands_still() || has_failed(witness.record)) over.push_back(each.rank);
      all_left = all_left && witness.record.closed_ns != 0;
      some_run = some_run || each.is_held_up;
    }
    std::stable_sort(over.begin(), over.end(),
                     [&](Rank a, Rank b) { return last_sign_of(a) < last_sign_of(b); });
    verdict_.first = std::move(over);
    verdict_.kind = !verdict_.first.empty() ? kind_of(verdict_.first.front())
                    : all_left              ? Verdict::Kind::kFinished
                    : some_run              ? Verdict::Kind::kBusy
                                            : Verdict::Kind::kIdle;
  }

  const std::span<const Witness> witnesses_;
  std::map<Rank, const Witness*> by_rank_;
  std::map<std::uint32_t, Group> groups_;
  Verdict verdict_;
};

}  // namespace

bool Witness::was_ended() const {
  return life == Life::kGone && record.closed_ns == 0 && !has_failed(record);
}

const Standing* Verdict::find(Rank rank) const {
  const auto found =
      std::lower_bound(standings.begin(), standings.end(), rank,
                       [](const Standing& each, Rank wanted) { return each.rank < wanted; });
  return found == standings.end() || found->rank != rank ? nullptr : &*found;
}

Verdict blame(std::span<const Witness> witnesses) { return Court(witnesses).judge(); }

}  // namespace unisono::recorder
