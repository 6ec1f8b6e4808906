// What the watchdog says of calls that take long, to whom and when. It is told what time it is:
// nothing is waited for, and the job around it is the test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "backend/host_backends.h"
#include "base/grace_periods.h"
#include "comm/watchdog.h"
#include "rendezvous/messages/arbiter_connection.h"
#include "tests/support/deaf_host.h"
#include "tests/support/log_guard.h"

namespace unisono {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string text_of(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank rank : ranks) text += " " + std::to_string(rank);
  return text;
}

/// Writes down what it is asked for, with the names of ranks in the job.
class Job final : public WatchedJob {
 public:
  using WatchedJob::WatchedJob;

  std::vector<std::string> asked;
  std::vector<std::string> timed_out;  // calls

  void probe(Rank peer, std::uint32_t communicator, std::uint64_t sequence,
             const CallRecord&) override {
    asked.push_back("probe" + name(communicator, sequence) + " at " + std::to_string(peer));
  }
  void compare_call(std::uint32_t communicator, std::uint64_t sequence,
                    const CallRecord&) override {
    asked.push_back("compare" + name(communicator, sequence));
  }
  void report_waiting(const rendezvous::WaitMessage& wait) override {
    asked.push_back("waiting" + name(wait.communicator, wait.sequence) + " for" +
                    text_of(wait.waiting_for));
  }
  void report_timeout(const rendezvous::WaitMessage& wait) override {
    asked.push_back("timeout" + name(wait.communicator, wait.sequence) + " for" +
                    text_of(wait.waiting_for) + " of" + text_of(wait.members));
    timed_out.push_back(wait.call);
  }
  void withdraw_timeout(std::uint32_t communicator, std::uint64_t operation) override {
    asked.push_back("withdrawn" + name(communicator, operation));
  }

 private:
  static std::string name(std::uint32_t communicator, std::uint64_t sequence) {
    return " " + std::to_string(communicator) + "/" +
           (sequence == kPointToPointSequence ? "message" : std::to_string(sequence));
  }
};

class Waits final : public Operation {
 public:
  bool advance() override { return false; }
  void fail(const Status& cause) override { status_ = cause; }
  void waiting_for(std::vector<Rank>* to) const override {
    to->insert(to->end(), ranks.begin(), ranks.end());
  }
  std::vector<Rank> ranks;
};

/// Rank 0 of communicator 1, whose three members share no memory. It is in call 5.
class WatchdogTest : public ::testing::Test {
 protected:
  WatchdogTest() { begin(Collective::kAllReduce); }

  void begin(Collective collective) {
    request_.reset({.collective = collective});
    request_.notes = {};
    request_.record.collective = static_cast<std::uint8_t>(collective);
    request_.sequence = 5;
    request_.operation = &waits_;
    request_.plan = &entry_;
    EXPECT_TRUE(look_after(milliseconds(0)));
  }
  Status look_after(Duration since_start) {
    watchdog_.begin(request_, start_ + since_start);
    return watchdog_.look_at(request_, start_ + since_start, peer_left_);
  }
  /// So often that what is not there by now does not come.
  Status look_often_after(Duration since_start) {
    Status seen;
    for (int look = 0; look < grace::kLooksAfterGoodbye && seen.ok(); ++look) {
      seen = look_after(since_start);
    }
    return seen;
  }

  const Members members_{1, {4, 2, 9}, 0};
  const algorithms::SelectionTable table_ = algorithms::SelectionTable::defaults();
  const algorithms::Hints hints_;
  const algorithms::LinkFacts links_;
  test::DeafHost engine_host_;
  Engine engine_{engine_host_, 10, 0, IdleChoice("yield", {})};
  ScratchPool scratch_{1024};
  HostBackends host_{{.engine = engine_,
                      .scratch = scratch_,
                      .members = members_,
                      .circumstances = {.table = table_,
                                        .hints = hints_,
                                        .ranks = 3,
                                        .link = algorithms::Link::kTcp,
                                        .links = links_},
                      .group = nullptr,
                      .on_disagreement = {}}};
  ArbiterClient arbiter_{World{}, nullptr};
  Job job_{engine_.messenger(), arbiter_, {seconds(10), seconds(30)}};
  Watchdog watchdog_{job_, members_, host_};
  std::vector<bool> peer_left_ = std::vector<bool>(10, false);
  const TimePoint start_ = Clock::now();
  Waits waits_;
  PlanCache::Entry entry_;
  detail::RequestState request_;
};

TEST_F(WatchdogTest, ProbesThoseThatItWaitsForOnceAfterAWhile) {
  waits_.ranks = {1, 2};
  EXPECT_TRUE(look_after(grace::kProbeAfter - milliseconds(1)));
  EXPECT_THAT(job_.asked, IsEmpty());
  EXPECT_TRUE(look_after(grace::kProbeAfter));
  EXPECT_TRUE(look_after(grace::kProbeAfter * 2));
  EXPECT_THAT(job_.asked, ElementsAre("probe 1/5 at 2", "probe 1/5 at 9"));
}

TEST_F(WatchdogTest, AsksOnceWhetherTheSourceOfAMessageIsStillThere) {
  begin(Collective::kReceive);
  waits_.ranks = {2};
  EXPECT_TRUE(look_after(grace::kProbeAfter));
  EXPECT_TRUE(look_after(grace::kProbeAfter * 2));
  EXPECT_THAT(job_.asked, ElementsAre("probe 1/message at 9"));
  job_.asked.clear();
  begin(Collective::kReceive);
  waits_.ranks = {kAnyRank};
  EXPECT_TRUE(look_after(grace::kProbeAfter));
  EXPECT_THAT(job_.asked, ElementsAre("probe 1/message at 2", "probe 1/message at 9"));
}

// What has no plan sends nothing, and a peer may have taken one.
TEST_F(WatchdogTest, ComparesWhatPeersHaveSaidWhereThereIsNoPlan) {
  request_.plan = nullptr;
  waits_.ranks = {1};
  EXPECT_TRUE(look_after(grace::kProbeAfter));
  EXPECT_TRUE(look_after(grace::kProbeAfter * 2));
  EXPECT_THAT(job_.asked, ElementsAre("compare 1/5"));
}

TEST_F(WatchdogTest, ReportsForWhomItWaitsOnce) {
  waits_.ranks = {2};
  EXPECT_TRUE(look_after(grace::kReportAfter - milliseconds(1)));
  job_.asked.clear();
  EXPECT_TRUE(look_after(grace::kReportAfter));
  EXPECT_TRUE(look_after(grace::kReportAfter * 2));
  EXPECT_THAT(job_.asked, ElementsAre("waiting 1/5 for 9"));
}

TEST_F(WatchdogTest, ReportsMessagesWithoutANumber) {
  begin(Collective::kReceive);
  waits_.ranks = {1};
  EXPECT_TRUE(look_after(grace::kReportAfter));
  EXPECT_THAT(job_.asked, ElementsAre("probe 1/message at 2", "waiting 1/message for 2"));
}

TEST_F(WatchdogTest, SaysNothingOfCallsThatPeersTakeNoPartInYet) {
  request_.is_numbered = false;
  waits_.ranks = {1, 2};
  EXPECT_TRUE(look_after(grace::kReportAfter));
  EXPECT_THAT(job_.asked, IsEmpty());
}

TEST_F(WatchdogTest, TellsTheUserOnce) {
  test::LogGuard log;
  log.expect("rank 0 of communicator 1 waits in all_reduce");
  request_.call.options.timeout = seconds(100);
  request_.notes = {};
  waits_.ranks = {1, 2};
  EXPECT_TRUE(look_after(milliseconds(0)));
  EXPECT_TRUE(look_after(job_.warn_after() - milliseconds(1)));
  EXPECT_THAT(log.lines(), IsEmpty());
  EXPECT_TRUE(look_after(job_.warn_after()));
  EXPECT_TRUE(look_after(job_.warn_after() * 2));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("waiting for ranks 1 and 2")));
}

// The arbiter has heard from the other ranks, and its word says more.
TEST_F(WatchdogTest, AsksTheArbiterBeforeItSaysThatTheDeadlineHasPassed) {
  waits_.ranks = {1, 2};
  EXPECT_TRUE(look_after(job_.timeout() - milliseconds(1)));
  job_.asked.clear();
  EXPECT_TRUE(look_after(job_.timeout()));
  EXPECT_THAT(job_.asked, ElementsAre("timeout 1/5 for 2 9 of 4 2 9"));
  EXPECT_THAT(job_.timed_out, ElementsAre(AllOf(HasSubstr(", limit "), HasSubstr("UNISONO_TIMEOUT"),
                                                Not(HasSubstr("operation")))));
  EXPECT_TRUE(look_after(job_.timeout() + grace::kDecision - milliseconds(1)));
  const Status late = look_after(job_.timeout() + grace::kDecision);
  EXPECT_EQ(late.code(), ErrorCode::kTimeout);
  EXPECT_EQ(late.rank(), -1) << "either may be at fault";
  EXPECT_THAT(late.message(), HasSubstr("waiting for ranks 1 and 2"));
  EXPECT_EQ(job_.asked.size(), 1u) << "it is asked once";
}

TEST_F(WatchdogTest, NamesRanksOfTheJobToTheArbiter) {
  waits_.ranks = {1};
  begin(Collective::kBroadcast);
  request_.record.root = 2;
  EXPECT_TRUE(look_after(job_.timeout()));
  for (const Rank peer : {1, kAnyRank}) {
    begin(Collective::kReceive);
    request_.call.peer = peer;
    EXPECT_TRUE(look_after(job_.timeout()));
  }
  EXPECT_THAT(job_.timed_out,
              ElementsAre(HasSubstr(", root 9"), HasSubstr(" from rank 2 with tag 0 (limit "),
                          HasSubstr(" from any rank with tag 0 (limit ")));
  EXPECT_THAT(look_after(job_.timeout() + grace::kDecision).message(),
              EndsWith("waiting for rank 1"));
}

// Or it would name somebody who has come since.
TEST_F(WatchdogTest, TellsTheArbiterOfACallThatEndsWellAfterItsDeadline) {
  waits_.ranks = {1, 2};
  EXPECT_TRUE(look_after(job_.timeout()));
  job_.asked.clear();
  EXPECT_TRUE(request_.notes.timed_out);
  request_.is_numbered = false;  // as of a device's call, whose part on the host has ended
  watchdog_.withdraw_timeout(request_);
  EXPECT_THAT(job_.asked, ElementsAre("withdrawn 1/5"));
}

TEST_F(WatchdogTest, WithdrawsNoMessage) {
  begin(Collective::kReceive);
  waits_.ranks = {1};
  EXPECT_TRUE(look_after(job_.timeout()));
  job_.asked.clear();
  watchdog_.withdraw_timeout(request_);
  EXPECT_THAT(job_.asked, IsEmpty());
}

TEST_F(WatchdogTest, NamesTheOnlyRankThatIsWaitedFor) {
  waits_.ranks = {2};
  EXPECT_TRUE(look_after(job_.timeout()));
  EXPECT_EQ(look_after(job_.timeout() + grace::kDecision).rank(), 2);
}

TEST_F(WatchdogTest, AsksTheJobAboutTheDeadlineOfAMessageToo) {
  begin(Collective::kReceive);
  waits_.ranks = {1};
  job_.asked.clear();
  EXPECT_TRUE(look_after(job_.timeout()));
  EXPECT_EQ(job_.asked.back(), "timeout 1/message for 2 of 4 2 9");
  EXPECT_THAT(job_.timed_out, ElementsAre(AllOf(HasSubstr("receive"), HasSubstr(" (limit "),
                                                HasSubstr("UNISONO_TIMEOUT"))));
  const Status late = look_after(job_.timeout() + grace::kDecision);
  EXPECT_EQ(late.code(), ErrorCode::kTimeout) << "nobody has answered";
  EXPECT_EQ(late.rank(), 1);
}

TEST_F(WatchdogTest, AsksNobodyAboutAMessageFromAnyRank) {
  begin(Collective::kReceive);
  waits_.ranks = {kAnyRank};
  EXPECT_EQ(look_after(job_.timeout()).code(), ErrorCode::kTimeout);
  EXPECT_THAT(job_.timed_out, IsEmpty());
}

TEST_F(WatchdogTest, NamesThePeerAndTheTagOfAMessage) {
  for (const Rank peer : {1, kAnyRank}) {
    begin(Collective::kReceive);
    request_.call.peer = peer;
    request_.call.tag = 7;
    waits_.ranks = {peer};
    const std::string from = peer == kAnyRank ? "any rank" : "rank 1";
    static_cast<void>(look_after(job_.timeout()));
    const Status late = look_after(job_.timeout() + grace::kDecision);
    EXPECT_THAT(late.message(), HasSubstr(" from " + from + " with tag 7 did not finish"));
    EXPECT_THAT(late.message(), EndsWith("waiting for " + from));
    EXPECT_THAT(late.message(), Not(HasSubstr("operation"))) << "messages have no number";
  }
  begin(Collective::kSend);
  request_.call.peer = 2;
  waits_.ranks = {2};
  EXPECT_TRUE(look_after(job_.timeout()));
  EXPECT_THAT(look_after(job_.timeout() + grace::kDecision).message(),
              HasSubstr(" to rank 2 with tag 0 "));
}

TEST_F(WatchdogTest, KnowsTheCallsOwnDeadline) {
  request_.notes = {};
  request_.is_numbered = false;
  request_.call.options.timeout = milliseconds(50);
  EXPECT_TRUE(look_after(milliseconds(0)));
  EXPECT_TRUE(look_after(milliseconds(49)));
  const Status late = look_after(milliseconds(50));
  EXPECT_EQ(late.code(), ErrorCode::kTimeout);
  EXPECT_THAT(late.message(), HasSubstr("(limit 50 ms by the call's own timeout)"));
}

TEST_F(WatchdogTest, MissesAMemberThatLeftAfterAWhile) {
  waits_.ranks = {1};
  watchdog_.note_left(1);
  EXPECT_TRUE(look_after(grace::kProbeAfter));
  EXPECT_TRUE(look_often_after(grace::kProbeAfter + grace::kAfterGoodbye - milliseconds(1)));
  const Status missed = look_after(grace::kProbeAfter + grace::kAfterGoodbye);
  EXPECT_EQ(missed.code(), ErrorCode::kRankLeft);
  EXPECT_EQ(missed.rank(), 1);
}

// Its own thread did not run: what the member had sent may be here, unread.
TEST_F(WatchdogTest, MissesNobodyAfterFewLooks) {
  waits_.ranks = {1};
  watchdog_.note_left(1);
  EXPECT_TRUE(look_after(grace::kProbeAfter));
  EXPECT_TRUE(look_after(seconds(5)));
  EXPECT_EQ(look_often_after(seconds(5)).rank(), 1);
}

TEST_F(WatchdogTest, MissesARankThatLeftTheJob) {
  waits_.ranks = {2};
  peer_left_[9] = true;
  EXPECT_TRUE(look_after(grace::kProbeAfter));
  EXPECT_EQ(look_often_after(grace::kProbeAfter + grace::kAfterGoodbye).rank(), 2);
}

TEST_F(WatchdogTest, MissesEachMemberForItself) {
  watchdog_.note_left(1);
  watchdog_.note_left(2);
  waits_.ranks = {1};
  EXPECT_TRUE(look_often_after(grace::kProbeAfter));
  waits_.ranks = {2};
  EXPECT_TRUE(look_after(grace::kProbeAfter + grace::kAfterGoodbye));
  EXPECT_EQ(look_often_after(grace::kProbeAfter + 2 * grace::kAfterGoodbye).rank(), 2);
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
  EXPECT_FALSE(look_often_after(seconds(2) + grace::kAfterGoodbye));
}

TEST_F(WatchdogTest, MissesAnyRankOnlyWhenAllHaveLeft) {
  waits_.ranks = {kAnyRank};
  watchdog_.note_left(1);
  EXPECT_TRUE(look_after(seconds(1)));
  EXPECT_TRUE(look_after(seconds(2)));
  watchdog_.note_left(2);
  EXPECT_TRUE(look_after(seconds(3)));
  const Status missed = look_often_after(seconds(4));
  EXPECT_EQ(missed.code(), ErrorCode::kRankLeft);
  EXPECT_EQ(missed.rank(), -1) << "it could have been each of them";
}

}  // namespace
}  // namespace unisono
