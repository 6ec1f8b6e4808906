// The backend for sends and receives: a message from its start to its end, as rank 0 of three sees
// it whose peers the test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "backend/message_backend.h"
#include "backend/started_call.h"
#include "tests/engine/messenger_fixture.h"
#include "tests/support/awaited_ranks.h"

namespace unisono::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr Tag kTag = 5;
constexpr std::size_t kShort = 100;
constexpr std::size_t kLong = kEagerBytes + 100;

class MessageBackendTest : public ::testing::Test {
 protected:
  Call send_of(std::size_t bytes) {
    return {.collective = Collective::kSend,
            .in = buffer_.data(),
            .count = bytes,
            .type = DataType::kUint8,
            .peer = 1,
            .tag = kTag};
  }
  Call receive_of(Rank peer, std::size_t bytes = kShort) {
    return {.collective = Collective::kReceive,
            .out = buffer_.data(),
            .count = bytes,
            .type = DataType::kUint8,
            .peer = peer,
            .tag = kTag};
  }
  Operation& start(const Call& what) {
    call_.reset(what);
    return **backend_.start(call_, {});
  }
  void hear_of(Rank peer, const Bytes& payload) {
    const std::size_t bytes = payload.size();
    peers_.frame(peer, tagged(FrameKind::kEager, kTag, heard_++, bytes, bytes), payload);
  }
  const Traffic& moved_with(Rank peer) const {
    return traffic_.report().by_peer[static_cast<std::size_t>(peer)];
  }
  std::uint64_t calls_of(Collective collective) const {
    return traffic_.report().calls[static_cast<std::size_t>(collective)];
  }

  Fixture peers_;
  const Members members_{kCommunicator, {0, 1, 2}, 0};
  TrafficCounter traffic_{3};
  recorder::CallRecorder recorder_{nullptr, kCommunicator};
  MessageBackend backend_{peers_.messenger, members_, traffic_, recorder_};
  StartedCall call_;
  Bytes buffer_ = filled(kLong, 1);
  std::uint64_t heard_ = 0;
};

TEST_F(MessageBackendTest, EndsAShortSendThatIsTried) {
  EXPECT_EQ(backend_.try_run(call_, send_of(kShort)), Tried::kOver);
  EXPECT_THAT(peers_.to(1).of(FrameKind::kEager), SizeIs(1));
  EXPECT_EQ(moved_with(1), (Traffic{.messages_sent = 1, .bytes_sent = kShort}));
  EXPECT_EQ(calls_of(Collective::kSend), 1u);
}

TEST_F(MessageBackendTest, GoesOnWithALongSendUntilItsPeerHasRoom) {
  const Call send = send_of(kLong);
  ASSERT_EQ(backend_.try_run(call_, send), Tried::kGoesOn);
  call_.reset(send);
  Operation& operation = *backend_.go_on(call_);
  EXPECT_EQ(call_.backend, &backend_);
  EXPECT_FALSE(operation.advance());
  EXPECT_THAT(awaited_by(operation), ElementsAre(1));
  peers_.frame(1, tagged(FrameKind::kGrant, kTag, 0, kLong));
  peers_.poll();
  EXPECT_TRUE(operation.advance());
  EXPECT_EQ(moved_with(1), Traffic()) << "before the end";
  backend_.end(call_, true);
  EXPECT_EQ(moved_with(1), (Traffic{.messages_sent = 1, .bytes_sent = kLong}));
}

TEST_F(MessageBackendTest, NumbersTheMessagesToEachPeer) {
  for (std::uint64_t number = 0; number < 3; ++number) {
    start(send_of(kShort));
    EXPECT_EQ(call_.sequence, number);
  }
  Call other = send_of(kShort);
  other.peer = 2;
  start(other);
  EXPECT_EQ(call_.sequence, 0u);
}

TEST_F(MessageBackendTest, ReceivesWhatItsPeerSends) {
  Operation& operation = start(receive_of(2));
  EXPECT_FALSE(operation.advance());
  EXPECT_THAT(awaited_by(operation), ElementsAre(2));
  hear_of(2, filled(kShort, 3));
  EXPECT_TRUE(operation.advance());
  EXPECT_TRUE(backend_.check_received(call_.call, call_.message.result()));
  backend_.end(call_, true);
  EXPECT_EQ(Bytes(buffer_.begin(), buffer_.begin() + kShort), filled(kShort, 3));
  EXPECT_EQ(moved_with(2), (Traffic{.messages_received = 1, .bytes_received = kShort}));
}

TEST_F(MessageBackendTest, ReceivesOfAnyMember) {
  Operation& operation = start(receive_of(kAnyRank));
  EXPECT_THAT(awaited_by(operation), ElementsAre(kAnyRank));
  hear_of(2, filled(kShort, 3));
  EXPECT_TRUE(operation.advance());
  EXPECT_EQ(call_.message.result().peer, 2);
  backend_.end(call_, true);
  EXPECT_EQ(moved_with(2), (Traffic{.messages_received = 1, .bytes_received = kShort}));
}

TEST_F(MessageBackendTest, RefusesAndCountsNoMessageThatDoesNotFit) {
  Operation& operation = start(receive_of(1, kShort - 1));
  hear_of(1, filled(kShort, 3));
  EXPECT_TRUE(operation.advance());
  EXPECT_TRUE(operation.status()) << "the communicator goes on";
  const Status seen = backend_.check_received(call_.call, call_.message.result());
  EXPECT_EQ(seen.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(seen.rank(), 1);
  EXPECT_THAT(seen.message(), HasSubstr("has 100 bytes and the room is 99"));
  backend_.end(call_, true);
  EXPECT_EQ(moved_with(1), Traffic());
}

TEST_F(MessageBackendTest, GivesTheBufferOfAFailedReceiveBack) {
  Operation& operation = start(receive_of(1));
  operation.fail(Status(ErrorCode::kRankFailed, "gone", 2));
  EXPECT_EQ(operation.status().rank(), 2);
  hear_of(1, filled(kShort, 3));
  EXPECT_EQ(buffer_, filled(kLong, 1));
  backend_.end(call_, false);
  EXPECT_EQ(moved_with(1), Traffic());
}

TEST_F(MessageBackendTest, TakesAnAwaitedMessageWithinItsLooks) {
  start(receive_of(1));
  hear_of(1, filled(kShort, 2));  // what a peer says first is not looked for
  Outbox& sender = peers_.to(1);
  sender.awaited = filled(kShort, 3);
  sender.looks_in_vain = 2;
  EXPECT_FALSE(backend_.try_receive(receive_of(1), 2));
  EXPECT_EQ(calls_of(Collective::kReceive), 0u);
  EXPECT_TRUE(backend_.try_receive(receive_of(1), 1));
  EXPECT_EQ(Bytes(buffer_.begin(), buffer_.begin() + kShort), filled(kShort, 3));
  EXPECT_EQ(calls_of(Collective::kReceive), 1u);
  EXPECT_EQ(moved_with(1), (Traffic{.messages_received = 1, .bytes_received = kShort}));
  EXPECT_FALSE(backend_.try_receive(receive_of(kAnyRank), 1)) << "it has to be posted";
  EXPECT_FALSE(backend_.try_receive(receive_of(1, kShort - 1), 1)) << "another length";
}

}  // namespace
}  // namespace unisono::test
