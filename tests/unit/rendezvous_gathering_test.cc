// Who is admitted to a job: Rendezvous with time as an argument.
#include <gmock/gmock.h>

#include "base/grace_periods.h"
#include "rendezvous/sessions/rendezvous.h"
#include "rendezvous_apart.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

const TimePoint kFirstArrival{seconds(1000)};

TEST(Rendezvous, IsCompleteWhenAllHaveArrived) {
  Rendezvous rendezvous(3, kFirstArrival);
  for (const Rank rank : {2, 0, 1}) {
    EXPECT_FALSE(rendezvous.complete());
    EXPECT_TRUE(rendezvous.admit(member_of_rank(rank), 3));
  }
  ASSERT_TRUE(rendezvous.complete());
  EXPECT_EQ(rendezvous.take_members()[2].pid, 102);
}

TEST(Rendezvous, TakesNoRankBeyondItsSize) {
  Rendezvous rendezvous(2, kFirstArrival);
  EXPECT_THAT(rendezvous.admit(member_of_rank(2), 2).message(), HasSubstr("rank 2 is not within"));
  EXPECT_THAT(rendezvous.admit(member_of_rank(-1), 2).message(),
              HasSubstr("rank -1 is not within"));
}

TEST(Rendezvous, NamesTheMissing) {
  Rendezvous rendezvous(8, kFirstArrival);
  for (const Rank rank : {0, 1, 3, 4, 6}) ASSERT_TRUE(rendezvous.admit(member_of_rank(rank), 8));
  EXPECT_EQ(rendezvous.overdue(kFirstArrival + seconds(30)).message(),
            "ranks 2, 5 and 7 of 8 did not arrive within 30 s");
}

TEST(Rendezvous, WarnsOnceOfTheMissingWhenThatIsDue) {
  const TimePoint due = warning_at(kFirstArrival, seconds(1), kNever);
  Rendezvous rendezvous(4, kFirstArrival, false, due);
  for (const Rank rank : {0, 2, 3}) ASSERT_TRUE(rendezvous.admit(member_of_rank(rank), 4));
  EXPECT_EQ(rendezvous.next_due(), kFirstArrival + seconds(1));
  EXPECT_EQ(rendezvous.take_warning(due - milliseconds(1)), "");
  EXPECT_THAT(rendezvous.take_warning(due),
              HasSubstr("rank 1 of 4 has not arrived after 1 s; waiting until the deadline "
                        "(UNISONO_TIMEOUT)"));
  EXPECT_EQ(rendezvous.take_warning(due + seconds(1)), "");
  EXPECT_EQ(rendezvous.next_due(), kNever);
}

TEST(Rendezvous, WarnsOfNobodyWhereTheDeadlineComesFirstOrNoWarningIsWanted) {
  EXPECT_EQ(warning_at(kFirstArrival, milliseconds(0), kNever), kNever);
  EXPECT_EQ(warning_at(kFirstArrival, seconds(1), kFirstArrival + seconds(1)), kNever);
}

TEST(Rendezvous, TellsWhoCameAndLeft) {
  Rendezvous rendezvous(2, kFirstArrival);
  ASSERT_TRUE(rendezvous.admit(member_of_rank(0), 2));
  ASSERT_TRUE(rendezvous.admit(member_of_rank(1), 2));
  rendezvous.depart(1, kFirstArrival);
  EXPECT_FALSE(rendezvous.complete());
  const Status overdue = rendezvous.overdue(kFirstArrival + seconds(1));
  EXPECT_THAT(overdue.message(), HasSubstr("rank 1 (host node1, pid 101) came and left again"));
  EXPECT_EQ(overdue.rank(), 1);
  EXPECT_TRUE(rendezvous.admit(member_of_rank(1), 2)) << "its seat is free again";
}

TEST(Rendezvous, WaitsAMomentForARankThatWentAwayAndThenNamesIt) {
  Rendezvous rendezvous(3, kFirstArrival);
  for (const Rank rank : {0, 1, 2}) {
    EXPECT_EQ(rendezvous.next_due(), kNever);
    ASSERT_TRUE(rendezvous.admit(member_of_rank(rank), 3));
  }
  const TimePoint away = kFirstArrival + seconds(5);
  rendezvous.depart(2, away);
  rendezvous.depart(1, away + milliseconds(500));
  EXPECT_EQ(rendezvous.next_due(), away + grace::kReturn);
  EXPECT_TRUE(rendezvous.lost(away + grace::kReturn - milliseconds(1)));
  ASSERT_TRUE(rendezvous.admit(member_of_rank(2), 3)) << "it was started again in time";
  EXPECT_TRUE(rendezvous.lost(away + grace::kReturn));
  const Status lost = rendezvous.lost(rendezvous.next_due());
  EXPECT_EQ(lost.code(), ErrorCode::kRankFailed);
  EXPECT_EQ(lost.rank(), 1);
  EXPECT_THAT(lost.message(), HasSubstr("rank 1 (host node1, pid 101) died or gave up before"));
}

TEST(Rendezvous, RankGivenTwiceNamesBothProcesses) {
  Rendezvous rendezvous(3, kFirstArrival);
  ASSERT_TRUE(rendezvous.admit(member_of_rank(1), 3));
  Member second = member_of_rank(1);
  second.pid = 999;
  EXPECT_THAT(rendezvous.admit(second, 3).message(),
              AllOf(HasSubstr("rank 1 was given twice"), HasSubstr("pid 101"), HasSubstr("999")));
}

TEST(Rendezvous, DifferingWorldSizeNamesBoth) {
  Rendezvous rendezvous(3, kFirstArrival);
  EXPECT_THAT(rendezvous.admit(member_of_rank(1), 4).message(),
              AllOf(HasSubstr("4"), HasSubstr("says 3")));
}

std::string complaint_about(const std::string& first, const std::string& second) {
  Rendezvous rendezvous(3, kFirstArrival);
  Member one = member_of_rank(2);
  one.settings = first;
  EXPECT_TRUE(rendezvous.admit(one, 3));
  Member other = member_of_rank(1);
  other.settings = second;
  const Status status = rendezvous.admit(other, 3);
  EXPECT_EQ(status.code(), ErrorCode::kMismatch);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 2"), HasSubstr("rank 1")));
  return status.message();
}

TEST(Rendezvous, DifferingSettingsNameBothRanksTheVariableAndItsValues) {
  EXPECT_THAT(complaint_about("UNISONO_A=1\nUNISONO_B=x=y\nUNISONO_C=3\n",
                              "UNISONO_A=1\nUNISONO_B=z\nUNISONO_C=4\n"),
              HasSubstr("differ in UNISONO_B, which all ranks must share: 'x=y' and 'z'"));
  EXPECT_THAT(complaint_about("UNISONO_A=\n", "UNISONO_A=1\n"),
              HasSubstr("differ in UNISONO_A, which all ranks must share: '' and '1'"));
}

TEST(Rendezvous, ANewcomerIsWrongWhoeverCameFirst) {
  for (const bool comes_first : {false, true}) {
    Rendezvous rendezvous(3, kFirstArrival);
    Member member = member_of_rank(2), newcomer = member_of_rank(1);
    member.settings = "A=1\n";
    newcomer.settings = "A=2\n";
    newcomer.is_newcomer = true;
    EXPECT_TRUE(rendezvous.admit(comes_first ? newcomer : member, 3));
    const Status status = rendezvous.admit(comes_first ? member : newcomer, 3);
    EXPECT_EQ(status.rank(), 1);
    EXPECT_THAT(status.message(), HasSubstr("'1' and '2'"));
  }
}

TEST(Rendezvous, OfTwoNewcomersNobodyIsWrongBeforeAMemberHasCome) {
  const auto newcomer = [](Rank rank, const char* settings) {
    Member member = member_of_rank(rank);
    member.settings = settings;
    member.is_newcomer = true;
    return member;
  };
  Rendezvous rendezvous(4, kFirstArrival);
  EXPECT_TRUE(rendezvous.admit(newcomer(0, "A=1\n"), 4));
  const Status status = rendezvous.admit(newcomer(1, "A=2\n"), 4);
  EXPECT_EQ(status.code(), ErrorCode::kMismatch);
  EXPECT_EQ(status.rank(), -1);
}

TEST(Rendezvous, DifferingTextsThatAreNoSettingsAreShown) {
  EXPECT_THAT(complaint_about("UNISONO_A=1", "UNISONO_AB=1"),
              HasSubstr("differ in settings, which all ranks must share: "
                        "'UNISONO_A=1' and 'UNISONO_AB=1'"));
  EXPECT_THAT(complaint_about("a\n", "a\nb\n"), HasSubstr("differ in settings"));
  EXPECT_THAT(complaint_about("\n", "\n\n"), HasSubstr("differ in settings"));
}

}  // namespace
}  // namespace unisono::rendezvous
