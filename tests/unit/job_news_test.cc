// Whom news of the job are told to, and that communicators which are made later hear them as well.
// The arbiter is that of a world of one, which says nothing: the test speaks in its place.
#include "comm/job_news.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <string>
#include <vector>

#include "base/communicator_id.h"
#include "tests/support/log_guard.h"

namespace unisono {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Writes down what it is told, with the names of ranks in it.
class Told final : public JobCommunicator {
 public:
  /// This rank is the first member.
  Told(std::uint32_t id, std::vector<Rank> world_ranks) : members_(id, std::move(world_ranks), 0) {}

  const Members& members() const override { return members_; }
  const CallRecord* find_call(std::uint64_t sequence) const override {
    return sequence == 5 ? &call_ : nullptr;
  }
  rendezvous::CallsMessage own_calls() const override {
    ++times_asked;
    return {members_.id(), 0, members_.world_ranks(), {}, {}};
  }
  void add_waits(std::vector<rendezvous::WaitMessage>* waits) override {
    waits->push_back({members_.id(), 5, {}});
  }
  void fail(Status cause, Tell tell) override {
    if (lacks_memory) throw std::bad_alloc();
    told.push_back("failed by " + std::to_string(cause.rank()) + ": " + cause.message() +
                   (tell == Tell::kEveryone ? ", to tell everyone" : ""));
  }
  void fail_without_memory() override { told.push_back("failed without memory"); }
  void disagree(const Status& seen) override {
    told.push_back("differs from " + std::to_string(seen.rank()) + ": " + seen.message());
  }
  void note_left(Rank member) override { told.push_back("left by " + std::to_string(member)); }
  void tend(const std::vector<bool>& peer_left) override {
    if (lacks_memory) throw std::bad_alloc();
    peer_left_ = peer_left;
  }

  std::vector<std::string> told;
  std::vector<bool> peer_left_;
  bool lacks_memory = false;
  mutable int times_asked = 0;

 private:
  const Members members_;
  const CallRecord call_;
};

class JobNewsTest : public ::testing::Test {
 protected:
  static FailureDecision death_of(Rank rank) {
    return {ErrorCode::kRankFailed, rank, kEveryCommunicator, 0, "died"};
  }
  static FailureDecision on(std::uint32_t communicator, Rank rank, const std::string& message) {
    return {ErrorCode::kMismatch, rank, communicator, 0, message};
  }
  static FailureDecision leaving_of(Rank rank) {
    return {ErrorCode::kRankLeft, rank, kEveryCommunicator, 0, "left"};
  }

  const std::unique_ptr<ArbiterClient> arbiter_ =
      std::move(*ArbiterClient::join({}, 1, Member{}, kNever));
  JobNews news_{*arbiter_, 10};
  Told small_{1, {4, 2}};
  Told large_{2, {4, 2, 9}};
  const std::string died_ = "died (ranks as the job numbers them)";
};

TEST_F(JobNewsTest, TellsADeathToThoseThatHaveTheRank) {
  news_.add(small_);
  news_.add(large_);
  news_.hear(death_of(9));
  EXPECT_THAT(small_.told, IsEmpty());
  EXPECT_THAT(large_.told, ElementsAre("failed by 2: " + died_));
  EXPECT_TRUE(news_.is_gone(9));
  EXPECT_FALSE(news_.is_gone(2));
  EXPECT_THAT(news_.take_dead(), ElementsAre(9));
  EXPECT_THAT(news_.take_dead(), IsEmpty()) << "each once";
}

TEST_F(JobNewsTest, SaysWhoseRanksADeathNamesWhereTheyAreOthers) {
  Told world(kWorldId, {0, 1, 2});
  news_.add(world);
  news_.add(small_);
  news_.hear(death_of(2));
  EXPECT_THAT(world.told, ElementsAre("failed by 2: died"));
  EXPECT_THAT(small_.told, ElementsAre("failed by 1: " + died_));
}

TEST_F(JobNewsTest, TellsADecisionOnACommunicatorToItAlone) {
  news_.add(small_);
  news_.add(large_);
  news_.hear(on(1, 2, "differs"));
  EXPECT_THAT(small_.told, ElementsAre("failed by 1: differs"));
  EXPECT_THAT(large_.told, IsEmpty());
}

TEST_F(JobNewsTest, TellsWhatCameBeforeACommunicatorWasMade) {
  news_.hear(on(2, 2, "first"));
  news_.hear(on(1, 2, "of another"));
  news_.hear(on(2, 9, "second"));
  news_.hear(death_of(9));
  news_.add(large_);
  EXPECT_THAT(large_.told,
              ElementsAre("failed by 2: " + died_, "failed by 1: first", "failed by 2: second"));
  Told again(2, {4, 2});
  news_.add(again);
  EXPECT_THAT(again.told, IsEmpty()) << "told once";
}

TEST_F(JobNewsTest, RemembersTheLatestOfCommunicatorsThatDoNotExist) {
  news_.hear(on(1, 2, "long ago"));
  news_.hear(on(2, 2, "late"));
  for (std::uint32_t id = 100; id < 355; ++id) news_.hear(on(id, 2, ""));
  news_.add(small_);
  news_.add(large_);
  EXPECT_THAT(small_.told, IsEmpty());
  EXPECT_THAT(large_.told, ElementsAre("failed by 1: late"));
}

TEST_F(JobNewsTest, ARankThatLeftIsNoFailureByItself) {
  news_.add(large_);
  news_.hear(leaving_of(9));
  news_.link_closed(2, Status());
  news_.tend();
  EXPECT_THAT(large_.told, IsEmpty());
  EXPECT_TRUE(large_.peer_left_[9]);
  EXPECT_TRUE(large_.peer_left_[2]);
  EXPECT_FALSE(large_.peer_left_[4]);
  EXPECT_TRUE(news_.is_gone(9));
}

TEST_F(JobNewsTest, NamesTheFirstThatWillNeverCome) {
  EXPECT_TRUE(news_.find_lost({2, 9}));
  news_.hear(leaving_of(2));
  EXPECT_EQ(news_.find_lost({2, 9}).code(), ErrorCode::kRankLeft);
  EXPECT_EQ(news_.find_lost({2, 9}).rank(), 2);
  news_.hear(death_of(9));
  EXPECT_EQ(news_.find_lost({2, 9}).rank(), 9) << "a death says more";
  EXPECT_TRUE(news_.find_lost({4}));
}

TEST_F(JobNewsTest, TellsWhatTheMessengerSawWhenAskedTo) {
  news_.add(large_);
  news_.left(2, 9);
  news_.violation(2, 2, "sent nonsense");
  news_.counts_differ(2, 9, "sends 3 bytes");
  news_.violation(7, 2, "of no communicator");
  EXPECT_THAT(large_.told, IsEmpty());
  news_.tell_events();
  EXPECT_THAT(large_.told,
              ElementsAre("left by 2", "failed by 1: rank 1 sent nonsense, to tell everyone",
                          "differs from 2: the counts of rank 0 and rank 2 differ: the latter "
                          "sends 3 bytes"));
  news_.tell_events();
  EXPECT_EQ(large_.told.size(), 3u) << "told once";
}

TEST_F(JobNewsTest, SaysWhichCallsDiffer) {
  news_.add(large_);
  CallRecord ours, theirs;
  ours.collective = static_cast<std::uint8_t>(Collective::kBarrier);
  theirs.collective = static_cast<std::uint8_t>(Collective::kScan);
  news_.mismatch(2, 9, theirs, ours);
  news_.tell_events();
  ASSERT_EQ(large_.told.size(), 1u);
  EXPECT_THAT(large_.told[0], HasSubstr("differs from 2: rank 0 called barrier"));
  EXPECT_THAT(large_.told[0], HasSubstr("while rank 2 called scan"));
}

// The peer may be another failure's victim.
TEST_F(JobNewsTest, LeavesABrokenLinkToTheArbiter) {
  news_.add(large_);
  news_.link_closed(9, Status(ErrorCode::kRankFailed, "reset"));
  news_.tend();
  EXPECT_THAT(large_.told, IsEmpty());
  EXPECT_FALSE(news_.is_gone(9));
}

// No link tells whose it is, so nobody else is suspected.
TEST_F(JobNewsTest, TellsItsOwnFailureAtOnce) {
  Told world(kWorldId, {0, 9});
  news_.add(world);
  news_.add(large_);
  news_.link_closed(9, Status(ErrorCode::kOutOfResources, "no memory", 0));
  news_.tend();
  EXPECT_THAT(world.told, ElementsAre("failed by 0: no memory"));
  EXPECT_THAT(large_.told, IsEmpty()) << "this rank is no member";
  EXPECT_FALSE(news_.is_gone(9));
  Told later(3, {0, 2});
  news_.add(later);
  EXPECT_EQ(later.told.size(), 1U);
}

TEST_F(JobNewsTest, TellsWhereThisRankHadNoMemory) {
  Told world(kWorldId, {0, 9}), other(3, {2, 0});
  news_.add(world);
  news_.add(other);
  news_.no_memory(3);
  news_.tell_events();
  EXPECT_THAT(world.told, IsEmpty());
  EXPECT_THAT(other.told, ElementsAre("failed by 1: rank 1 has no memory left for what the others "
                                      "send, to tell everyone"));
  news_.no_memory(kEveryCommunicator);
  news_.tell_events();
  news_.tell_events();
  EXPECT_THAT(world.told, ElementsAre("failed by 0: rank 0 has no memory left"));
}

TEST_F(JobNewsTest, LooksAfterTheOthersWhereOneLacksMemory) {
  news_.add(small_);
  news_.add(large_);
  small_.lacks_memory = true;
  news_.hear(leaving_of(9));
  EXPECT_THROW(news_.tend(), std::bad_alloc);
  ASSERT_EQ(large_.peer_left_.size(), 10U);
  EXPECT_TRUE(large_.peer_left_[9]);
}

TEST_F(JobNewsTest, EndsTheCallsOfAllWhereItCannotTellThatThereIsNoMemory) {
  Told world(kWorldId, {0, 9}), other(3, {2, 0});
  news_.add(world);
  news_.add(other);
  world.lacks_memory = true;
  news_.no_memory(kEveryCommunicator);
  EXPECT_THROW(news_.tend(), std::bad_alloc);
  EXPECT_THAT(world.told, ElementsAre("failed without memory"));
  EXPECT_THAT(other.told, ElementsAre("failed without memory"));
  world.lacks_memory = false;
  news_.tend();
  EXPECT_THAT(world.told,
              ElementsAre("failed without memory", "failed by 0: rank 0 has no memory left"));
}

TEST_F(JobNewsTest, AnswersQuestionsOnceTheCommunicatorIsMade) {
  news_.ask(2);
  news_.tend();
  news_.add(large_);
  EXPECT_EQ(large_.times_asked, 0);
  news_.tend();
  news_.tend();
  EXPECT_EQ(large_.times_asked, 1);
}

TEST_F(JobNewsTest, KnowsTheCallsOfItsCommunicators) {
  news_.add(small_);
  EXPECT_NE(news_.find_call(1, 5), nullptr);
  EXPECT_EQ(news_.find_call(1, 6), nullptr);
  EXPECT_EQ(news_.find_call(2, 5), nullptr);
}

TEST_F(JobNewsTest, KnowsTheLastCommunicator) {
  news_.add(small_);
  news_.add(large_);
  EXPECT_FALSE(news_.remove(small_));
  EXPECT_TRUE(news_.remove(large_));
  EXPECT_FALSE(news_.remove(large_)) << "it was removed before";
  news_.hear(death_of(9));
  EXPECT_THAT(large_.told, IsEmpty());
}

TEST_F(JobNewsTest, WarnsOfAStranger) {
  test::LogGuard log;
  log.expect("rank 9, no member of communicator 1, has sent to rank 0 in it");
  news_.stranger(1, 9);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("(ranks as the job numbers them)")));
}

}  // namespace
}  // namespace unisono
