// Ranks for tests of the shared memory segment and the native collectives: threads of this process
// or forked processes, each with its own SharedSegment and, unless asked not to, one Group of all.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "native/native.h"
#include "transports/shm/segment_group.h"

namespace unisono::test {

/// What the body of a rank works with. Failed checks are collected: a forked rank cannot use
/// GoogleTest's macros.
struct TestRank {
  int size = 0;
  int self = 0;
  std::shared_ptr<shm::SharedSegment> segment;
  std::unique_ptr<native::Group> group;
  std::uint32_t sequence = 0;
  AccessPath access = AccessPath::kAutomatic;  ///< of every call
  std::vector<std::string> failures;
  /// Called by finish() after each advance() that has not ended the operation.
  std::function<void(Operation&)> on_stall;

  void check(bool condition, const std::string& claim);
  /// Runs the call with a record and this rank's access, gives up after 20 s.
  Status run(const Call& call, const compute::Reduction* reduction = nullptr);
  /// Starts it only.
  Operation& start(const Call& call, const compute::Reduction* reduction = nullptr);
  /// Drives an operation to its end.
  Status finish(Operation& operation);
};

struct RanksOptions {
  AccessPath access = AccessPath::kAutomatic;
  bool single_copy = true;
  bool knows_processes = true;  ///< else the numbers of other ranks' processes are unknown
  bool pids_hold = true;        ///< else they may be those of another namespace
  // The first rank's word alone counts.
  TrialFacts known{};        ///< of earlier jobs
  Duration measuring_max{};  ///< of what is not known of the host
  int cores = 0;             ///< 0: one for each rank
  native::Levels levels{};   ///< of every rank's group
  /// Called by each rank with its number before the ranks meet. May be empty.
  std::function<void(int)> before_meeting{};
};

using RankBody = std::function<void(TestRank&)>;

/// Runs `body` on `n` ranks; returns what failed, with the rank in front. Empty: all passed.
std::vector<std::string> run_threads(int n, const RanksOptions& options, const RankBody& body);
/// The same in forked processes; call it while this process has one thread.
std::vector<std::string> run_processes(int n, const RanksOptions& options, const RankBody& body);

/// Whether the processes of run_processes() may read each other's memory by single copy. Tests that
/// need it are skipped where they may not.
bool processes_read_each_other();
inline constexpr char kUnreadable[] = "processes may not read each other's memory";

}  // namespace unisono::test
