// Standard input for rank 0. A file or pipe is handed over as it is. A terminal cannot be: rank 0
// leads its own process group, and the kernel stops a background group that reads the terminal.
// So the launcher reads the terminal and passes it on through a pipe. One thread.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace unisono::run {

class StdinRelay {
 public:
  Status start();

  /// What becomes rank 0's standard input. Call rank_started() when rank 0 has it.
  int rank_fd() const { return relayed_ ? rank_end_.get() : 0; }
  void rank_started() { rank_end_.reset(); }

  /// The terminal is to be polled for input. False while the launcher is in the background, where
  /// reading would stop it.
  bool wants_input() const;
  /// True while a terminal is relayed at all: the foreground may change without an event.
  bool active() const { return relayed_ && static_cast<bool>(pipe_); }
  /// There is input for the pipe: poll it for POLLOUT.
  bool wants_output() const { return active() && !pending_.empty(); }
  int pipe_fd() const { return pipe_.get(); }

  void read_some();
  void write_some();

 private:
  bool relayed_ = false;
  std::string pending_;
  UniqueFd pipe_;
  UniqueFd rank_end_;
};

}  // namespace unisono::run
