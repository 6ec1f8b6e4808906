// What an arbiter says to whom where ranks are not heard or have left, by the state machine alone.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/grace_periods.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/sessions/serving_arbiter.h"
#include "rendezvous_apart.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

/// What was sent on each connection, whose number is that of its rank here.
struct Lines final : ArbiterLinks {
  void send(int connection, std::shared_ptr<const std::string> bytes) override {
    const auto type = static_cast<MessageType>((*bytes)[4]);
    if (type == MessageType::kBeat) return;
    said[connection].push_back(type);
    if (type == MessageType::kDecision) {
      decisions[connection].push_back(*decode_decision(std::string_view(*bytes).substr(5), 64));
    } else if (type == MessageType::kShrink) {
      const auto word = decode_shrink(std::string_view(*bytes).substr(5), size);
      steps[connection].push_back(word->step);
      attempt = word->id;
    }
  }
  void close(int connection) override { said[connection].push_back({}); }
  bool is_behind(int) const override { return false; }
  void on_taken_over() override {}

  std::map<int, std::vector<MessageType>> said;  // {}: closed
  std::map<int, std::vector<FailureDecision>> decisions;
  std::map<int, std::vector<ShrinkStep>> steps;
  std::uint32_t attempt = 0;  // the latest
  int size = 0;               // of the job
};

/// An arbiter of as many ranks, all of which have met, whose owner wakes every 100 ms.
class ArbiterTest : public testing::Test {
 protected:
  void meet(int size) { meet(members_apart(size)); }
  void meet(const std::vector<Member>& members) {
    arbiter_.emplace(members, ServingArbiter::Options{0, false, kSilence}, lines_, now_);
    for (const Member& member : members) arbiter_->seat(member.rank, member.rank, now_);
  }
  void stand_by(Rank self, int size) {
    lines_.size = size;
    arbiter_.emplace(
        members_apart(size),
        ServingArbiter::Options{self, true, kSilence, [this] { return own_rank_heard_at_; }},
        lines_, now_);
  }
  /// Only these are heard.
  void run_for(Duration time, const std::vector<Rank>& heard) {
    for (const TimePoint until = now_ + time; now_ < until; now_ += milliseconds(100)) {
      arbiter_->on_turn(now_);
      for (const Rank rank : heard) {
        if (arbiter_->is_seated(rank)) arbiter_->on_heard(rank, now_);
      }
      arbiter_->on_wake(now_);
    }
  }
  void come(RejoinMessage told) { arbiter_->on_rejoin(told.rank, std::move(told), now_); }
  void say_deposed(Rank rank, Rank successor) {
    const std::string bytes = encode_deposed({successor, kSilence});
    arbiter_->on_message(rank, {MessageType::kDeposed, std::string_view(bytes).substr(5)}, now_);
  }
  /// Of all, waiting so long for the others.
  void ask_to_shrink(Rank rank, milliseconds patience) {
    std::vector<Rank> all;
    for (Rank each = 0; each < lines_.size; ++each) all.push_back(each);
    const std::string bytes =
        encode_shrink({ShrinkStep::kAsk, 1, 0, patience, all, {}}, lines_.size);
    arbiter_->on_message(rank, {MessageType::kShrink, std::string_view(bytes).substr(5)}, now_);
  }
  /// About the attempt to make a communicator of survivors.
  void answer(Rank rank, ShrinkStep step) {
    const std::string bytes = encode_shrink({step, 1, lines_.attempt, {}, {}, {}}, lines_.size);
    arbiter_->on_message(rank, {MessageType::kShrink, std::string_view(bytes).substr(5)}, now_);
  }
  std::vector<Rank> named_to(Rank rank) {
    std::vector<Rank> named;
    for (const FailureDecision& decision : lines_.decisions[rank]) {
      named.push_back(decision.failed_rank);
    }
    return named;
  }

  TimePoint now_ = kMetAt;
  TimePoint own_rank_heard_at_ = kNever;  // of a standby, the arbiter
  Lines lines_;
  std::optional<ServingArbiter> arbiter_;
};

// Rank 2 is silent a moment later than ranks 3 and 4.
TEST_F(ArbiterTest, SaysOnceThatItsPartIsTheSmallerOne) {
  meet(5);
  run_for(milliseconds(500), {0, 1, 2});
  run_for(kSilence * 3, {0, 1});
  EXPECT_THAT(lines_.decisions[1],
              ElementsAre(AllOf(Field(&FailureDecision::code, ErrorCode::kPartitioned),
                                Field(&FailureDecision::failed_rank, 1))));
}

// Rank 1 has just been heard again, and was not before: it has looked for another arbiter.
TEST_F(ArbiterTest, TellsThoseThatItDidNotHearThatTheSmallerPartIsNotTheirs) {
  meet(7);
  run_for(milliseconds(500), {0, 1, 2});
  run_for(milliseconds(2200), {0, 2});
  run_for(kSilence, {0, 1, 2});
  for (const Rank rank : {1, 3, 4, 5, 6}) {
    EXPECT_EQ(lines_.said[rank].front(), MessageType::kPartEnded) << "to rank " << rank;
  }
  for (const Rank rank : {0, 2}) {
    EXPECT_THAT(lines_.said[rank], ElementsAre(MessageType::kDecision)) << "to rank " << rank;
  }
}

// Though it refuses in between those that have lost the arbiter, because its own rank hears it.
TEST_F(ArbiterTest, OfAStandbyKeepsWhoHasLeft) {
  stand_by(1, 5);
  come({"job", 3, {}, {3}, {}});
  EXPECT_THAT(lines_.said[3], ElementsAre(MessageType::kDeparted, MessageType{}));
  come({"job", 2, {0}, {}, {}});
  run_for(grace::kOwnRank + milliseconds(200), {});
  EXPECT_THAT(lines_.said[2], ElementsAre(MessageType::kRefusal, MessageType{}));
  for (const Rank rank : {1, 2}) come({"job", rank, {0}, {}, {}, {0}});
  run_for(grace::kSuccession + milliseconds(200), {1, 2});
  EXPECT_THAT(named_to(2), ElementsAre(0, 4));
}

// Its own rank's connection may have been reset on its way, and others may go on with rank 0.
TEST_F(ArbiterTest, OfAStandbyTakesTheEndOfTheArbiterFromItsOwnRankOnlyWhereNobodyElseMayLive) {
  const auto ends_of_one = [&](int size, const std::vector<Rank>& come_to_it) {
    lines_ = {};
    stand_by(1, size);
    for (const Rank rank : come_to_it) come({"job", rank, {0}, {}, {}, {0}});
    run_for(grace::kSuccession + milliseconds(200), come_to_it);
    const auto& decided = lines_.decisions[1];
    return std::count_if(decided.begin(), decided.end(), [](const FailureDecision& decision) {
      return decision.code == ErrorCode::kPartitioned;
    });
  };
  EXPECT_EQ(ends_of_one(3, {1}), 1) << "rank 2 may be with rank 0";
  EXPECT_EQ(ends_of_one(3, {1, 2}), 0);
  EXPECT_EQ(ends_of_one(2, {1}), 0);
}

// Rank 3 has come since, so its end is one that the standby's arbiter has seen.
TEST_F(ArbiterTest, OfAStandbyHasTheEndOfARankThatHasComeFromItsOwnConnection) {
  stand_by(1, 5);
  come({"job", 1, {0}, {}, {}, {0, 3}});
  for (const Rank rank : {2, 3}) come({"job", rank, {0}, {}, {}, {0}});
  run_for(milliseconds(100), {1, 2, 3});
  arbiter_->on_closed(3, now_, {.is_new = false});
  arbiter_->on_closed(2, now_, {.is_new = false});
  ask_to_shrink(1, milliseconds(200));
  run_for(grace::kSuccession, {1});
  // Rank 4 alone may live elsewhere, and rank 1 is the lower one.
  EXPECT_THAT(lines_.steps[1], ElementsAre(ShrinkStep::kForm));
}

// What it says to them may be lost, and they go on with another one.
TEST_F(ArbiterTest, OfAStandbyCountsThoseAloneThatAnswer) {
  for (const bool do_answer : {false, true}) {
    lines_ = {};
    stand_by(1, 5);
    for (const Rank rank : {1, 2, 3, 4}) come({"job", rank, {0}, {}, {}, {0}});
    run_for(milliseconds(100), {1, 2, 3, 4});
    ask_to_shrink(1, milliseconds(200));
    run_for(milliseconds(400), {1, 2, 3, 4});
    EXPECT_THAT(lines_.steps[1], ElementsAre(ShrinkStep::kForm));
    EXPECT_THAT(lines_.steps[2], ElementsAre(ShrinkStep::kLeftOut));
    answer(1, ShrinkStep::kReady);
    if (do_answer) answer(3, ShrinkStep::kKnows);
    if (do_answer) answer(4, ShrinkStep::kKnows);
    run_for(milliseconds(200) + kSilence + kSuspectTime, {1, 2, 3, 4});
    EXPECT_THAT(lines_.steps[1], ElementsAre(ShrinkStep::kForm,
                                             do_answer ? ShrinkStep::kDone : ShrinkStep::kRefused));
  }
}

// As after a stop of its process, until it hears the arbiter again.
TEST_F(ArbiterTest, OfAStandbyDoesNotSayThatTheArbiterLivesWhereItsRankHasNotHeardItLately) {
  stand_by(1, 5);
  own_rank_heard_at_ = now_ - kSilence / 2;
  come({"job", 2, {0}, {}, {}});
  run_for(grace::kOwnRank + milliseconds(200), {});
  EXPECT_THAT(lines_.said[2], ElementsAre(MessageType::kNotKnown, MessageType{}));
  own_rank_heard_at_ = now_;
  come({"job", 3, {0}, {}, {}});
  run_for(grace::kOwnRank + milliseconds(200), {});
  EXPECT_THAT(lines_.said[3], ElementsAre(MessageType::kRefusal, MessageType{}));
}

// It was given up, and came through when the network was back.
TEST_F(ArbiterTest, OfAStandbyKnowsAnAttemptThatIsOlderThanTheOneThatCounts) {
  stand_by(1, 5);
  for (const Rank rank : {1, 2}) come({"job", rank, {0}, {}, {}, {0}, 2});
  arbiter_->on_rejoin(77, {"job", 2, {0}, {}, {}, {0}, 1}, now_);
  EXPECT_THAT(lines_.said[77], ElementsAre(MessageType{}));
  EXPECT_TRUE(arbiter_->is_seated(2));
  arbiter_->on_rejoin(78, {"job", 2, {0}, {}, {}, {0}, 3}, now_);
  EXPECT_TRUE(arbiter_->is_seated(78));
  EXPECT_FALSE(arbiter_->is_seated(2)) << "it has come anew";
}

TEST_F(ArbiterTest, OfAStandbyWhoseRankDoesWithoutOneSendsOthersOn) {
  stand_by(1, 5);
  own_rank_heard_at_ = TimePoint::min();
  come({"job", 2, {0}, {}, {}});
  run_for(grace::kOwnRank + milliseconds(200), {});
  EXPECT_THAT(lines_.said[2], ElementsAre(MessageType::kPartEnded, MessageType{}));
}

TEST_F(ArbiterTest, WhomMostDoNotHearEndsItsPartWhenTheyGoToAnother) {
  meet(5);
  run_for(kSilence, {0, 1, 2, 3, 4});
  for (const Rank rank : {2, 3, 4}) arbiter_->on_message(rank, {MessageType::kMisses, {}}, now_);
  const std::string broken = encode(BrokenLinkMessage{2, "unacknowledged"});
  arbiter_->on_message(0, {MessageType::kBrokenLink, std::string_view(broken).substr(5)}, now_);
  run_for(kSilence, {0, 1, 2, 3, 4});
  EXPECT_THAT(named_to(1), ElementsAre()) << "what is sent there may all be lost";
  say_deposed(2, 2);
  arbiter_->on_closed(2, now_, {});
  run_for(kSilence, {0, 1, 3, 4});
  for (const Rank rank : {0, 1}) {
    ASSERT_FALSE(lines_.decisions[rank].empty());
    EXPECT_EQ(lines_.decisions[rank].front().code, ErrorCode::kPartitioned);
    EXPECT_EQ(lines_.decisions[rank].front().failed_rank, rank);
  }
  EXPECT_EQ(lines_.said[3].front(), MessageType::kPartEnded);
}

// As rank 6, which hears it again, and may go on with those that have gone to another one.
TEST_F(ArbiterTest, WhomMostDoNotHearTellsThoseThatDidNotThatItsEndIsNotTheirs) {
  meet(7);
  run_for(kSilence, {0, 1, 2, 3, 4, 5, 6});
  for (const Rank rank : {2, 3, 4, 5, 6}) {
    arbiter_->on_message(rank, {MessageType::kMisses, {}}, now_);
  }
  arbiter_->on_message(6, {MessageType::kBeat, {}}, now_);
  say_deposed(2, 2);
  EXPECT_THAT(lines_.said[1], ElementsAre(MessageType::kDecision));
  for (const Rank rank : {2, 3, 6}) {
    EXPECT_THAT(lines_.said[rank], ElementsAre(MessageType::kPartEnded)) << "to rank " << rank;
  }
}

TEST_F(ArbiterTest, WhomOneDoesNotHearGoesOnWithTheOthers) {
  meet(5);
  run_for(kSilence, {0, 1, 2, 3, 4});
  arbiter_->on_message(4, {MessageType::kMisses, {}}, now_);
  const std::string broken = encode(BrokenLinkMessage{4, "unacknowledged"});
  arbiter_->on_message(0, {MessageType::kBrokenLink, std::string_view(broken).substr(5)}, now_);
  run_for(kSilence / 2, {0, 1, 2, 3, 4});
  EXPECT_THAT(named_to(1), ElementsAre(4));
  say_deposed(4, -1);
  arbiter_->on_closed(4, now_, {});
  run_for(kSilence, {0, 1, 2, 3});
  EXPECT_THAT(named_to(1), ElementsAre(4));
}

TEST_F(ArbiterTest, ThatServesHearsAGoodbyeOfWhoHadAnother) {
  stand_by(1, 5);
  for (const Rank rank : {1, 2}) come({"job", rank, {0}, {}, {}, {0}});
  come({"job", 3, {}, {3}, {}});
  EXPECT_THAT(lines_.said[3], ElementsAre(MessageType::kDeparted, MessageType{}));
  run_for(grace::kSuccession + milliseconds(200), {1, 2});
  EXPECT_THAT(named_to(2), ElementsAre(0, 4));
}

TEST_F(ArbiterTest, OfAStandbyMissesNobodyBecauseOfAGoodbye) {
  stand_by(1, 5);
  for (const Rank rank : {2, 3}) come({"job", rank, {0}, {rank}, {}});
  EXPECT_EQ(arbiter_->next_due(), kNever);
  run_for(grace::kOwnRank + grace::kSuccession + kSilence, {});
  EXPECT_FALSE(arbiter_->has_taken_over());
  for (const Rank rank : {2, 3}) {
    EXPECT_THAT(lines_.said[rank], ElementsAre(MessageType::kDeparted, MessageType{}));
  }
}

TEST_F(ArbiterTest, OfAStandbyTakesNothingButTheGoodbyeFromWhoLeaves) {
  stand_by(1, 5);
  come({"job", 3, {2}, {3}, {{ErrorCode::kRankFailed, 4, kEveryCommunicator, 0, "died"}}});
  for (const Rank rank : {1, 2, 4}) come({"job", rank, {0}, {}, {}, {0}});
  run_for(grace::kSuccession + milliseconds(200), {1, 2, 4});
  EXPECT_THAT(named_to(2), ElementsAre(0));
}

TEST_F(ArbiterTest, ThatServesTellsThoseThatWaitForWhoSaysGoodbye) {
  stand_by(1, 5);
  for (const Rank rank : {1, 2, 3, 4}) come({"job", rank, {0}, {}, {}, {0}});
  const std::string wait = encode_wait(MessageType::kWaiting, {7, 1, {3}, {}, {}}, 5);
  arbiter_->on_message(2, {MessageType::kWaiting, std::string_view(wait).substr(5)}, now_);
  come({"job", 3, {}, {3}, {}});
  run_for(milliseconds(200), {1, 2, 4});
  EXPECT_THAT(lines_.decisions[2],
              Contains(AllOf(Field(&FailureDecision::code, ErrorCode::kRankLeft),
                             Field(&FailureDecision::failed_rank, 3))));
  EXPECT_THAT(named_to(4), ElementsAre(0));
}

// Ranks 0 and 1 are two of five then, whoever was silent before.
TEST_F(ArbiterTest, DoesNotHearThoseThatWereSilentBefore) {
  meet(5);
  run_for(kSilence * 2, {0, 1, 2, 3});
  EXPECT_THAT(named_to(1), ElementsAre(4));
  run_for(kSilence * 2, {0, 1});
  EXPECT_THAT(named_to(1), ElementsAre(4, 1));
  EXPECT_EQ(lines_.decisions[1].back().code, ErrorCode::kPartitioned);
}

// Ranks 0 and 1 are two of five then: rank 2, which is heard, may be with ranks 3 and 4.
TEST_F(ArbiterTest, DoesNotCountWhoDoesNotHearIt) {
  meet(5);
  arbiter_->on_message(2, {MessageType::kMisses, {}}, now_);
  run_for(kSilence + milliseconds(500), {0, 1, 2});
  for (const Rank rank : {2, 3, 4}) {
    EXPECT_THAT(lines_.said[rank], ElementsAre(MessageType::kPartEnded)) << "to rank " << rank;
  }
  EXPECT_EQ(named_to(1), std::vector<Rank>{1});
}

TEST_F(ArbiterTest, CountsWhoHearsItAgain) {
  meet(5);
  arbiter_->on_message(2, {MessageType::kMisses, {}}, now_);
  arbiter_->on_message(2, {MessageType::kBeat, {}}, now_);
  run_for(kSilence + milliseconds(500), {0, 1, 2});
  EXPECT_EQ(named_to(2), (std::vector<Rank>{3, 4}));
}

TEST_F(ArbiterTest, TellsEachOfTheSmallerPartWhereItsOwnRankHasLeft) {
  meet(6);
  arbiter_->on_message(0, {MessageType::kGoodbye, {}}, now_);
  run_for(kSilence * 2, {1, 4});
  for (const Rank rank : {1, 4}) {
    EXPECT_THAT(lines_.decisions[rank],
                ElementsAre(AllOf(Field(&FailureDecision::code, ErrorCode::kPartitioned),
                                  Field(&FailureDecision::failed_rank, rank))));
  }
}

TEST_F(ArbiterTest, PassesThoseOnThatComeWhereItsPartHasEnded) {
  stand_by(1, 5);
  for (const Rank rank : {1, 2}) come({"job", rank, {}, {}, {}});
  run_for(grace::kSuccession + milliseconds(200), {1, 2});
  EXPECT_EQ(lines_.decisions[2].front().code, ErrorCode::kPartitioned);
  come({"job", 3, {}, {}, {}});
  EXPECT_THAT(lines_.said[3], ElementsAre(MessageType::kPartEnded, MessageType{}));
}

TEST_F(ArbiterTest, TakesNoBeatThatSaysSomething) {
  meet(3);
  arbiter_->on_message(1, {MessageType::kBeat, "x"}, now_);
  EXPECT_FALSE(arbiter_->is_seated(1));
  arbiter_->on_message(2, {MessageType::kMisses, "x"}, now_);
  EXPECT_FALSE(arbiter_->is_seated(2));
}

TEST_F(ArbiterTest, SaysWhatOthersOnItsHostSeeOfARankThatIsSilent) {
  meet(members_on_two_hosts(5));
  run_for(kSilence * 2 / 3 + milliseconds(100), {0, 1, 2, 3});
  EXPECT_THAT(lines_.said[1], ElementsAre(MessageType::kAskSight)) << "once";
  EXPECT_THAT(lines_.said[2], ElementsAre());
  const std::string unasked = encode(SightMessage{4, ProcessSight::kRuns});
  const std::string asked = encode(SightMessage{4, ProcessSight::kStopped});
  arbiter_->on_message(1, {MessageType::kSight, std::string_view(asked).substr(5)}, now_);
  arbiter_->on_message(2, {MessageType::kSight, std::string_view(unasked).substr(5)}, now_);
  run_for(kSilence / 2, {0, 1, 2, 3});
  ASSERT_EQ(named_to(2), std::vector<Rank>{4});
  EXPECT_THAT(lines_.decisions[2].front().message,
              AllOf(HasSubstr("is stopped"), HasSubstr("seen by rank 1")));
}

TEST_F(ArbiterTest, AsksAnewAboutARankThatWasHeardInBetween) {
  meet(members_on_two_hosts(4));
  for (int i = 0; i < 2; ++i) {
    run_for(kSilence * 2 / 3 + milliseconds(100), {0, 1, 2});
    run_for(milliseconds(700), {0, 1, 2, 3});
  }
  EXPECT_THAT(lines_.said[1], ElementsAre(MessageType::kAskSight, MessageType::kAskSight));
  EXPECT_THAT(named_to(1), ElementsAre());
}

TEST_F(ArbiterTest, AsksOneThatIsHeardOnlyLater) {
  meet(members_on_two_hosts(3));
  run_for(kSilence * 2 / 3 + milliseconds(100), {0});
  EXPECT_THAT(lines_.said[1], ElementsAre());
  run_for(milliseconds(700), {0, 1});
  EXPECT_THAT(lines_.said[1], ElementsAre(MessageType::kAskSight));
}

// Its witnesses have spoken since.
TEST_F(ArbiterTest, AsksAboutARankThatIsSilentAfterItWasStoppedItself) {
  meet(members_on_two_hosts(4));
  now_ += kSilence;
  run_for(kSilence * 2 / 3 + milliseconds(100), {0, 1, 2});
  EXPECT_THAT(lines_.said[1], ElementsAre(MessageType::kAskSight));
}

TEST_F(ArbiterTest, SaysThatAWholeHostIsSilent) {
  std::vector<Member> members = members_apart(5);
  members[4].host = members[3].host;
  meet(members);
  run_for(kSilence + milliseconds(500), {0, 1, 2});
  ASSERT_EQ(named_to(1), (std::vector<Rank>{3, 4}));
  for (const FailureDecision& decision : lines_.decisions[1]) {
    EXPECT_THAT(decision.message, HasSubstr("nor is any other rank of its host"));
  }
}

/// All on hosts of their own that can be asked over the network, but those of `without`.
std::vector<Member> members_with_ports(int size, const std::vector<Rank>& without = {}) {
  std::vector<Member> members = members_apart(size);
  for (Member& member : members) {
    const bool has_none = std::find(without.begin(), without.end(), member.rank) != without.end();
    if (!has_none) member.addresses += "\nprobe-udp 7 10.0.0.1";
  }
  return members;
}

TEST_F(ArbiterTest, AsksTwoOtherHostsWhetherTheyReachARankOfWhoseHostNobodyIsHeard) {
  std::vector<Member> members = members_with_ports(7);
  members[1].host = members[0].host;
  meet(members);
  run_for(kSilence * 2 / 3 + milliseconds(100), {0, 1, 3, 4, 5, 6});
  int asked = 0;
  for (const Rank rank : {0, 1, 3, 4, 5, 6}) {
    if (lines_.said[rank].empty()) continue;
    EXPECT_THAT(lines_.said[rank], ElementsAre(MessageType::kAskProbe)) << "rank " << rank;
    EXPECT_GT(rank, 1) << "who is beside the arbiter sees what that sees";
    ++asked;
  }
  EXPECT_EQ(asked, 2);
}

TEST_F(ArbiterTest, SaysWhoReachesARankThatIsSilent) {
  for (const bool is_reached : {true, false}) {
    lines_ = {};
    meet(members_with_ports(4, {1}));
    run_for(kSilence * 2 / 3 + milliseconds(100), {0, 1, 2});
    EXPECT_THAT(lines_.said[2], ElementsAre(MessageType::kAskProbe)) << "once";
    EXPECT_THAT(lines_.said[1], ElementsAre()) << "it has no port";
    const std::string unasked = encode(ProbedMessage{3, !is_reached});
    const std::string asked = encode(ProbedMessage{3, is_reached});
    arbiter_->on_message(2, {MessageType::kProbed, std::string_view(asked).substr(5)}, now_);
    arbiter_->on_message(1, {MessageType::kProbed, std::string_view(unasked).substr(5)}, now_);
    run_for(kSilence / 2, {0, 1, 2});
    ASSERT_EQ(named_to(1), std::vector<Rank>{3});
    EXPECT_THAT(lines_.decisions[1].front().message,
                HasSubstr(is_reached ? "; rank 2 on host host2 reaches it: its process lives"
                                     : "; nor does rank 2 on host host2 reach it by UDP"));
  }
}

TEST_F(ArbiterTest, AsksBothWhereSomeoneIsHeardOnTheHostAndNobodyAboutWhoHasNoPort) {
  std::vector<Member> members = members_with_ports(5, {4});
  members[3].host = members[2].host;
  meet(members);
  run_for(kSilence * 2 / 3 + milliseconds(100), {0, 1, 2});
  EXPECT_THAT(lines_.said[1], ElementsAre(MessageType::kAskProbe)) << "about rank 3";
  EXPECT_THAT(lines_.said[2], ElementsAre(MessageType::kAskSight));
}

}  // namespace
}  // namespace unisono::rendezvous
