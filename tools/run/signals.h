// The launcher's signals arrive as readable events, and ranks start with the signal state the
// launcher was started with. One object, made before the first fork; one thread.
#pragma once

#include <signal.h>

#include <array>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace unisono::run {

/// What reaches every rank when it is sent to the launcher.
inline constexpr std::array kForwardedSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/// True for those that tell a job to end, and not just something.
constexpr bool tells_to_end(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

class Signals {
 public:
  /// Blocks SIGCHLD and the forwarded signals and opens the descriptor that reports them. A
  /// signal that was ignored already (nohup, a background job's SIGINT) stays ignored. SIGPIPE is
  /// ignored: a closed output is an errno here.
  Status start();

  int fd() const { return fd_.get(); }
  /// The next pending signal, or 0.
  int next() const;
  /// A signal to end that is pending, or 0; next() will still return it.
  int pending_end() const;

  /// In a rank between fork and exec: the state from before start().
  void restore() const;

 private:
  UniqueFd fd_;
  sigset_t mask_before_{};
  struct sigaction pipe_before_ {};
};

/// "SIGTERM"; "signal 40" for those without a name.
std::string signal_name(int signal);

}  // namespace unisono::run
