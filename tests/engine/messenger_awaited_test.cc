// Messages that a waiting rank takes from the transport by itself: only where nothing that was
// there before can be overtaken, and at the sender's expense as always.
#include "tests/engine/messenger_fixture.h"

namespace unisono::test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr Rank kPeer = 1;
constexpr Tag kTag = 5;
const MessageKey kKey{kCommunicator, FrameClass::kPointToPoint, kTag, 0};

/// A peer is known here once it has sent anything.
struct Awaiting : Fixture {
  Awaiting() {
    frame(kPeer, header_of(FrameKind::kProbe, key_of(0), 0));
    to(kPeer).awaited = filled(100, 3);
  }
  bool take(int looks = 1) { return messenger.take_awaited(kPeer, kKey, room, looks); }

  Bytes room = Bytes(100);
};

TEST(AwaitedMessage, IsTakenOnceItIsThere) {
  Awaiting fixture;
  fixture.to(kPeer).looks_in_vain = 2;
  EXPECT_FALSE(fixture.take(2));
  EXPECT_TRUE(fixture.take());
  EXPECT_EQ(fixture.room, filled(100, 3));
  fixture.to(kPeer).looks_in_vain = 2;
  EXPECT_TRUE(fixture.take(3));
}

TEST(AwaitedMessage, OfAPeerThatHasSaidNothingIsNot) {
  Fixture fixture;
  Bytes room(100);
  fixture.to(kPeer).awaited = filled(100, 3);
  EXPECT_FALSE(fixture.messenger.take_awaited(kPeer, kKey, room, 1));
}

TEST(AwaitedMessage, DoesNotOvertakeAMessageThatHasArrived) {
  Awaiting fixture;
  fixture.frame(kPeer, tagged(FrameKind::kEager, kTag, 0, 100, 100), filled(100, 1));
  EXPECT_FALSE(fixture.take());
  TaggedResult result;
  EXPECT_TRUE(fixture.messenger.receive_tagged(kPeer, kKey, fixture.room.data(), 100, &result,
                                               fixture.owner, 0));
  EXPECT_EQ(fixture.room, filled(100, 1));
  EXPECT_TRUE(fixture.take());
}

TEST(AwaitedMessage, IsNotKeptFromAReceiveThatWasPostedBefore) {
  for (const Rank source : {kPeer, kAnyRank}) {
    Awaiting fixture;
    TaggedResult result;
    Bytes target(100);
    fixture.messenger.receive_tagged(source, kKey, target.data(), 100, &result, fixture.owner, 0);
    EXPECT_FALSE(fixture.take());
    fixture.frame(kPeer, tagged(FrameKind::kEager, kTag, 0, 100, 100), filled(100, 1));
    EXPECT_EQ(target, filled(100, 1));
    EXPECT_TRUE(fixture.take());
  }
}

TEST(AwaitedMessage, OfAClosedOrDisbelievedPeerIsNot) {
  Awaiting closed;
  closed.messenger.closed(kPeer, Status());
  EXPECT_FALSE(closed.take());

  Awaiting broken;
  broken.frame(kPeer, tagged(FrameKind::kGrant, kTag, 0, 100));
  ASSERT_THAT(broken.events.violations, SizeIs(1));
  EXPECT_FALSE(broken.take());
}

TEST(AwaitedMessage, GivesItsCreditBack) {
  Awaiting fixture;
  for (std::size_t taken = 0; taken < kCreditBytes; taken += 100) ASSERT_TRUE(fixture.take());
  EXPECT_THAT(fixture.events.violations, IsEmpty());
  std::size_t returned = 0;
  for (const FrameHeader& header : fixture.to(kPeer).of(FrameKind::kCredit)) {
    returned += static_cast<std::size_t>(header.total_bytes);
  }
  EXPECT_GE(returned, kCreditBytes / 2);
}

TEST(AwaitedMessage, BringsCreditThatWasSpent) {
  Awaiting fixture;
  fixture.to(kPeer).awaited_credit = 100;
  EXPECT_TRUE(fixture.take());
  EXPECT_THAT(fixture.events.violations, SizeIs(1)) << "nothing was";
}

// What comes first may have been waiting for the credit that it brings.
TEST(AwaitedMessage, IsNotTakenWhileSomethingWaitsForCredit) {
  Awaiting fixture;
  const Bytes payload(kEagerBytes);
  for (std::uint64_t sequence = 0; sequence <= kCreditBytes / kEagerBytes; ++sequence) {
    EXPECT_TRUE(fixture.take());
    fixture.messenger.send(kPeer, key_of(sequence), {}, payload, fixture.owner, 0);
  }
  EXPECT_FALSE(fixture.take());
}

TEST(AwaitedMessage, ThatCostsMoreThanThePeerMayHaveIsNot) {
  Awaiting fixture;
  for (const std::size_t bytes : {kCreditBytes - sizeof(FrameHeader) + 1, kCreditBytes}) {
    fixture.room.resize(bytes);
    fixture.to(kPeer).awaited = filled(bytes, 3);
    EXPECT_FALSE(fixture.take()) << bytes;
  }
}

}  // namespace
}  // namespace unisono::test
