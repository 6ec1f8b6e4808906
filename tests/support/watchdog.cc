#include "tests/support/watchdog.h"

#include <execinfo.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#if UNISONO_ADDRESS_SANITIZER || UNISONO_THREAD_SANITIZER
// Of the sanitizers' common interface: the frame's function and line.
extern "C" void __sanitizer_symbolize_pc(void* place, const char* format, char* text,
                                         std::size_t bytes);
#endif

namespace unisono::test {
namespace {

char running_test[256];
std::atomic<int> stacks_printed{0};

// Nothing can be done about a failing write here.
void print(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void print_own_stack() {
  std::array<void*, 24> frames;
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
#if UNISONO_ADDRESS_SANITIZER || UNISONO_THREAD_SANITIZER
  for (int i = 0; i < count; ++i) {
    char text[512] = "";
    __sanitizer_symbolize_pc(frames[static_cast<std::size_t>(i)], "    %f %s:%l\n", text, 511);
    print(text);
  }
#else
  backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
#endif
}

extern "C" void on_stack_wanted(int) {
  const int before = errno;
  print_own_stack();
  stacks_printed.fetch_add(1);
  errno = before;
}

void print_fact(long thread, const char* fact) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%ld/%s", thread, fact);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  char text[128] = "";
  const ssize_t bytes = read(file, text, sizeof text - 1);
  if (bytes > 0) print(path), print(": "), print(text);
  close(file);
}

// A thread of the library's takes no signal: of it the system call that it is in must do.
void print_stack(long thread) {
  print_fact(thread, "comm");
  if (thread == syscall(SYS_gettid)) return print_own_stack();
  const int before = stacks_printed.load();
  if (syscall(SYS_tgkill, getpid(), thread, SIGURG) != 0) return;
  constexpr timespec kBetweenLooks{.tv_sec = 0, .tv_nsec = 10'000'000};
  for (int look = 0; look < 100 && stacks_printed.load() == before; ++look) {
    nanosleep(&kBetweenLooks, nullptr);
  }
  if (stacks_printed.load() == before) print_fact(thread, "syscall");
}

// There may be no debugger where a test hangs. opendir() would ask for memory, whose lock the
// thread may have that the alarm has interrupted.
void print_stacks() {
  std::signal(SIGURG, &on_stack_wanted);
  const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(8) char entries[4096];
  for (long bytes = 0; (bytes = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
    unsigned short length = 0;
    for (long at = 0; at < bytes; at += length) {
      const char* const entry = entries + at;  // a linux_dirent64
      std::memcpy(&length, entry + 16, sizeof length);
      const char* const name = entry + 19;
      if (std::isdigit(static_cast<unsigned char>(*name)) != 0) print_stack(std::atol(name));
    }
  }
  close(folder);
}

extern "C" void on_alarm(int) {
  print("watchdog: this test did not end in time: ");
  print(running_test);
  print("\n");
  std::signal(SIGALRM, SIG_DFL);  // should this hang, too
  alarm(60);
  print_stacks();
  std::abort();
}

class Watchdog final : public testing::EmptyTestEventListener {
 public:
  explicit Watchdog(int seconds) : seconds_(static_cast<unsigned>(seconds)) {}

 private:
  void OnTestStart(const testing::TestInfo& info) override {
    std::strncpy(running_test, info.test_suite_name(), 127);
    std::strncat(running_test, ".", 2);
    std::strncat(running_test, info.name(), 120);
    alarm(seconds_);
  }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }

  unsigned seconds_;
};

}  // namespace

void guard_each_test() {
  const int seconds = 120 * (is_sanitized() ? 2 : 1) * (is_full_run() ? 5 : 1);
  std::signal(SIGALRM, &on_alarm);
  void* here = nullptr;
  backtrace(&here, 1);  // loads what it needs, which a signal's handler must not
  testing::UnitTest::GetInstance()->listeners().Append(new Watchdog(seconds));
}

}  // namespace unisono::test
