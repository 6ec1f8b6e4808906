// What ranks and launchers do goes in, and what launchers are told to do comes out.
#include "tools/run/job_decisions.h"

#include <gmock/gmock.h>

#include <set>
#include <utility>

#include "tools/run/process_group.h"

namespace unisono::run {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Event = run::Event;

constexpr Duration kPatience = seconds(50), kReportTime = seconds(3), kGraceTime = seconds(4);

const char* name_of(Order::Kind kind) {
  constexpr const char* kNames[]{"say",       "clear", "start", "end all",
                                 "start all", "fail",  "over",  "alone"};
  return kNames[static_cast<int>(kind)];
}

// A job of two ranks on each node, whose launchers do at once what they are told.
class JobOfNodes {
 public:
  explicit JobOfNodes(int node_count, int max_restarts = 2, Restart restart = Restart::kFailed,
                      bool keep_going = false)
      : decisions_({.shape = {node_count, 2, max_restarts, restart},
                    .is_alone = false,
                    .keep_going = keep_going,
                    .next_meeting = [](int restarts) -> Result<MeetingPoint> {
                      return MeetingPoint{restarts, 1000 + restarts, "id"};
                    },
                    .patience = std::chrono::duration_cast<std::chrono::milliseconds>(kPatience),
                    .report_time = kReportTime,
                    .grace_time = kGraceTime},
                   {.have_met = [this](int) { return have_met_; },
                    .waits = [this](int rank, int) { return waiting_.contains(rank); },
                    .has_rejoined = [this](int rank, int) { return rejoined_.contains(rank); }}),
        node_count_(node_count) {}
  JobOfNodes(const JobOfNodes&) = delete;

  void come(int node) {
    EXPECT_TRUE(decisions_.may_come(node));
    decisions_.on_come(node);
  }
  void all_come() {
    for (int node = 1; node < node_count_; ++node) come(node);
    orders();
  }
  void tell(int node, Event::Kind kind, int rank = -1) {
    decisions_.on_event(node, {kind, rank, {7, "rank failed"}});
  }
  void fails(int rank) { tell(rank / 2, Event::Kind::kFailed, rank); }
  void exits(int rank) { tell(rank / 2, Event::Kind::kExited, rank); }
  void not_met() { have_met_ = false; }
  void waits(int rank) { waiting_.insert(rank); }
  void rejoins(int rank) { rejoined_.insert(rank); }
  void lose(int node) { decisions_.on_lost(node, "gone"); }
  void pass(Duration time) { now_ += time; }
  Duration time_to_look() const {
    const TimePoint due = decisions_.next_due();
    return due == kNever ? kNever - TimePoint() : due - now_;
  }
  bool takes_launchers() const { return decisions_.takes_launchers(); }

  // "node: order" and the rank, of those given since the last time.
  std::vector<std::string> orders() {
    std::vector<std::string> given;
    decisions_.look(now_);
    while (auto next = decisions_.next_order()) {
      const auto& [node, order] = *next;
      std::string text = std::to_string(node) + ": " + name_of(order.kind);
      if (order.rank >= 0) text += " " + std::to_string(order.rank);
      given.push_back(text);
      if (order.kind != Order::Kind::kOver) last_ = order;
    }
    return given;
  }
  // But for the order that says nothing.
  const Order& last() const { return last_; }

 private:
  JobDecisions decisions_;
  const int node_count_;
  TimePoint now_ = TimePoint() + seconds(1);
  bool have_met_ = true;
  std::set<int> waiting_, rejoined_;
  Order last_;
};

TEST(JobDecisions, StartsAllOnceAllLaunchersHaveCome) {
  JobOfNodes job(3);
  EXPECT_THAT(job.orders(), ElementsAre("0: say"));
  EXPECT_THAT(job.last().text, HasSubstr("for the launchers of nodes 1, 2"));
  job.come(2);
  EXPECT_THAT(job.orders(), ElementsAre("2: say"));
  EXPECT_THAT(job.last().text, HasSubstr("for the launcher of node 1"));
  job.come(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: start all", "1: start all", "2: start all"));
  EXPECT_THAT(job.orders(), IsEmpty());
}

TEST(JobDecisions, FailsWhereALauncherDoesNotCome) {
  JobOfNodes job(3);
  job.come(1);
  job.orders();
  job.pass(kPatience - seconds(1));
  EXPECT_THAT(job.orders(), IsEmpty());
  job.pass(seconds(1));
  EXPECT_THAT(job.orders(), ElementsAre("0: fail", "1: fail", "0: over", "1: over"));
  EXPECT_FALSE(job.takes_launchers());
}

TEST(JobDecisions, ARankStartsOnItsNode) {
  JobOfNodes job(2);
  job.all_come();
  job.fails(3);
  EXPECT_THAT(job.orders(), ElementsAre("0: say", "1: clear 3", "1: start 3"));
  EXPECT_EQ(job.last().meeting.restarts, 1);
  EXPECT_EQ(job.last().meeting.port, 1000);
}

TEST(JobDecisions, AllStartAgainWhereTheyHaveNotMet) {
  JobOfNodes job(2);
  job.all_come();
  job.not_met();
  job.fails(3);
  EXPECT_THAT(job.orders(), ElementsAre("0: end all", "1: end all"));
  EXPECT_EQ(job.last().text,
            "rank failed; starting all ranks again, as they have not met yet (1 of 2 restarts)");
}

TEST(JobDecisions, AllOfALostLauncherAreOneFailureAndStartOnceItHasCome) {
  JobOfNodes job(2, 1);
  job.all_come();
  job.lose(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: say"));
  EXPECT_THAT(job.last().text, HasSubstr("node 1 is lost: gone; starting its ranks again once it "
                                         "has come again (1 of 1 restart)"));
  // Of the same failure: they are not counted.
  job.fails(0);
  EXPECT_THAT(job.orders(), ElementsAre("0: clear 0", "0: start 0"));
  job.come(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: say", "1: start 2", "1: start 3"));
  for (const int rank : {0, 2, 3}) job.rejoins(rank);
  job.lose(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: fail"));
  EXPECT_FALSE(job.takes_launchers());
}

TEST(JobDecisions, DoesNotWaitForALostLauncherWhereTheOthersEndTheirWork) {
  JobOfNodes job(2);
  job.all_come();
  job.lose(1);
  job.orders();
  job.exits(0);
  EXPECT_THAT(job.orders(), IsEmpty());
  EXPECT_TRUE(job.takes_launchers());
  job.exits(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: over"));
  EXPECT_FALSE(job.takes_launchers());
}

TEST(JobDecisions, ALauncherWhoseRanksHaveEndedIsMissedByNobody) {
  JobOfNodes job(2);
  job.all_come();
  for (const int rank : {2, 3}) job.exits(rank);
  job.lose(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: say"));
  EXPECT_EQ(job.last().text, "the launcher of node 1 is lost: gone");
}

TEST(JobDecisions, AllStartOnceNothingIsLeftAndAllLaunchersAreThere) {
  JobOfNodes job(2, 2, Restart::kAll);
  job.all_come();
  job.fails(3);
  EXPECT_THAT(job.orders(), ElementsAre("0: end all", "1: end all"));
  job.fails(2);  // it had not heard
  for (const int rank : {0, 1}) job.exits(rank);
  job.tell(0, Event::Kind::kGone);
  EXPECT_THAT(job.orders(), IsEmpty());
  job.lose(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: say", "0: say"));
  EXPECT_THAT(job.last().text, HasSubstr("waiting up to 50 s for the launcher of node 1"));
  job.come(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: start all", "1: start all"));
  EXPECT_EQ(job.last().meeting.port, 1001);
}

TEST(JobDecisions, ALauncherThatDoesNotEndItsRanksIsGivenUp) {
  JobOfNodes job(2, 2, Restart::kAll);
  job.all_come();
  job.fails(0);
  job.exits(1);
  job.tell(0, Event::Kind::kGone);
  job.orders();
  job.pass(kPatience + kGraceTime + kKillTime - seconds(1));
  EXPECT_THAT(job.orders(), IsEmpty());
  EXPECT_EQ(job.time_to_look(), seconds(1));
  job.pass(seconds(1));
  EXPECT_THAT(job.orders(), ElementsAre("1: alone", "0: say", "0: say"));
  EXPECT_THAT(job.last().text, HasSubstr("for the launcher of node 1"));
  job.come(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: start all", "1: start all"));
}

TEST(JobDecisions, ALauncherThatIsLostMeanwhileHasItsOwnTimeToComeAgain) {
  JobOfNodes job(3);
  job.come(1);
  job.orders();
  job.pass(kPatience - seconds(2));
  job.lose(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: say", "0: say"));
  EXPECT_THAT(job.last().text, HasSubstr("up to 50 s for the launchers of nodes 1, 2"));
  job.pass(seconds(1));
  job.come(2);
  EXPECT_THAT(job.orders(), ElementsAre("2: say"));
  EXPECT_EQ(job.time_to_look(), kPatience - seconds(1));
  job.tell(0, Event::Kind::kLastFailure);
  job.orders();
  EXPECT_EQ(job.time_to_look(), kNever - TimePoint()) << "nobody is awaited any more";
}

TEST(JobDecisions, ALauncherThatComesAndGoesKeepsNobodyWaitingForAnother) {
  JobOfNodes job(3);
  for (int i = 0; i < 2; ++i) {
    job.come(1);
    job.orders();
    job.pass(kPatience / 2);
    job.lose(1);
    job.orders();
  }
  EXPECT_THAT(job.last().failure.what, HasSubstr("the launcher of node 2 did not come"));
  EXPECT_EQ(job.time_to_look(), kNever - TimePoint());
}

TEST(JobDecisions, FailsOnceForAllAndTellsTheRestWhereItWas) {
  JobOfNodes job(2, 1, Restart::kAll);
  job.all_come();
  job.fails(0);
  job.exits(1), job.exits(2), job.exits(3);
  job.tell(0, Event::Kind::kGone), job.tell(1, Event::Kind::kGone);
  job.orders();
  job.fails(3);
  EXPECT_THAT(job.orders(), ElementsAre("0: fail 3", "1: fail 3"));
  job.fails(2);
  EXPECT_THAT(job.orders(), ElementsAre("1: fail 2"));
  job.tell(0, Event::Kind::kLastFailure);
  EXPECT_THAT(job.orders(), IsEmpty());
}

TEST(JobDecisions, ALauncherThatDoesNotEndItsRanksAfterAFailureIsGivenUp) {
  JobOfNodes job(3, 0);
  job.all_come();
  job.fails(2);
  EXPECT_THAT(job.orders(), ElementsAre("0: fail 2", "1: fail 2", "2: fail 2"));
  for (const int rank : {0, 1, 3, 4}) job.exits(rank);
  EXPECT_THAT(job.orders(), IsEmpty());
  job.pass(kPatience + kReportTime + kGraceTime + kKillTime - seconds(1));
  EXPECT_THAT(job.orders(), IsEmpty());
  EXPECT_EQ(job.time_to_look(), seconds(1));
  job.pass(seconds(1));
  EXPECT_THAT(job.orders(), ElementsAre("2: alone", "0: fail", "0: over", "1: over"));
  EXPECT_EQ(job.time_to_look(), kNever - TimePoint());
}

// Its own supervisor sees to them.
TEST(JobDecisions, ThatDecidesIsNotGivenUp) {
  JobOfNodes job(2, 0);
  job.all_come();
  job.fails(2);
  job.exits(3);
  job.orders();
  EXPECT_EQ(job.time_to_look(), kNever - TimePoint());
  job.pass(2 * kPatience);
  EXPECT_THAT(job.orders(), IsEmpty());
  EXPECT_EQ(job.time_to_look(), kNever - TimePoint());
}

TEST(JobDecisions, WhereTheOthersAreToKeepGoingNobodyIsGivenUp) {
  JobOfNodes job(2, 0, Restart::kFailed, true);
  job.all_come();
  job.fails(0);
  job.exits(1);
  job.orders();
  job.pass(2 * kPatience);
  EXPECT_THAT(job.orders(), IsEmpty());
  EXPECT_EQ(job.time_to_look(), kNever - TimePoint());
}

TEST(JobDecisions, TheLastFailureOfALauncherIsThatOfTheOthers) {
  JobOfNodes job(3);
  job.all_come();
  job.tell(1, Event::Kind::kLastFailure);
  EXPECT_THAT(job.orders(), ElementsAre("0: fail", "2: fail"));
  EXPECT_EQ(job.last().failure.exit_status, 7);
}

TEST(JobDecisions, ALauncherThatWasToldToEndTakesItsRanksAlong) {
  JobOfNodes job(2);
  job.all_come();
  job.tell(1, Event::Kind::kEnding);
  EXPECT_THAT(job.orders(), ElementsAre("0: say"));
  job.lose(1);
  EXPECT_THAT(job.orders(), IsEmpty());
  EXPECT_FALSE(job.takes_launchers());
  job.fails(0);
  EXPECT_THAT(job.orders(), ElementsAre("0: fail 0"));
  job.exits(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: over"));
}

// They would wait for its ranks in init().
TEST(JobDecisions, ALauncherThatWasToldToEndBeforeAllHaveMetEndsTheJob) {
  for (const Restart restart : {Restart::kFailed, Restart::kAll}) {
    JobOfNodes job(3, 2, restart);
    job.all_come();
    if (restart == Restart::kFailed) job.not_met();
    job.tell(2, Event::Kind::kEnding);
    EXPECT_THAT(job.orders(), ElementsAre("0: say", "0: fail", "1: fail"));
    EXPECT_EQ(job.last().failure.what,
              std::string("the launcher of node 2 was told to end") +
                  (restart == Restart::kFailed ? " before all ranks had met" : ""));
  }
}

TEST(JobDecisions, WhereTheDecidingLauncherWasToldToEndTheOthersAreOnTheirOwn) {
  JobOfNodes job(3);
  job.all_come();
  job.tell(0, Event::Kind::kEnding);
  EXPECT_THAT(job.orders(), ElementsAre("1: alone", "2: alone"));
  job.exits(0), job.exits(1);
  EXPECT_THAT(job.orders(), ElementsAre("0: over"));
}

TEST(JobDecisions, ASignalBeforeAllHaveStartedFailsTheJob) {
  JobOfNodes job(3);
  job.come(1);
  job.orders();
  job.tell(1, Event::Kind::kEnding);
  EXPECT_THAT(job.orders(), ElementsAre("0: say", "0: fail", "0: over"));
}

TEST(JobDecisions, ARankThatWaitsForNobodyHasASecond) {
  JobOfNodes job(2);
  job.all_come();
  job.fails(3);
  for (const int rank : {0, 1, 2}) job.exits(rank);
  job.orders();
  job.waits(3);
  EXPECT_THAT(job.orders(), IsEmpty());
  job.pass(seconds(1));
  EXPECT_THAT(job.orders(), ElementsAre("0: over", "1: over"));
}

// Its launcher has not heard yet that the job is over.
TEST(JobDecisions, NothingThatFailsLaterStartsOrFailsAJobThatIsOver) {
  for (const auto kind : {Event::Kind::kFailed, Event::Kind::kLastFailure, Event::Kind::kEnding}) {
    JobOfNodes job(2);
    job.all_come();
    job.fails(3);
    for (const int rank : {0, 1, 2}) job.exits(rank);
    job.waits(3);
    job.orders();
    job.pass(seconds(1));
    EXPECT_THAT(job.orders(), ElementsAre("0: over", "1: over"));
    job.tell(1, kind, kind == Event::Kind::kFailed ? 3 : -1);
    EXPECT_THAT(job.orders(), IsEmpty());
  }
}

}  // namespace
}  // namespace unisono::run
