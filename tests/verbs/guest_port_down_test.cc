// Cables that are pulled in the middle of a job: over another port it goes on, with right results
// and a warning; without one every rank gets an error that names rank, port and event, soon.
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "tests/support/log_guard.h"
#include "tests/support/rank_job.h"
#include "tests/verbs/guest_ports.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr std::size_t kCounts[]{5, 3000, 200'000};

// How far the slowest rank of a job is.
class Rounds {
 public:
  void done(Rank rank) { ++rounds_[rank]; }
  int slowest() const {
    return std::min({rounds_[0].load(), rounds_[1].load(), rounds_[2].load()});
  }

 private:
  std::atomic<int> rounds_[kRanks]{};
};

bool reaches(const std::function<bool()>& condition) {
  const TimePoint deadline = Clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Runs all-reduces until `enough` is true on all ranks: they decide it together.
void add_up_until(Communicator& comm, const std::atomic<bool>& enough, Rounds& rounds) {
  for (int going = 1; going > 0;) {
    for (const std::size_t count : kCounts) add_up(comm, count);
    rounds.done(comm.rank());
    std::vector<int> stops{enough ? 0 : 1};
    comm.all_reduce(stops, ops::min);
    going = stops[0];
  }
}

// Pulls each of `devices` in turn, between rounds that are all under way.
void pull_in_turn(const std::vector<std::string>& devices, const Rounds& rounds) {
  for (const std::string& device : devices) {
    int begin = rounds.slowest();
    const auto more = [&] { return rounds.slowest() >= begin + 3; };
    EXPECT_TRUE(reaches(more)) << "before " << device << " was pulled";
    {
      const Unplugged unplugged({device});
      begin = rounds.slowest();
      EXPECT_TRUE(reaches(more)) << "while " << device << " was pulled";
    }
    begin = rounds.slowest();
    EXPECT_TRUE(reaches(more)) << "after " << device << " came back";
  }
}

TEST(PortThatGoesDown, IsLeftForAnotherAndTheResultsAreRight) {
  if (guest_devices().size() < 2) GTEST_SKIP() << "one device here";
  const Environment environment{{"UNISONO_VERBS_DEVICES", "rxe0,rxe1"}};
  LogGuard log;
  log.expect("rxe1 port 1");
  Rounds rounds;
  std::atomic<bool> enough{false};
  std::thread cable([&] {
    pull_in_turn({"rxe1"}, rounds);
    enough = true;
  });
  run_ranks(kRanks, "verbs", [&](Communicator& comm) { add_up_until(comm, enough, rounds); });
  cable.join();
  EXPECT_THAT(log.lines(), Contains(AllOf(HasSubstr("rank "), HasSubstr("rxe1 port 1"))));
}

TEST(PortsThatGoDown, InTurnAreUsedAgainOnceTheyAreBack) {
  if (guest_devices().size() < 2) GTEST_SKIP() << "one device here";
  const Environment environment{{"UNISONO_VERBS_DEVICES", "rxe0,rxe1"}};
  LogGuard log;
  log.expect(" port 1");
  Rounds rounds;
  std::atomic<bool> enough{false};
  std::thread cable([&] {
    pull_in_turn({"rxe1", "rxe0", "rxe1"}, rounds);
    enough = true;
  });
  run_ranks(kRanks, "verbs", [&](Communicator& comm) { add_up_until(comm, enough, rounds); });
  cable.join();
}

struct RankError {
  ErrorCode code = ErrorCode::kOk;
  Rank rank = -1;
  std::string message;
};

TEST(PortThatGoesDown, WithoutAnotherIsAnErrorOnEveryRankThatNamesIt) {
  if (guest_devices().empty()) GTEST_SKIP() << "no device here";
  const Environment environment{{"UNISONO_VERBS_DEVICES", "rxe0"}};
  LogGuard log;
  log.expect("rxe0 port 1");
  Rounds rounds;
  RankError errors[kRanks];
  std::atomic<int> ended{0};
  TimePoint pulled;
  std::thread cable([&] {
    EXPECT_TRUE(reaches([&] { return rounds.slowest() >= 3; }));
    pulled = Clock::now();
    const Unplugged unplugged({"rxe0"});
    EXPECT_TRUE(reaches([&] { return ended == kRanks; }));
  });
  const std::atomic<bool> never{false};
  error_of_job(kRanks, "verbs", [&](Communicator& comm) {
    RankError& mine = errors[comm.rank()];
    try {
      add_up_until(comm, never, rounds);
    } catch (const Error& error) {
      mine = {error.code(), error.rank(), error.what()};
    }
    ++ended;
  });
  cable.join();
  for (Rank rank = 0; rank < kRanks; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank) + ": " + errors[rank].message);
    // Not kTimeout, which would come after the deadline of the call.
    EXPECT_EQ(errors[rank].code, ErrorCode::kRankFailed);
    EXPECT_GE(errors[rank].rank, 0);
    EXPECT_THAT(errors[rank].message,
                AllOf(HasSubstr("rank "), HasSubstr("rxe0 port 1"),
                      AnyOf(HasSubstr("PORT_ERR ("), HasSubstr("RETRY_EXC_ERR ("))));
  }
}

}  // namespace
}  // namespace unisono::test
