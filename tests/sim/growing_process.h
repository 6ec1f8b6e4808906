// What a simulation of growing has: jobs, and the processes that have a part in one after the
// other.
//
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/control_plane.h"
#include "tests/sim/fabric.h"
#include "tests/sim/partition.h"
#include "tests/sim/program.h"
#include "tests/sim/rank.h"
#include "unisono/rendezvous.h"

namespace unisono::sim {

/// A job, and its network.
struct SimulatedJob {
  Case c;                      ///< adapted to its size
  std::vector<int> processes;  ///< by rank
  Fabric fabric;
  ControlPlane control;
  std::vector<std::unique_ptr<SimulatedRank>> ranks{};
};

struct GrowingProcess {
  /// Its part in a job.
  struct Place {
    int job;
    Rank rank;
    bool is_used = false;  ///< the job is no mere attempt
  };
  /// One call of grow(), whether or not anybody came.
  struct Growth {
    int job;  ///< that grew
    std::uint32_t communicator;
    std::vector<Rank> members;  ///< of the communicator that grew
    int new_job = -1;           ///< that this member has met the others in; -1: none
    bool has_grown = false;
    TimePoint agreed_at = kNever;  ///< the vote's end
    Status why{};                  ///< why it failed, where it did
    Duration took{};
  };

  int number = 0;
  bool is_newcomer = false;
  int key = 0;
  std::unique_ptr<Program> program{};
  std::unique_ptr<Store> store{};
  std::vector<Place> places{};
  std::size_t current = 0;  ///< of its places
  std::vector<Growth> growths{};
  bool has_begun = false, has_begun_growth = false;
  std::uint64_t growth_began = 0;  ///< so often its program had waited then
  bool has_enough = false;         ///< with it the communicator is as large as is wanted
  bool is_scheduled = false, is_slow = false;
  bool is_dead = false, is_missed = false;
  bool has_slept = false;  ///< for longer than others wait for it to meet them
  TimePoint runs_again{};  ///< kNever: is stopped for ever

  bool is_stopped() const { return runs_again == kNever; }
  bool is_judged() const { return !is_dead && !is_stopped(); }
};

/// Others may wait in vain for who is not run for so long: until it is run again, and has done what
/// it does to meet them.
inline bool is_too_long(const Case& c, Duration not_run) {
  return not_run > c.growing.timeout - std::chrono::milliseconds(100);
}

using Jobs = std::vector<std::unique_ptr<SimulatedJob>>;
using Processes = std::vector<std::unique_ptr<GrowingProcess>>;

/// What is wrong once all is over; empty: nothing. `listed`: what the places of the list hold.
std::string judge_growth(const Case& c, const Jobs& jobs, const Processes& processes,
                         const Partition& partition, const std::vector<std::string>& listed);

}  // namespace unisono::sim
