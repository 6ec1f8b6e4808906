#include "tests/support/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace unisono::test {
namespace {

char running_test[256];

extern "C" void on_alarm(int) {
  constexpr char kWords[] = "watchdog: this test did not end in time: ";
  // Nothing can be done about a failing write here.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kWords, sizeof kWords - 1);
  written = write(STDERR_FILENO, running_test, std::strlen(running_test));
  written = write(STDERR_FILENO, "\n", 1);
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
  testing::UnitTest::GetInstance()->listeners().Append(new Watchdog(seconds));
}

}  // namespace unisono::test
