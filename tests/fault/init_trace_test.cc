// A rank that dies or is stopped at any system call of init(): the others hear of it, whatever they
// are waiting for then. Its system calls are counted by ptrace(2): first all of them, in a job that
// nothing happens to, then in each further job up to one of them. Most of them are made before the
// ranks have met, so the later ones are tried more often.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <list>
#include <optional>
#include <string>

#include "tests/fault/init_job.h"
#include "tests/fault/role_report.h"
#include "tests/support/watchdog.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

constexpr int kNotTraced = 77;

// Stops itself before and after init(), and gives its parent leave to count what is between.
int stop_around_init() {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return kNotTraced;
  raise(SIGSTOP);
  try {
    Communicator comm = init();
    raise(SIGSTOP);
    for (;;) comm.barrier();
  } catch (const Error& error) {
    return report(error);
  }
}

const RoleEntry stop_around_init_entry("stop_around_init", &stop_around_init);

constexpr int kSystemCallStop = SIGTRAP | 0x80;

// The signal that has stopped it, or nothing where it has ended, which is for whoever started it.
std::optional<int> await_stop(pid_t traced) {
  siginfo_t seen{};
  if (waitid(P_PID, static_cast<id_t>(traced), &seen, WEXITED | WSTOPPED | WNOWAIT) != 0) return {};
  if (seen.si_code != CLD_TRAPPED && seen.si_code != CLD_STOPPED) return {};
  int status = 0;
  if (waitpid(traced, &status, 0) != traced || !WIFSTOPPED(status)) return {};
  return WSTOPSIG(status);
}

bool go_on(pid_t traced, int signal) {
  return ptrace(PTRACE_SYSCALL, traced, nullptr, static_cast<long>(signal)) == 0;
}

/// Lets one that has stopped itself before init() go on to where it has entered or left so many
/// system calls, or to the end of init(): how many there were. Nothing where it may not be traced,
/// or has ended.
std::optional<int> trace(pid_t traced, int calls_max) {
  std::optional<int> signal = await_stop(traced);
  if (signal != SIGSTOP) return {};
  ptrace(PTRACE_SETOPTIONS, traced, nullptr,
         static_cast<long>(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
  int calls = 0, passed_on = 0;
  while (calls < calls_max && go_on(traced, passed_on)) {
    signal = await_stop(traced);
    if (!signal) return {};
    if (signal == SIGSTOP) break;
    passed_on = signal == kSystemCallStop ? 0 : *signal;
    if (signal == kSystemCallStop) ++calls;
  }
  return calls;
}

// A stopped one is stopped for good.
void end(pid_t traced, int signal) {
  kill(traced, signal);
  if (signal == SIGSTOP) ptrace(PTRACE_DETACH, traced, nullptr, nullptr);
}

class InitTrace : public testing::Test {
 protected:
  static int samples() { return is_full_run() ? 50 : is_short_run() ? 3 : 7; }
  // The first, the last, and those between.
  static int place_of(int sample, int calls) {
    const double left = 1 - static_cast<double>(sample) / (samples() - 1);
    return static_cast<int>((1 - left * left) * calls);
  }

  static std::optional<int> count_calls(const std::string& transport, Rank victim) {
    constexpr int kMost = 100'000;
    const InitJob job(transport, victim, "stop_around_init");
    const auto calls = trace(job.victim(), kMost);
    EXPECT_TRUE(!calls || *calls < kMost) << "init() does not end";
    return calls;
  }

  void end_at(const std::string& transport, Rank victim, int signal, int calls) {
    InitJob& job = jobs_.emplace_back(transport, victim, "stop_around_init");
    job.note((signal == SIGSTOP ? "stopped after " : "killed after ") + std::to_string(calls));
    EXPECT_TRUE(trace(job.victim(), calls)) << "it has ended by itself";
    end(job.victim(), signal);
  }

  // A few at a time: whoever has no processor for long is taken for silent.
  void check_jobs(std::size_t most) {
    if (jobs_.size() < most) return;
    for (InitJob& job : jobs_) job.expect_victim_to_be_named(false);
    jobs_.clear();
  }

  std::list<InitJob> jobs_;
};

TEST_F(InitTrace, WhoEndsOrStopsAnywhereIsNamed) {
  for (const char* transport : {"auto", "tcp"}) {
    for (const Rank victim : kInitVictims) {
      const std::optional<int> calls = count_calls(transport, victim);
      if (!calls) GTEST_SKIP() << "SKIPPED: processes may not be traced here (ptrace)";
      for (int i = 0; i < samples(); ++i) {
        for (const int signal : {SIGKILL, SIGSTOP}) {
          end_at(transport, victim, signal, place_of(i, *calls));
          check_jobs(8);
        }
      }
    }
  }
  check_jobs(0);
}

}  // namespace
}  // namespace unisono::test
