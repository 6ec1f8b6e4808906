// Runs this test program again in a role of its own, with an environment of its own, and collects
// what it prints. Everything waits with a deadline. Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace unisono::test {

/// What a re-executed program does instead of running tests; its result is the exit status.
using Role = std::function<int()>;
/// Roles by name; filled before main() by RoleEntry.
std::map<std::string, Role>& roles();
struct RoleEntry {
  RoleEntry(const std::string& name, Role role) { roles()[name] = std::move(role); }
};
/// Runs the role that `argv` names; false when it names none.
bool run_role(int argc, char** argv, int* status);

/// Nothing that these tests wait for takes longer, unless they say so.
inline constexpr Duration kChildPatience = std::chrono::seconds(20);

class ChildProcess {
 public:
  /// `environment`: "NAME=value", on top of this process's without its UNISONO_ and launcher
  /// variables.
  ChildProcess(const std::string& role, const std::vector<std::string>& environment);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  /// Kills it if it still runs.
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  void kill(int signal) const;
  /// Reads until `text` has been printed; false at the end of the output or after `patience`.
  bool prints(const std::string& text, Duration patience = kChildPatience);
  /// Reads to the end: the exit status, 1000 + the signal that ended it, -1 when it did not end
  /// within `patience`.
  int wait(Duration patience = kChildPatience);
  const std::string& output() const { return output_; }

 private:
  bool read_some(int timeout_ms);

  pid_t pid_ = -1;
  UniqueFd pipe_;
  std::string output_;
};

/// A free port of 127.0.0.1, which the system gives to nobody else as long as this program runs.
/// Who sets SO_REUSEADDR, as all of unisono, can listen there.
int free_port();

}  // namespace unisono::test
