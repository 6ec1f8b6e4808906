// A launcher that asks, and a launcher of node 0 that is the test.
#include "tools/run/asking_control.h"

#include <gmock/gmock.h>

#include "rendezvous/sockets/sockets.h"
#include "rendezvous/store/launcher_store.h"
#include "tools/run/node_messages.h"

namespace unisono::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = Order::Kind;

class AskingControlTest : public testing::Test {
 protected:
  AskingControlTest() {
    auto ends = std::move(*rendezvous::connected_pair());
    far_.emplace(std::move(ends.first));
    const NodeOptions options{.shape = {.node_count = 2, .local_size = 2, .max_restarts = 3},
                              .node = 1};
    control_.emplace(options, &store_, rendezvous::ControlStream(std::move(ends.second)));
  }

  // The ranks of this node have told its store so.
  void meet() {
    store_.answer_others_by([](const Asker&, const std::string&) {});
    const std::string told = *rendezvous::to_bytes(
        {rendezvous::StoreRequest::Kind::kSet, rendezvous::met_key(0), "yes"});
    EXPECT_TRUE(store_.ask({}, told));
  }

  void say(std::string message) {
    far_->queue(std::move(message));
    EXPECT_TRUE(far_->flush());
  }
  void start_all() { say(encode(Order{.kind = Kind::kStartAll, .meeting = {0, 29501, "id"}})); }
  std::vector<Kind> orders() {
    control_->serve({});
    std::vector<Kind> kinds;
    while (auto order = control_->next_order()) {
      kinds.push_back(order->kind);
      last_ = *std::move(order);
    }
    return kinds;
  }

  StoreServer store_ = *StoreServer::start();
  std::optional<rendezvous::ControlStream> far_;
  std::optional<AskingControl> control_;
  Order last_;
};

TEST_F(AskingControlTest, IsToldWhatToDo) {
  EXPECT_THAT(orders(), IsEmpty());
  start_all();
  EXPECT_THAT(orders(), ElementsAre(Kind::kStartAll));
  control_->tell({Event::Kind::kFailed, 3, {7, "rank 3 failed"}});
  EXPECT_THAT(orders(), IsEmpty());
  ASSERT_TRUE(far_->receive());
  const auto heard = far_->next();
  ASSERT_TRUE(heard && *heard);
  EXPECT_EQ(type_of(**heard), NodeMessage::kEvent);
}

TEST_F(AskingControlTest, DecidesAloneWhatNobodyDoesAnyMore) {
  start_all();
  meet();
  orders();
  control_->tell({Event::Kind::kFailed, 3, {7, "rank 3 failed"}});
  say(encode(Order{.kind = Kind::kClear, .rank = 3, .text = "starting it again"}));
  EXPECT_THAT(orders(), ElementsAre(Kind::kClear));
  far_->close();
  EXPECT_THAT(orders(), ElementsAre(Kind::kSay, Kind::kFail));
  EXPECT_EQ(last_.failure.exit_status, 7);
  control_->tell({Event::Kind::kExited, 2});
  EXPECT_THAT(orders(), ElementsAre(Kind::kOver));
}

TEST_F(AskingControlTest, FailsWhereNothingHasStarted) {
  far_->close();
  EXPECT_THAT(orders(), ElementsAre(Kind::kFail, Kind::kOver));
}

// They would wait in init() for ranks of node 0.
TEST_F(AskingControlTest, FailsWhereTheRanksHaveNotMet) {
  start_all();
  orders();
  far_->close();
  EXPECT_THAT(orders(), ElementsAre(Kind::kFail));
  EXPECT_EQ(last_.failure.what,
            "the launcher of node 0 is lost: its connection was closed before all ranks had met");
}

TEST_F(AskingControlTest, TakesNonsenseForALoss) {
  start_all();
  meet();
  orders();
  say(encode(NodeMessage::kWelcome));
  EXPECT_THAT(orders(), ElementsAre(Kind::kSay));
  EXPECT_THAT(last_.text, HasSubstr("node 0 is lost: it spoke out of turn; the ranks go on"));
}

// Their launcher may have come later than the ranks met.
TEST_F(AskingControlTest, RanksThatHaveRejoinedGoOn) {
  for (const int rank : {2, 3}) {
    say(encode(Order{.kind = Kind::kStart, .rank = rank, .meeting = {1, 29501, "id"}}));
  }
  EXPECT_THAT(orders(), ElementsAre(Kind::kStart, Kind::kStart));
  far_->close();
  EXPECT_THAT(orders(), ElementsAre(Kind::kSay));
}

TEST_F(AskingControlTest, FailsWhereAllWereToStartAgain) {
  start_all();
  meet();
  say(encode(Order{.kind = Kind::kEndAll}));
  orders();
  far_->close();
  EXPECT_THAT(orders(), ElementsAre(Kind::kFail));
}

TEST_F(AskingControlTest, IsNotAloneWhereTheJobIsOver) {
  start_all();
  say(encode(Order{.kind = Kind::kOver}));
  far_->close();
  EXPECT_THAT(orders(), ElementsAre(Kind::kStartAll, Kind::kOver));
}

}  // namespace
}  // namespace unisono::run
