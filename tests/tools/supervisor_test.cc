// A supervisor, and a JobControl that is the test.
#include "tools/run/supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>

namespace unisono::run {
namespace {

using Kind = Event::Kind;

// Starts all, and again whoever fails, until it is told that the launcher is to end.
class StartsAgain final : public JobControl {
 public:
  void tell(const Event& event) override {
    told_.push_back(event.kind);
    if (event.kind == Kind::kFailed) {
      orders_.push_back({.kind = Order::Kind::kStart, .rank = event.rank});
    }
    if (event.kind == Kind::kEnding) orders_.push_back({.kind = Order::Kind::kOver});
  }
  std::optional<Order> next_order() override {
    if (orders_.empty()) return std::nullopt;
    Order next = std::move(orders_.front());
    orders_.pop_front();
    return next;
  }
  void list_awaited(std::vector<pollfd>*) const override {}
  TimePoint next_due() const override { return kNever; }
  void serve(std::span<const pollfd>) override {}

  const std::vector<Kind>& told() const { return told_; }

 private:
  std::deque<Order> orders_{{.kind = Order::Kind::kStartAll}};
  std::vector<Kind> told_;
};

// As an exec from a file server that does not answer, during which the launcher is told to end.
void hang_where_it_rejoins(const void* rejoins, const std::vector<int>&) {
  if (!*static_cast<const bool*>(rejoins)) return;
  ::kill(::getppid(), SIGTERM);
  for (;;) ::pause();
}

// The exit status of the launcher, and what it has told, as bytes.
int supervise_what_hangs(int told) {
  bool rejoins = false;
  const JobSpec job{.command = {"false"},
                    .reads_input = false,
                    .ranks_at =
                        [&](const MeetingPoint&, bool again) {
                          rejoins = again;
                          return std::vector<RankSpec>{{.environment = {"PATH=/usr/bin:/bin"}}};
                        },
                    .prepare = hang_where_it_rejoins,
                    .prepare_context = &rejoins};
  StartsAgain control;
  const Result<int> status = supervise(job, control);
  const std::vector<Kind>& kinds = control.told();
  const bool is_told = ::write(told, kinds.data(), kinds.size()) > 0;
  return status && is_told ? *status : -1;
}

// The others' ranks may go on without it.
TEST(Supervisor, ThatIsToldToEndWhileItStartsARankAgainFailsNoJob) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const pid_t launcher = ::fork();
  ASSERT_GE(launcher, 0);
  if (launcher == 0) ::_exit(supervise_what_hangs(pipe[1]));
  ::close(pipe[1]);
  Kind kinds[8];
  const ssize_t count = std::max<ssize_t>(::read(pipe[0], kinds, sizeof kinds), 0);
  ::close(pipe[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(launcher, &status, 0), launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM) << status;
  EXPECT_EQ(std::vector<Kind>(kinds, kinds + count),
            (std::vector{Kind::kFailed, Kind::kExited, Kind::kEnding}));
}

}  // namespace
}  // namespace unisono::run
