// Exits in order go in, and who is started again comes out.
#include "tools/run/restart_policy.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace unisono::run {
namespace {

using Decision = RestartPolicy::Decision;
using Ranks = std::vector<int>;

// A job whose ranks tell of themselves what the test says.
class Job {
 public:
  Job(int size, int restarts_max, Restart who = Restart::kFailed)
      : policy(who, restarts_max,
               {.have_met = [this](int at) { return met_.contains(at); },
                .waits =
                    [this](int rank, int at) {
                      return waiting_.contains({rank, at});
                    },
                .has_rejoined =
                    [this](int rank, int at) {
                      return rejoined_.contains({rank, at});
                    }}),
        size_(size) {
    start_all();
    meet();
  }
  Job(const Job&) = delete;

  void start_all() {
    for (int rank = 0; rank < size_; ++rank) policy.on_start(rank, false);
  }
  Decision fails(int rank, bool may_restart = true) {
    policy.on_exit(rank);
    return policy.on_failure({&rank, 1}, may_restart);
  }
  // As the launcher does with ranks that are due.
  Ranks start_due() {
    const Ranks due = policy.due_ranks([](int) { return true; });
    for (const int rank : due) policy.on_start(rank, true);
    return due;
  }
  void meet() { met_.insert(policy.restarts()); }
  void have_not_met() { met_.clear(); }
  void waits(int rank) { waiting_.insert({rank, policy.restarts()}); }
  void rejoins(int rank) { rejoined_.insert({rank, policy.restarts()}); }

  RestartPolicy policy;

 private:
  const int size_;
  std::set<int> met_;
  std::set<std::pair<int, int>> waiting_, rejoined_;
};

TEST(RestartPolicy, AFailedRankStartsBesideTheOthers) {
  Job job(3, 2);
  EXPECT_EQ(job.fails(1), Decision::kRankRestarts);
  EXPECT_EQ(job.start_due(), Ranks{1});
  EXPECT_EQ(job.start_due(), Ranks{});
  EXPECT_EQ(job.policy.restarts(), 1);
}

TEST(RestartPolicy, GivesUpOnceNoneIsLeft) {
  Job job(3, 1);
  EXPECT_EQ(job.fails(1), Decision::kRankRestarts);
  job.start_due();
  job.rejoins(1);
  EXPECT_EQ(job.fails(2), Decision::kFailed);
  EXPECT_EQ(job.start_due(), Ranks{});
  Job without(2, 0);
  EXPECT_EQ(without.fails(0), Decision::kFailed);
}

TEST(RestartPolicy, RanksThatFailBeforeTheFirstHasRejoinedAreOneFailure) {
  Job job(4, 1);
  EXPECT_EQ(job.fails(1), Decision::kRankRestarts);
  EXPECT_EQ(job.fails(2), Decision::kRankRestarts);
  EXPECT_EQ(job.start_due(), (Ranks{1, 2}));
  EXPECT_EQ(job.fails(3), Decision::kRankRestarts);
  EXPECT_EQ(job.policy.restarts(), 1);
  job.start_due();
  for (const int rank : {1, 2, 3}) job.rejoins(rank);
  EXPECT_EQ(job.fails(0), Decision::kFailed);
}

// It was started for the first failure, and is another one.
TEST(RestartPolicy, ARankThatFailsBeforeItHasRejoinedCountsAnew) {
  Job job(3, 2);
  EXPECT_EQ(job.fails(1), Decision::kRankRestarts);
  job.start_due();
  EXPECT_EQ(job.fails(1), Decision::kRankRestarts);
  EXPECT_EQ(job.policy.restarts(), 2);
  job.start_due();
  EXPECT_EQ(job.fails(1), Decision::kFailed);
}

TEST(RestartPolicy, AllStartAnewWhereNobodyIsLeftToRejoin) {
  Job job(3, 1);
  EXPECT_EQ(job.fails(0), Decision::kRankRestarts);
  EXPECT_EQ(job.start_due(), Ranks{0});
  EXPECT_EQ(job.fails(1), Decision::kRankRestarts);
  EXPECT_EQ(job.fails(2), Decision::kAllRestart);  // rank 0 has not rejoined
  EXPECT_EQ(job.policy.restarts(), 1);
  EXPECT_EQ(job.start_due(), Ranks{});
  job.policy.forget_all();
  job.start_all();
  EXPECT_EQ(job.fails(1), Decision::kFailed);
}

TEST(RestartPolicy, AllStartAnewUntilTheyHaveMet) {
  Job job(3, 3);
  job.have_not_met();
  EXPECT_EQ(job.fails(1), Decision::kAllRestart);
  EXPECT_FALSE(job.policy.have_met());
  job.policy.forget_all();
  job.start_all();
  job.meet();
  EXPECT_EQ(job.fails(1), Decision::kRankRestarts);
  EXPECT_TRUE(job.policy.have_met());
}

// Also where no rank is left of those that were started together.
TEST(RestartPolicy, WhoHasMetStaysSo) {
  Job job(2, 3);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(job.fails(rank), Decision::kRankRestarts);
    job.start_due();
    job.rejoins(rank);
  }
  EXPECT_EQ(job.fails(0), Decision::kRankRestarts);
}

TEST(RestartPolicy, ARankThatHasRejoinedIsOneThatOthersRejoin) {
  Job job(2, 3);
  EXPECT_EQ(job.fails(0), Decision::kRankRestarts);
  job.start_due();
  job.rejoins(0);
  EXPECT_EQ(job.fails(1), Decision::kRankRestarts);
  EXPECT_EQ(job.start_due(), Ranks{1});
  EXPECT_EQ(job.policy.restarts(), 2);
}

TEST(RestartPolicy, OfAllStartsEveryoneAsOftenAsItMay) {
  Job job(3, 2, Restart::kAll);
  for (int restarts = 1; restarts <= 2; ++restarts) {
    EXPECT_EQ(job.fails(1), Decision::kAllRestart);
    EXPECT_EQ(job.policy.restarts(), restarts);
    EXPECT_EQ(job.start_due(), Ranks{});
    for (const int rank : {0, 2}) job.policy.on_exit(rank);
    job.policy.forget_all();
    job.start_all();
  }
  EXPECT_EQ(job.fails(1), Decision::kFailed);
}

TEST(RestartPolicy, OneThatDiesWaitingIsMissedByNobody) {
  Job job(3, 1);
  job.fails(1);
  job.start_due();
  job.waits(1);
  EXPECT_EQ(job.fails(1), Decision::kGoesOn);
  Job alone(2, 1);
  alone.fails(1);
  alone.start_due();
  alone.waits(1);
  alone.policy.on_exit(0);
  EXPECT_EQ(alone.fails(1), Decision::kFailed);
}

TEST(RestartPolicy, StartsNobodyAfterAFinalFailureOrTheSignalToEnd) {
  Job job(3, 5);
  EXPECT_EQ(job.fails(1, false), Decision::kFailed);
  Job all(3, 5, Restart::kAll);
  EXPECT_EQ(all.fails(1), Decision::kAllRestart);
  all.policy.on_end();
  EXPECT_EQ(all.fails(2), Decision::kFailed);
  EXPECT_EQ(all.policy.restarts(), 1);
}

TEST(RestartPolicy, KnowsWhenOnlyRanksThatWaitAreLeft) {
  Job job(2, 2);
  job.fails(1);
  job.start_due();
  EXPECT_FALSE(job.policy.only_waiting_run());
  job.waits(1);
  EXPECT_FALSE(job.policy.only_waiting_run());
  job.policy.on_exit(0);
  EXPECT_TRUE(job.policy.only_waiting_run());
  job.rejoins(1);
  EXPECT_FALSE(job.policy.only_waiting_run());
  job.policy.on_exit(1);
  EXPECT_TRUE(job.policy.only_waiting_run());
}

}  // namespace
}  // namespace unisono::run
