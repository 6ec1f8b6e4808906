#include "tools/run/signals.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

namespace unisono::run {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Status Signals::start() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  ::sigaddset(&wanted, SIGCHLD);
  for (const int signal : kForwardedSignals) {
    if (!is_ignored(signal)) ::sigaddset(&wanted, signal);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  // An inherited SIG_IGN for SIGCHLD would reap ranks behind our back.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  const bool done = ::sigprocmask(SIG_BLOCK, &wanted, &mask_before_) == 0 &&
                    ::sigaction(SIGPIPE, &ignore, &pipe_before_) == 0 &&
                    ::sigaction(SIGCHLD, &standard, nullptr) == 0;
  if (done) fd_.reset(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (done && fd_) return Status();
  return Status(ErrorCode::kSystem,
                fmt::format("cannot take signals as events: {}", ::strerror(errno)));
}

int Signals::next() const {
  signalfd_siginfo info{};
  const ssize_t bytes = ::read(fd_.get(), &info, sizeof(info));
  return bytes == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

int Signals::pending_end() const {
  sigset_t pending;
  if (::sigpending(&pending) != 0) return 0;
  for (const int signal : kForwardedSignals) {
    if (tells_to_end(signal) && ::sigismember(&pending, signal) == 1) return signal;
  }
  return 0;
}

void Signals::restore() const {
  ::sigaction(SIGPIPE, &pipe_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

}  // namespace unisono::run
