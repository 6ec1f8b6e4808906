#include "tools/run/stdin_relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/common/terminal.h"

namespace unisono::run {

Status StdinRelay::start() {
  if (!tools::is_terminal(STDIN_FILENO)) return Status();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return Status(ErrorCode::kSystem,
                  fmt::format("no pipe for standard input: {}", std::strerror(errno)));
  }
  rank_end_.reset(ends[0]);
  pipe_.reset(ends[1]);
  ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  relayed_ = true;
  return Status();
}

// A terminal that is not this session's, or is gone, has no foreground: it can always be read.
bool StdinRelay::wants_input() const {
  if (!active() || !pending_.empty()) return false;
  const pid_t foreground = ::tcgetpgrp(STDIN_FILENO);
  return foreground < 0 || foreground == ::getpgrp();
}

void StdinRelay::read_some() {
  char buffer[4096];
  const ssize_t bytes = ::read(STDIN_FILENO, buffer, sizeof(buffer));
  if (bytes > 0) {
    pending_.assign(buffer, static_cast<std::size_t>(bytes));
    write_some();
  } else if (bytes == 0 || (errno != EINTR && errno != EAGAIN)) {
    pipe_.reset();  // Ctrl-D, or the terminal is gone: rank 0 sees the end of its input.
  }
}

void StdinRelay::write_some() {
  const ssize_t bytes = ::write(pipe_.get(), pending_.data(), pending_.size());
  if (bytes > 0) {
    pending_.erase(0, static_cast<std::size_t>(bytes));
  } else if (bytes < 0 && errno != EINTR && errno != EAGAIN) {
    pipe_.reset();  // Rank 0 has closed its input or ended.
  }
}

}  // namespace unisono::run
