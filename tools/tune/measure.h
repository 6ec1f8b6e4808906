// Runs tasks between local ranks, each a process of its own. One thread; the caller must not be
// part of a job, because processes are forked.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "tools/tune/task.h"

namespace unisono::tune {

struct MeasureOptions {
  int ranks = 2;
  double seconds_per_task = 0.02;
  /// Called in rank 0's process before each size: how many tasks are done, and what comes.
  std::function<void(std::size_t, std::string_view)> progress;
  /// Called in rank 0's process when it has no more to say.
  std::function<void()> progress_ends;
};

/// Fills in the seconds of one call, of the slowest rank. An error names the transports that
/// failed, with the rank; the tasks of the others have been measured.
Status measure(std::span<Task> tasks, const MeasureOptions& options);

}  // namespace unisono::tune
