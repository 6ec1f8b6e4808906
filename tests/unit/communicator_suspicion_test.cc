// How a communicator fails because a member has closed it: what this rank has seen is a suspicion
// until the job has said what all hear, or has had its time. The arbiter is the test's, as is time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/grace_periods.h"
#include "comm/watched_communicator.h"
#include "rendezvous/messages/arbiter_connection.h"
#include "tests/engine/messenger_fixture.h"

namespace unisono {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kRanks = 10;
// More than it takes to miss a member, and less than the job has for its word.
constexpr Duration kWhile = milliseconds(500);
constexpr int kLooks = 2 * grace::kLooksAfterGoodbye;

/// Writes down which failures it is told.
class Arbiter final : public rendezvous::ArbiterConnection {
 public:
  bool has_news() const override { return !unheard.empty(); }
  rendezvous::ArbiterNews take_news() override {
    rendezvous::ArbiterNews news;
    news.decisions = std::exchange(unheard, {});
    return news;
  }
  void catch_up() override { unheard = std::exchange(unread, {}); }
  bool is_lost() const override { return lost; }
  bool is_last() const override { return false; }
  std::chrono::milliseconds silence() const override { return {}; }
  Status partition() const override { return {}; }
  void report(std::string) override {}
  void report_lasting(std::string bytes) override {
    const std::string_view body = std::string_view(bytes).substr(5);
    if (static_cast<rendezvous::MessageType>(bytes[4]) == rendezvous::MessageType::kFailure) {
      told.push_back(*rendezvous::decode_decision(body, kRanks));
    }
  }
  void report_broken_link(Rank, const Status&) override {}
  void report_timeout(const rendezvous::WaitMessage&) override {}
  void withdraw_timeout(const rendezvous::WaitMessage&) override {}
  void report_waiting(const rendezvous::WaitMessage&) override {}
  void say_shrink(const rendezvous::ShrinkMessage&) override {}
  void leave() override {}

  bool lost = false;
  std::vector<FailureDecision> told, unheard, unread;
};

class QuietJob final : public WatchedJob {
 public:
  using WatchedJob::WatchedJob;

  void probe(Rank, std::uint32_t, std::uint64_t, const CallRecord&) override {}
  void compare_call(std::uint32_t, std::uint64_t, const CallRecord&) override {}
  void report_waiting(const rendezvous::WaitMessage&) override {}
  void report_timeout(const rendezvous::WaitMessage&) override {}
  void withdraw_timeout(std::uint32_t, std::uint64_t) override {}
};

/// Rank 0 of three, which share no memory.
class Communicator final : public detail::WatchedCommunicator {
 public:
  using Surroundings = WatchedCommunicator::Surroundings;
  Communicator(const Surroundings& around, CallSelection::Circumstances circumstances)
      : WatchedCommunicator(around, Members(1, {4, 2, 9}, 0), std::move(circumstances), nullptr) {}

  void receive_from(Rank peer, void* to) {
    detail::RequestState* const request = begin_message({.collective = Collective::kReceive,
                                                         .out = to,
                                                         .count = 1,
                                                         .type = DataType::kUint8,
                                                         .peer = peer},
                                                        1);
    ASSERT_NE(request, nullptr);
    around_.engine.start(*request);
  }
  void close() { close_here(); }
  bool is_suspected() const { return failure_.is_suspected(); }

  TimePoint at = TimePoint() + std::chrono::hours(1);

 private:
  TimePoint now() const override { return at; }
};

/// It receives from member 1 of its communicator, world rank 2.
class SuspicionTest : public testing::Test {
 protected:
  SuspicionTest() {
    for (Rank peer = 0; peer < kRanks; ++peer) engine_.messenger().set_route(peer, outbox_);
    const Engine::Lock lock(engine_);
    communicator_.enlist();
    communicator_.receive_from(1, &received_);
  }
  ~SuspicionTest() override {
    const Engine::Lock lock(engine_);
    communicator_.close();
  }
  void look_for(Duration time) {
    const Engine::Lock lock(engine_);
    for (int look = 0; look < kLooks; ++look) {
      communicator_.at += time / kLooks;
      communicator_.tend(peer_left_);
    }
  }

  Arbiter* const arbiter_ = new Arbiter;
  ArbiterClient client_{World{.rank = 4, .size = kRanks},
                        std::unique_ptr<rendezvous::ArbiterConnection>(arbiter_)};
  JobNews news_{client_, kRanks};
  test::OutboxTransport outbox_;
  Engine engine_{news_, kRanks, 0, IdleChoice("yield", {})};
  ScratchPool scratch_{1024};
  QuietJob job_{engine_.messenger(), client_, {seconds(100), seconds(1000)}};
  const algorithms::SelectionTable table_ = algorithms::SelectionTable::defaults();
  const algorithms::Hints hints_;
  const algorithms::LinkFacts links_;
  Communicator communicator_{
      {.engine = engine_, .scratch = scratch_, .news = news_, .arbiter = client_, .job = job_},
      {.table = table_,
       .hints = hints_,
       .ranks = 3,
       .link = algorithms::Link::kTcp,
       .links = links_}};
  std::vector<bool> peer_left_ = std::vector<bool>(kRanks, false);
  char received_ = 0;
};

TEST_F(SuspicionTest, OfAMemberThatHasLeftIsTheJobsToJudge) {
  communicator_.note_left(1);
  look_for(kWhile);
  EXPECT_TRUE(communicator_.is_suspected());
  EXPECT_TRUE(communicator_.usable()) << "others may miss somebody else";
  ASSERT_THAT(arbiter_->told, SizeIs(1));
  EXPECT_EQ(arbiter_->told[0].code, ErrorCode::kRankLeft);
  EXPECT_EQ(arbiter_->told[0].failed_rank, 2);
  EXPECT_EQ(arbiter_->told[0].communicator, 1u);
}

TEST_F(SuspicionTest, GivesWayToWhatTheJobSays) {
  communicator_.note_left(1);
  look_for(kWhile);
  news_.hear({ErrorCode::kRankLeft, 9, 1, 0, "what the arbiter heard first"});
  EXPECT_EQ(communicator_.usable().rank(), 2);
  EXPECT_EQ(communicator_.usable().message(), "what the arbiter heard first");
  look_for(2 * grace::kDecision);
  EXPECT_EQ(communicator_.usable().rank(), 2) << "the first cause stands";
  EXPECT_THAT(arbiter_->told, SizeIs(1));
}

TEST_F(SuspicionTest, IsTheCauseOnceTheJobHasHadItsTime) {
  communicator_.note_left(1);
  look_for(kWhile);
  look_for(grace::kDecision - kWhile);
  EXPECT_TRUE(communicator_.usable());
  look_for(kWhile);
  EXPECT_EQ(communicator_.usable().code(), ErrorCode::kRankLeft);
  EXPECT_EQ(communicator_.usable().rank(), 1);
}

// What it sees may only follow from that.
TEST_F(SuspicionTest, IsNoneWhereTheJobHasSpokenAlready) {
  communicator_.note_left(1);
  arbiter_->unread.push_back({ErrorCode::kRankFailed, 9, kEveryCommunicator, 0, "died"});
  look_for(kWhile);
  EXPECT_EQ(communicator_.usable().message(), "died (ranks as the job numbers them)");
  EXPECT_THAT(arbiter_->told, IsEmpty());
}

// Its ranks are not those of the part.
TEST_F(SuspicionTest, OfAPartThatWasNotMadeSaysWhoseRanksItNames) {
  communicator_.fail_part(50, {ErrorCode::kOutOfResources, "rank 1 has no memory", 1});
  ASSERT_EQ(arbiter_->told.size(), 1u);
  EXPECT_EQ(arbiter_->told[0].communicator, 50u);
  EXPECT_EQ(arbiter_->told[0].failed_rank, 2);
  EXPECT_EQ(arbiter_->told[0].message,
            "the communicator that was split has failed: rank 1 has no memory (ranks as that one "
            "numbers them)");
}

TEST_F(SuspicionTest, IsTheCauseAtOnceWhereNobodyAnswers) {
  arbiter_->lost = true;
  communicator_.note_left(1);
  look_for(kWhile);
  EXPECT_EQ(communicator_.usable().code(), ErrorCode::kRankLeft);
  EXPECT_EQ(communicator_.usable().rank(), 1);
}

}  // namespace
}  // namespace unisono
