// Runs the built `unisono run` as a user would and collects what it prints. Everything waits for a
// condition with a deadline; nothing waits for time to pass.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tests/support/eventually.h"

namespace unisono::run {

inline constexpr auto kPatience = std::chrono::seconds(20);

using test::eventually;

#ifdef UNISONO_REJOINING_RANK
/// Of a script, whose ranks are members of a job from then on.
inline const std::string kMeet = "ONLY_MEETS=1 " UNISONO_REJOINING_RANK "; ";
#endif

/// True while the process exists and is not a zombie.
bool is_alive(pid_t pid);
/// True while the process is stopped by a signal.
bool is_stopped(pid_t pid);
/// Those that have not been waited for.
std::vector<pid_t> children_of(pid_t pid);

struct LaunchOptions {
  std::vector<std::string> environment;  ///< added, "NAME=value"
  std::string stdin_text;
  /// Standard output and error arrive in one stream, in the order they were written.
  bool merge_stderr = false;
  /// On a terminal of its own (stdin, stdout and stderr).
  bool terminal = false;
};

class Launcher {
 public:
  using Options = LaunchOptions;
  /// Starts `unisono run ARGUMENTS...`.
  explicit Launcher(const std::vector<std::string>& arguments, Options options = {});
  /// Kills the launcher if it still runs; its guard kills the rest.
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Types on the terminal.
  void type(const std::string& text) const;

  /// Reads until standard output contains `text`; false at its end or deadline.
  bool prints(const std::string& text);
  /// Same for standard error.
  bool complains(const std::string& text);
  /// What waits in the pipe of its standard output.
  int unread_output_bytes() const;
  /// Nobody reads its standard output any more.
  void close_output() { out_.reset(); }

  /// Reads to the end and returns the exit status, or 1000 + the signal that ended the launcher,
  /// or -1 when it did not end in time.
  int wait();
  /// The same, but nobody reads what it prints meanwhile.
  int wait_unread();

  const std::string& out() const { return out_text_; }
  const std::string& err() const { return err_text_; }
  /// The lines of out(), sorted, without carriage returns.
  std::vector<std::string> sorted_lines() const;

 private:
  /// Reads what has come, waiting at most 50 ms; false when both streams have ended.
  bool read_some();
  int wait_while(const std::function<void()>& meanwhile);

  pid_t pid_ = -1;
  std::optional<int> status_;
  UniqueFd out_;
  UniqueFd err_;
  UniqueFd terminal_;
  std::string out_text_;
  std::string err_text_;
};

/// Its children that are ranks, by the RANK in their environment.
std::map<int, pid_t> ranks_of(const Launcher& launcher);

/// The arguments to run a shell script as the command, after `flags`.
std::vector<std::string> shell(std::vector<std::string> flags, const std::string& script);

/// The number that follows `name` in `text`, as in "pid=123"; 0 when it is not there.
pid_t number_after(const std::string& text, const std::string& name);

}  // namespace unisono::run
