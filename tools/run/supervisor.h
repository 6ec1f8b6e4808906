// Starts the ranks of this node and watches them to the end: passes output and signals on, and
// does with them what a JobControl decides: when a rank fails it starts it again or gives the
// others time to report, then ends them. One thread, one poll loop.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "tools/run/job_control.h"
#include "tools/run/rank_records.h"

namespace unisono::run {

struct RankSpec {
  int rank = 0;
  int local_rank = 0;
  std::vector<std::string> environment;
  std::vector<int> cores;  ///< handed to JobSpec::prepare
};

struct JobSpec {
  std::vector<std::string> command;
  std::size_t local_size = 1;
  int world_size = 1;
  std::string place;        ///< of its ranks, for people: " on node 1"; empty where all are here
  bool reads_input = true;  ///< rank 0, which reads the standard input, is started here
  bool prefix = true;
  bool keep_going = false;
  /// The ranks of this node as they are started there, each to rejoin the others or all anew.
  std::function<std::vector<RankSpec>(const MeetingPoint& meeting, bool rejoins)> ranks_at;
  Duration report_time{};  ///< from the first failure to SIGTERM
  Duration grace_time{};   ///< from SIGTERM to SIGKILL
  /// Called in the new process of each rank just before exec: binding, limits.
  void (*prepare)(const void* context, const std::vector<int>& cores) = nullptr;
  const void* prepare_context = nullptr;
  RankRecords* records = nullptr;  ///< null: the ranks' own
};

/// Runs the job to its end and returns the exit status of the command: 0, or that of the rank that
/// failed first (128 + signal for one that a signal ended). No process of the job is left, nor
/// one of the launcher's own. An error means that nothing was started.
Result<int> supervise(const JobSpec& job, JobControl& control);

}  // namespace unisono::run
