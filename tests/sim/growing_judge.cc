// The verdict on a simulation of growing.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/failure/quorum.h"
#include "rendezvous/store/wait_list.h"
#include "tests/sim/growing_process.h"

namespace unisono::sim {
namespace {

using Process = GrowingProcess;

// Of all calls, and the vote, of one growth.
constexpr Duration kOfCalls = std::chrono::seconds(1);

class GrowthJudge {
 public:
  GrowthJudge(const Case& c, const Jobs& jobs, const Processes& processes, const Partition& network,
              const std::vector<std::string>& listed)
      : c_(c),
        jobs_(jobs),
        processes_(processes),
        network_(network),
        listed_(listed),
        sleeps_(sleeps(c)),
        partition_(lasting_partition(c)),
        is_disturbed_(is_late(c) ||
                      std::any_of(processes.begin(), processes.end(),
                                  [&](const auto& each) { return !is_unharmed(*each); })) {}

  std::string judge() {
    for (const auto& each : processes_) {
      for (const Process::Growth& growth : each->growths) {
        if (growth.has_grown && is_unharmed(*each)) judge_members(*each, growth);
      }
      for (const Process::Place& place : each->places) {
        if (place.is_used && each->is_judged()) judge_failures(*each, place);
      }
    }
    judge_parts();
    judge_liveness();
    judge_failed_growths();
    judge_time();
    judge_list();
    return wrong_;
  }

 private:
  const SimulatedJob& job(int number) const { return *jobs_[static_cast<std::size_t>(number)]; }
  const Process& process(int number) const { return *processes_[static_cast<std::size_t>(number)]; }
  int process_of(int job_number, Rank rank) const {
    return job(job_number).processes[static_cast<std::size_t>(rank)];
  }
  bool is_unharmed(const Process& each) const { return each.is_judged() && !each.is_missed; }
  bool uses(const Process& each, int number) const {
    return std::any_of(each.places.begin(), each.places.end(), [&](const Process::Place& place) {
      return place.job == number && place.is_used;
    });
  }
  void accuse(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  // Somebody is not run, or reached, for longer than others wait for it to meet them.
  static bool sleeps(const Case& c) {
    return std::any_of(c.faults.begin(), c.faults.end(), [&](const Fault& fault) {
      if (fault.kind == Fault::Kind::kPartition) {
        return may_be_missed(c, fault) || is_too_long(c, fault.lasts + Partition::kSentAgain);
      }
      const bool stops = fault.kind == Fault::Kind::kPause || fault.kind == Fault::Kind::kStop;
      return stops && is_too_long(c, fault.lasts);
    });
  }

  // Somebody is not run for a while, or seldom.
  static bool is_late(const Case& c) {
    return std::any_of(c.faults.begin(), c.faults.end(),
                       [](const Fault& fault) { return fault.kind != Fault::Kind::kCrash; });
  }

  // All members of the communicator that grew use the new job, in which ranks are as they are to
  // be.
  void judge_members(const Process& its, const Process::Growth& growth) {
    std::vector<int> members;
    for (const Rank rank : growth.members) members.push_back(process_of(growth.job, rank));
    for (const int each : members) {
      if (may_miss_vote(growth, process(each))) continue;
      if (is_unharmed(process(each)) && !uses(process(each), growth.new_job)) {
        return accuse(fmt::format("process {} uses job {}, and {}, a member as well, does not",
                                  its.number, growth.new_job, each));
      }
    }
    const std::vector<int>& ranks = job(growth.new_job).processes;
    const auto place_in_group = [&](int each) {
      return std::find(members.begin(), members.end(), each) - members.begin();
    };
    const auto is_in_order = [&](int a, int b) {
      const int key_a = process(a).key, key_b = process(b).key;
      return key_a == key_b
                 ? place_in_group(a) < place_in_group(b) || place_in_group(b) == std::ssize(members)
                 : key_a < key_b;
    };
    for (std::size_t i = 1; i < ranks.size(); ++i) {
      if (!is_in_order(ranks[i - 1], ranks[i])) {
        accuse(fmt::format("ranks {} and {} of job {} are not in the order of their keys", i - 1, i,
                           growth.new_job));
      }
    }
    const std::set<int> different(ranks.begin(), ranks.end());
    if (different.size() != ranks.size()) accuse("a process is two ranks");
    for (const int each : members) {
      if (!different.contains(each)) accuse("a member is missing in the new job");
    }
    const bool all_live = !sleeps_ && std::all_of(ranks.begin(), ranks.end(), [&](int each) {
      return is_unharmed(process(each));
    });
    for (const int each : ranks) {
      if (all_live && !uses(process(each), growth.new_job)) {
        accuse(fmt::format("newcomer {} is in job {} and does not use it", each, growth.new_job));
      }
    }
  }

  // Where the network goes down as the arbiter tells that all have met, some hear it. Where it is
  // back, others hear first that their job has failed.
  bool may_miss_vote(const Process::Growth& growth, const Process& its) const {
    if (partition_ == nullptr || growth.agreed_at + 2 * kControlDelay < network_.began()) {
      return false;
    }
    return partition_->is_for_ever() || has_failed_in(growth.job, its);
  }

  bool has_failed_in(int job_number, const Process& its) const {
    return std::any_of(its.places.begin(), its.places.end(), [&](const Process::Place& place) {
      return place.job == job_number && !rank_at(place).failures().empty();
    });
  }

  // Nobody is named that has done nothing. By a vote that fails a member only says what it saw.
  void judge_failures(const Process& its, const Process::Place& place) {
    for (const SimulatedRank::Seen& seen : rank_at(place).failures()) {
      const Rank named = seen.failure.rank();
      const ErrorCode code = seen.failure.code();
      if (code == ErrorCode::kAborted || code == ErrorCode::kRendezvous) continue;
      if (is_true(its, place, seen)) continue;
      accuse(fmt::format("process {} blames rank {} of job {}, process {}, which did nothing: {}",
                         its.number, named, place.job,
                         named < 0 ? -1 : process_of(place.job, named), seen.failure.message()));
    }
  }

  bool is_true(const Process& its, const Process::Place& place,
               const SimulatedRank::Seen& seen) const {
    if (its.is_missed) return true;
    const Rank named = seen.failure.rank();
    if (named < 0) return is_disturbed_;
    const Process& blamed = process(process_of(place.job, named));
    if (seen.failure.code() == ErrorCode::kPartitioned) {
      return blamed.number == its.number && may_be_of_smaller_part(its, place, seen);
    }
    // Who gives up a job that the others use has hung up.
    const bool has_given_up =
        sleeps_ && place.job > 0 && (blamed.has_slept || !uses(blamed, place.job));
    if (!is_unharmed(blamed) || has_given_up) return true;
    if (partition_ == nullptr || network_.began() > seen.when) return false;
    const SimulatedRank& other = *job(place.job).ranks[static_cast<std::size_t>(named)];
    // Who finds no arbiter goes by whom it waits for, which is held up as well.
    // Its own deadline may pass later.
    if (seen.is_own_timeout() && seen.waited_for_named() &&
        has_failed_in(other, seen.communicator, kNever)) {
      return true;
    }
    // What it had sent is lost with the network.
    if (seen.failure.code() == ErrorCode::kRankLeft) {
      return other.has_closed_by(seen.communicator, seen.when);
    }
    // Who hears both parts, as the network is back, has the word of the one or of the other.
    return is_apart(its, blamed) || network_.ends() <= seen.when;
  }

  // Whether those of its part of the job that are there for certain are no more than half. Without
  // a partition only stops part anybody from others.
  bool may_be_of_smaller_part(const Process& its, const Process::Place& place,
                              const SimulatedRank::Seen& seen) const {
    const bool is_parted = partition_ != nullptr && network_.began() <= seen.when;
    bool has_stops = false;
    rendezvous::Parts parts;
    for (Rank rank = 0; rank < std::ssize(job(place.job).processes); ++rank) {
      const Process& other = process(process_of(place.job, rank));
      const bool has_closed = job(place.job).ranks[static_cast<std::size_t>(rank)]->has_closed_by(
          seen.communicator, seen.when);
      if (!is_parted && has_closed) continue;  // it may have left, and counts nowhere
      has_stops = has_stops || other.is_missed || other.runs_again != TimePoint{};
      const bool is_here =
          is_unharmed(other) && (!is_parted || (!has_closed && !is_apart(its, other)));
      (is_here ? parts.here : parts.elsewhere).insert(rank);
    }
    return (is_parted || has_stops) && !rendezvous::may_go_on(parts);
  }

  bool is_apart(const Process& one, const Process& other) const {
    return partition_ != nullptr &&
           is_inside(*partition_, one.number) != is_inside(*partition_, other.number);
  }

  // Of a communicator all go on in the same smaller one or in the same new job, of those that do,
  // and by the partition alone others hear of that.
  void judge_parts() {
    if (partition_ == nullptr) return;
    std::map<std::pair<int, std::uint32_t>, std::pair<int, std::string>> ways;
    const auto note = [&](const Process& its, int job_number, std::uint32_t from,
                          const std::string& way) {
      const auto& [first, known] =
          ways.try_emplace({job_number, from}, its.number, way).first->second;
      if (known == way) return;
      accuse(fmt::format("of communicator {} of job {} process {} goes on in {} and {} in {}", from,
                         job_number, first, known, its.number, way));
    };
    for (const auto& each : processes_) {
      if (!each->is_judged() || each->places.empty()) continue;
      const SimulatedRank& last = rank_at(each->places[each->current]);
      const bool is_told_why = last.refusal().code() == ErrorCode::kPartitioned;
      const bool is_alone = c_.faults.size() == 1 && partition_->is_for_ever();
      if (last.is_refused() && is_alone && !is_told_why && !was_late(last)) {
        accuse(fmt::format("process {} of a part that may not go on is told something else: {}",
                           each->number, last.refusal().message()));
      }
      if (last.is_refused() || has_failed_for_good(last)) continue;
      for (const Process::Growth& growth : each->growths) {
        if (!growth.has_grown) continue;
        note(*each, growth.job, growth.communicator, fmt::format("job {}", growth.new_job));
      }
      for (const Process::Place& place : each->places) {
        for (const SimulatedRank::Shrunk& shrunk : rank_at(place).shrunk()) {
          note(*each, place.job, shrunk.from, fmt::format("communicator {}", shrunk.to));
        }
      }
    }
  }
  // Others went on from the last communicator that it has used, and have not waited for it.
  bool was_late(const SimulatedRank& rank) const {
    if (!is_impatient(c_) || rank.refusal().code() != ErrorCode::kTimeout) return false;
    const std::uint32_t from = rank.lent().members().id();
    return std::any_of(processes_.begin(), processes_.end(), [&](const auto& each) {
      return std::any_of(each->places.begin(), each->places.end(), [&](const auto& place) {
        const auto& all = rank_at(place).shrunk();
        return std::any_of(all.begin(), all.end(),
                           [&](const auto& shrunk) { return shrunk.from == from; });
      });
    });
  }
  // Nor does it go on from the last communicator that it has used.
  static bool has_failed_for_good(const SimulatedRank& rank) {
    return has_failed_in(rank, rank.lent().members().id(), kNever);
  }
  static bool has_failed_in(const SimulatedRank& rank, std::uint32_t communicator, TimePoint by) {
    return std::any_of(rank.failures().begin(), rank.failures().end(), [&](const auto& seen) {
      return seen.communicator == communicator && seen.when <= by;
    });
  }

  // Where nothing strikes while they grow, and there is time enough, all that come are taken in.
  void judge_liveness() {
    const bool strikes = std::any_of(c_.faults.begin(), c_.faults.end(), [](const Fault& fault) {
      return fault.is_in_growth || fault.kind == Fault::Kind::kPartition;
    });
    const bool waits = c_.growing.wait >= std::chrono::seconds(3) + 20 * store_delay();
    if (strikes || !is_store_quick() || !waits) return;
    for (const auto& newcomer : processes_) {
      if (!newcomer->is_newcomer || !newcomer->places.empty() || !is_unharmed(*newcomer)) continue;
      for (const auto& each : processes_) {
        if (each->places.empty() || each->has_enough || !is_unharmed(*each)) continue;
        if (rank_at(each->places[each->current]).is_refused()) continue;
        return accuse(fmt::format("newcomer {} waits in vain, and process {} for more",
                                  newcomer->number, each->number));
      }
    }
  }

  // Where nobody fails at all, no growth does.
  void judge_failed_growths() {
    if (!c_.faults.empty() || !is_store_quick()) return;
    for (const auto& each : processes_) {
      for (const Process::Growth& growth : each->growths) {
        if (!growth.why.ok()) accuse("growth failed: " + growth.why.message());
      }
    }
  }

  // Whoever dies costs the members no more than is said in docs/failures.md.
  void judge_time() {
    const bool only_dies = std::all_of(c_.faults.begin(), c_.faults.end(), [](const Fault& fault) {
      return fault.kind == Fault::Kind::kCrash;
    });
    if (!only_dies || c_.growing.store.late_one_in > 0) return;
    const Duration most = c_.growing.wait + rendezvous::kAnswerTime + c_.growing.timeout +
                          kOfCalls + 100 * store_delay();
    for (const auto& each : processes_) {
      for (const Process::Growth& growth : each->growths) {
        if (!each->is_judged() || growth.took <= most) continue;
        accuse(fmt::format("process {} has grown for {:.3f} s, which may take {:.3f}", each->number,
                           std::chrono::duration<double>(growth.took).count(),
                           std::chrono::duration<double>(most).count()));
      }
    }
  }

  // Who is in, or has given up, is crossed out.
  void judge_list() {
    const bool all_could = std::all_of(processes_.begin(), processes_.end(), [&](const auto& each) {
      return is_unharmed(*each) || !each->has_begun_growth;
    });
    const bool has_reached_store = partition_ == nullptr || c_.growing.store.host_of < 0;
    if (!all_could || !has_reached_store) return;
    for (const std::string& entry : listed_) {
      if (entry != "-") accuse("'" + entry + "' is on the list in the end");
    }
  }

  bool is_store_quick() const { return 20 * store_delay() < c_.growing.timeout; }
  Duration store_delay() const {
    const StorePlace& store = c_.growing.store;
    return store.late_one_in > 0 ? std::max(store.most, store.late) : store.most;
  }
  const SimulatedRank& rank_at(const Process::Place& place) const {
    return *job(place.job).ranks[static_cast<std::size_t>(place.rank)];
  }

  const Case& c_;
  const Jobs& jobs_;
  const Processes& processes_;
  const Partition& network_;
  const std::vector<std::string>& listed_;
  const bool sleeps_;
  const Fault* const partition_;
  const bool is_disturbed_;  // somebody may be late, or has died
  std::string wrong_;
};

}  // namespace

std::string judge_growth(const Case& c, const Jobs& jobs, const Processes& processes,
                         const Partition& partition, const std::vector<std::string>& listed) {
  return GrowthJudge(c, jobs, processes, partition, listed).judge();
}

}  // namespace unisono::sim
