// A rank between the launcher's fork and its command.
#include "tools/run/process_group.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "launcher.h"

namespace unisono::run {
namespace {

// As an exec from a file server that does not answer.
[[noreturn]] void launch_what_hangs(int told) {
  Signals signals;
  const auto guard = Guard::start();
  if (!signals.start() || !guard) ::_exit(1);
  const std::vector<std::string> command{"true"}, environment;
  const auto hang = [told] {
    const pid_t own = ::getpid();
    if (::write(told, &own, sizeof own) != sizeof own) ::_exit(1);
    for (;;) ::pause();
  };
  start_group({command, environment, -1, hang}, *guard, signals);
  ::_exit(0);
}

TEST(ProcessGroup, ARankWhoseCommandHangsDoesNotOutliveAKilledLauncher) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const pid_t launcher = ::fork();
  ASSERT_GE(launcher, 0);
  if (launcher == 0) launch_what_hangs(pipe[1]);
  ::close(pipe[1]);
  pid_t rank = 0;
  ASSERT_EQ(::read(pipe[0], &rank, sizeof rank), ssize_t{sizeof rank});
  ::close(pipe[0]);
  ASSERT_TRUE(is_alive(rank));
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return !is_alive(rank); }));
  ::kill(rank, SIGKILL);
}

}  // namespace
}  // namespace unisono::run
