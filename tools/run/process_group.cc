#include "tools/run/process_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace unisono::run {
namespace {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

bool open_pipe(Pipe* pipe) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  pipe->read.reset(ends[0]);
  pipe->write.reset(ends[1]);
  return true;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// In the new process. Returns only by ending it; `failure` tells the launcher why exec failed.
[[noreturn]] void become_rank(const StartRequest& request, const Guard& guard,
                              const Signals& signals, int out, int err, int failure) {
  ::setpgid(0, 0);
  guard.watch(::getpid());
  guard.leave();
  const int null = request.stdin_fd < 0 ? ::open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
  const int in = request.stdin_fd < 0 ? null : request.stdin_fd;
  // dup2 onto itself would leave close-on-exec set; only stdin can already be in its place.
  if (in != STDIN_FILENO) ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (request.before_exec) request.before_exec();
  const std::vector<char*> arguments = pointers_to(request.command);
  const std::vector<char*> environment = pointers_to(request.environment);
  signals.restore();
  ::execvpe(arguments[0], arguments.data(), environment.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(failure, &error, sizeof(error));
  ::_exit(127);
}

StartFailure describe(const std::string& command, int error) {
  StartFailure failure;
  const bool missing = error == ENOENT || error == ENOTDIR;
  failure.exit_status = missing ? 127 : 126;
  if (missing && command.find('/') == std::string::npos) {
    const bool is_here = ::access(command.c_str(), F_OK) == 0;
    failure.message = fmt::format("command not found: {} (not in PATH{})", command,
                                  is_here ? "; the file here is ./" + command : "");
  } else if (missing) {
    failure.message = fmt::format(
        "command not found: {} (no such file, or its interpreter is "
        "missing)",
        command);
  } else {
    failure.message = fmt::format("cannot run {}: {}", command, std::strerror(error));
  }
  return failure;
}

// The pipe closes at exec; before that it brings the errno of a failed exec. An exec may take as
// long as a dead file server wants, and a signal to end must not wait for it. Returns 0, an errno,
// or minus the signal.
int wait_for_exec(int pipe, const Signals& signals) {
  constexpr int kLookMs = 50;
  pollfd polled{pipe, POLLIN, 0};
  while (::poll(&polled, 1, kLookMs) != 1) {
    if (const int signal = signals.pending_end(); signal != 0) return -signal;
  }
  int error = 0;
  ssize_t bytes = 0;
  do {
    bytes = ::read(pipe, &error, sizeof(error));
  } while (bytes < 0 && errno == EINTR);
  return bytes == sizeof(error) ? error : 0;
}

}  // namespace

std::variant<ProcessGroup, StartFailure> start_group(const StartRequest& request,
                                                     const Guard& guard, const Signals& signals) {
  Pipe out;
  Pipe err;
  Pipe failure;
  if (!open_pipe(&out) || !open_pipe(&err) || !open_pipe(&failure)) {
    return StartFailure{126, fmt::format("no pipe for a rank: {}; raise the limit of open files "
                                         "(ulimit -n)",
                                         std::strerror(errno))};
  }
  const pid_t leader = ::fork();
  if (leader < 0) {
    return StartFailure{126, fmt::format("cannot start a process: {}; see ulimit -u and the "
                                         "container's limit of processes",
                                         std::strerror(errno))};
  }
  if (leader == 0) {
    become_rank(request, guard, signals, out.write.get(), err.write.get(), failure.write.get());
  }
  failure.write.reset();
  const int error = wait_for_exec(failure.read.get(), signals);
  if (error < 0) {
    // Not waited for: it may not even die before the file server answers. The guard knows it.
    ::kill(leader, SIGKILL);
    return StartFailure{128 - error, fmt::format("{} came while {} was still being started",
                                                 signal_name(-error), request.command.front())};
  }
  if (error > 0) {
    while (::waitpid(leader, nullptr, 0) < 0 && errno == EINTR) {
    }
    guard.forget(leader);
    return describe(request.command.front(), error);
  }
  ::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  return ProcessGroup{leader, std::move(out.read), std::move(err.read)};
}

std::string how_it_ended(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return fmt::format("was ended by {}{}", signal_name(WTERMSIG(wait_status)),
                       WCOREDUMP(wait_status) ? " (core dumped)" : "");
  }
  return fmt::format("exited with status {}", WEXITSTATUS(wait_status));
}

int exit_status_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

bool signal_group(pid_t group, int signal) { return ::kill(-group, signal) == 0 || errno == EPERM; }

}  // namespace unisono::run
