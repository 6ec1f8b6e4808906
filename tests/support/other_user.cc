#include "tests/support/other_user.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace unisono::test {
namespace {

constexpr int kNoNamespaces = 77;

}  // namespace

pid_t as_another_user(const std::function<void()>& act) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(kAnotherUser) != 0) _exit(1);
    act();
    static_cast<void>(!write(ends[1], "x", 1));
    for (;;) pause();
  }
  close(ends[1]);
  char byte = 0;
  if (read(ends[0], &byte, 1) != 1) {
    std::fprintf(stderr, "nobody else can be had here\n");
    std::abort();
  }
  close(ends[0]);
  return child;
}

void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

bool may_make_user_namespaces() {
  const pid_t child = fork();
  if (child == 0) {
    enter_user_namespace();
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

void enter_user_namespace() {
  if (unshare(CLONE_NEWUSER) != 0) _exit(kNoNamespaces);
}

}  // namespace unisono::test
