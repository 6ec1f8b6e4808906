// Starts one rank as the leader of a process group of its own, so that a signal reaches it and all
// it has started, but for what has gone into another group. Used by the launcher's single thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/unique_fd.h"
#include "tools/run/guard.h"
#include "tools/run/signals.h"

namespace unisono::run {

/// After SIGKILL only a process stuck in the kernel is left; nobody gains from waiting longer.
inline constexpr std::chrono::seconds kKillTime{5};

struct StartRequest {
  const std::vector<std::string>& command;
  const std::vector<std::string>& environment;
  int stdin_fd = -1;  ///< becomes the rank's standard input; -1: /dev/null
  /// Runs in the new process just before exec: binding, limits. May be empty.
  std::function<void()> before_exec;
};

struct ProcessGroup {
  pid_t leader = 0;  ///< also the group's number
  UniqueFd out;      ///< non-blocking read ends of what the rank writes
  UniqueFd err;
};

struct StartFailure {
  int exit_status = 126;  ///< 127: no such command; 126: it cannot be run
  std::string message;
};

/// Returns when the command runs (exec has succeeded) or has turned out not to.
std::variant<ProcessGroup, StartFailure> start_group(const StartRequest& request,
                                                     const Guard& guard, const Signals& signals);

/// "was ended by SIGKILL", "exited with status 3": of what waitpid() tells.
std::string how_it_ended(int wait_status);
/// As a shell has it: 128 + the number of a signal.
int exit_status_of(int wait_status);

/// False when nothing is left in the group. Signal 0 only asks.
bool signal_group(pid_t group, int signal);

}  // namespace unisono::run
