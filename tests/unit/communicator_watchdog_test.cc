// What the watchdog says of calls that take long. It is told what time it is: nothing is waited
// for.
#include "comm/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "base/grace_periods.h"
#include "comm/communicator_state.h"
#include "comm/init.h"
#include "unisono/unisono.h"

namespace unisono {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class Waits final : public Operation {
 public:
  bool advance() override { return false; }
  void fail(const Status& cause) override { status_ = cause; }
  void waiting_for(std::vector<Rank>* to) const override {
    to->insert(to->end(), ranks.begin(), ranks.end());
  }
  std::vector<Rank> ranks;
};

/// Rank 0 of a communicator of three, whose others are never asked.
class WatchdogTest : public ::testing::Test {
 protected:
  WatchdogTest() {
    request_.reset({.collective = Collective::kAllReduce});
    request_.is_numbered = false;  // there is nobody to tell about it
    request_.operation = &waits_;
    EXPECT_TRUE(look_after(milliseconds(0)));
  }
  Status look_after(Duration since_start) {
    return watchdog_.look_at(request_, start_ + since_start, peer_left_);
  }

  Communicator alone_ = init({.rendezvous = "alone://", .timeout = seconds(10)});
  detail::CommunicatorState& state_ = *CommunicatorAccess::state(alone_);
  const Members members_{1, {0, 1, 2}, 0};
  Watchdog watchdog_{state_.runtime(), members_, state_.host()};
  std::vector<bool> peer_left_ = std::vector<bool>(3, false);
  const TimePoint start_ = Clock::now();
  Waits waits_;
  detail::RequestState request_;
};

TEST_F(WatchdogTest, CountsTheDeadlineFromItsFirstLook) {
  waits_.ranks = {1, 2};
  EXPECT_TRUE(look_after(seconds(10) - milliseconds(1)));
  const Status late = look_after(seconds(10));
  EXPECT_EQ(late.code(), ErrorCode::kTimeout);
  EXPECT_EQ(late.rank(), -1) << "either may be at fault";
  EXPECT_THAT(late.message(), HasSubstr("waiting for ranks 1 and 2"));
}

TEST_F(WatchdogTest, NamesTheOnlyRankThatIsWaitedFor) {
  waits_.ranks = {2};
  EXPECT_EQ(look_after(seconds(10)).rank(), 2);
}

TEST_F(WatchdogTest, KnowsTheCallsOwnDeadline) {
  request_.notes = {};
  request_.call.options.timeout = milliseconds(50);
  EXPECT_TRUE(look_after(milliseconds(0)));
  EXPECT_TRUE(look_after(milliseconds(49)));
  EXPECT_EQ(look_after(milliseconds(50)).code(), ErrorCode::kTimeout);
}

TEST_F(WatchdogTest, MissesAMemberThatLeftAfterAWhile) {
  waits_.ranks = {1};
  watchdog_.note_left(1);
  EXPECT_TRUE(look_after(grace::kProbeAfter));
  EXPECT_TRUE(look_after(grace::kProbeAfter + grace::kAfterGoodbye - milliseconds(1)));
  const Status missed = look_after(grace::kProbeAfter + grace::kAfterGoodbye);
  EXPECT_EQ(missed.code(), ErrorCode::kRankLeft);
  EXPECT_EQ(missed.rank(), 1);
}

TEST_F(WatchdogTest, MissesARankThatLeftTheJob) {
  waits_.ranks = {2};
  peer_left_[2] = true;
  EXPECT_TRUE(look_after(grace::kProbeAfter));
  EXPECT_EQ(look_after(grace::kProbeAfter + grace::kAfterGoodbye).rank(), 2);
}

// What it sent before it left has come.
TEST_F(WatchdogTest, ForgetsAMemberThatIsNotWaitedForAnyMore) {
  waits_.ranks = {1};
  watchdog_.note_left(1);
  EXPECT_TRUE(look_after(grace::kProbeAfter));
  waits_.ranks = {2};
  EXPECT_TRUE(look_after(seconds(1)));
  waits_.ranks = {1};
  EXPECT_TRUE(look_after(seconds(2)));
  EXPECT_FALSE(look_after(seconds(2) + grace::kAfterGoodbye));
}

TEST_F(WatchdogTest, MissesAnyRankOnlyWhenAllHaveLeft) {
  waits_.ranks = {kAnyRank};
  watchdog_.note_left(1);
  EXPECT_TRUE(look_after(seconds(1)));
  EXPECT_TRUE(look_after(seconds(2)));
  watchdog_.note_left(2);
  EXPECT_TRUE(look_after(seconds(3)));
  EXPECT_EQ(look_after(seconds(4)).code(), ErrorCode::kRankLeft);
}

}  // namespace
}  // namespace unisono
