#include "tools/run/guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>

namespace unisono::run {
namespace {

// A record is the group's number, negative to forget it. Four bytes enter a pipe in one piece.
using Record = std::int32_t;

// Where the guard keeps its end of the pipe.
constexpr int kPipe = 3;

void write_record(int pipe, Record record) {
  // A guard that was killed cannot be told anything; the launcher reports its end.
  while (::write(pipe, &record, sizeof(record)) < 0 && errno == EINTR) {
  }
}

// Holding the launcher's streams or folder would keep a reader waiting or a file system busy.
void leave_everything_but(int pipe) {
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) ::dup2(null, fd);
  ::dup2(pipe, kPipe);
  // Linux before 5.9 does not have the call.
  if (::close_range(kPipe + 1, ~0U, 0) != 0) {
    for (int fd = kPipe + 1; fd < 1024; ++fd) ::close(fd);
  }
  [[maybe_unused]] const int moved = ::chdir("/");
}

[[noreturn]] void guard_main(int pipe) {
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "unisono-guard");
  leave_everything_but(pipe);
  std::set<Record> groups;
  Record record = 0;
  while (true) {
    const ssize_t bytes = ::read(kPipe, &record, sizeof(record));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes != sizeof(record)) break;
    if (record > 1) groups.insert(record);
    if (record < -1) groups.erase(-record);
  }
  for (const Record group : groups) ::kill(-group, SIGKILL);
  ::_exit(0);
}

}  // namespace

Result<Guard> Guard::start() {
  int ends[2];
  const auto failed = [] {
    return Status(ErrorCode::kSystem,
                  fmt::format("cannot start the guard process: {}", std::strerror(errno)));
  };
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed();
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return failed();
  if (pid == 0) {
    writer.reset();
    guard_main(reader.get());
  }
  return Guard(pid, std::move(writer));
}

void Guard::watch(pid_t group) const { write_record(pipe_.get(), group); }
void Guard::forget(pid_t group) const { write_record(pipe_.get(), -group); }

void Guard::leave() const { ::close(pipe_.get()); }

void Guard::finish() {
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace unisono::run
