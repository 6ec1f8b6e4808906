// The guard: a small process in a session of its own that outlives a killed launcher just long
// enough to kill every rank's process group. It learns of the launcher's death from a pipe that
// only the launcher holds, so there is no file to clean up and nothing to poll.
// Used by the launcher's single thread, and by a rank between fork and exec.
#pragma once

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace unisono::run {

class Guard {
 public:
  /// Forks the guard. Call early: it inherits what is open, and closes it.
  static Result<Guard> start();

  /// Puts a group under the guard. A rank calls this itself before exec: until then it holds the
  /// pipe too, so the guard cannot see the launcher die before it knows the group.
  void watch(pid_t group) const;
  /// In a rank: it is watched now, and an exec that hangs is not to look like a living launcher.
  void leave() const;
  /// The group is empty and its number may be used by others.
  void forget(pid_t group) const;

  pid_t pid() const { return pid_; }
  /// Closes the pipe: the guard kills what it still watches, ends, and is reaped.
  void finish();

 private:
  Guard(pid_t pid, UniqueFd pipe) : pid_(pid), pipe_(std::move(pipe)) {}

  pid_t pid_;
  UniqueFd pipe_;
};

}  // namespace unisono::run
