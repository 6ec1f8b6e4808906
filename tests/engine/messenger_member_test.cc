// Who is heard in a communicator: its members, and before this rank knows who they are anybody, for
// the time being and within bounds.
#include "tests/engine/messenger_rig.h"

namespace unisono::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = Placement::Kind;

constexpr Rank kMember = 1;
constexpr Rank kStranger = 3;

const std::vector<Rank> kMembers{0, 1, 2};

MessageKey tag_key(Tag tag) { return {kCommunicator, FrameClass::kPointToPoint, tag, 0}; }

TEST(Stranger, IsNotMatchedWithAnyReceive) {
  Rig rig;
  Bytes room(100), target(100);
  TaggedResult result;
  rig.messenger.receive_tagged(kAnyRank, tag_key(5), room.data(), 100, &result, rig.owner, 0);
  rig.messenger.receive(kStranger, key_of(0), {}, target.data(), 100, rig.owner, 1);
  EXPECT_EQ(rig.frame(kStranger, tagged(FrameKind::kEager, 5, 0, 100, 100), filled(100, 1)),
            Kind::kDiscard);
  EXPECT_EQ(rig.frame(kStranger, eager(0, 100), filled(100, 1)), Kind::kDiscard);
  rig.frame(kStranger, tagged(FrameKind::kAnnounce, 5, 0, 100));
  EXPECT_THAT(rig.owner.done, IsEmpty());
  EXPECT_THAT(rig.to(kStranger).of(FrameKind::kGrant), IsEmpty());
  rig.frame(kMember, tagged(FrameKind::kEager, 5, 0, 100, 100), filled(100, 1));
  EXPECT_EQ(rig.owner.done.size(), 1u);
  EXPECT_EQ(result.peer, kMember);
}

TEST(Stranger, FailsNothingAndIsToldOnce) {
  Rig rig;
  CallRecord ours, theirs;
  theirs.count = 9;
  rig.enter(0, ours);
  for (const FrameKind kind :
       {FrameKind::kEager, FrameKind::kAnnounce, FrameKind::kGrant, FrameKind::kData,
        FrameKind::kCredit, FrameKind::kProbe, FrameKind::kWant, FrameKind::kAsk, FrameKind::kLeft,
        FrameKind::kTransport}) {
    FrameHeader header = header_of(kind, key_of(0), 100, 77, 13);
    header.record = theirs;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(rig.frame(kStranger, header, filled(77, 1)), Kind::kDiscard);
    }
  }
  EXPECT_THAT(rig.events.strangers, ElementsAre("7 3"));
  EXPECT_THAT(rig.events.violations, IsEmpty());
  EXPECT_THAT(rig.events.mismatches, IsEmpty());
  EXPECT_THAT(rig.events.left_by, IsEmpty());
  EXPECT_THAT(rig.to(kStranger).frames, IsEmpty());
}

TEST(Stranger, GetsNoGoodbye) {
  Rig rig;
  rig.frame(kStranger, eager(0, 10), filled(10, 1));
  rig.frame(kMember, eager(0, 10), filled(10, 1));
  rig.messenger.close(kCommunicator);
  EXPECT_THAT(rig.to(kStranger).frames, IsEmpty());
  EXPECT_THAT(rig.to(kMember).of(FrameKind::kLeft), SizeIs(1));
}

TEST(UnknownCommunicator, MembersWaitUntilItIsKnown) {
  Rig rig(false);
  EXPECT_EQ(rig.frame(kMember, eager(0, 100), filled(100, 1)), Kind::kInto);
  rig.frame(kMember, tagged(FrameKind::kEager, 5, 0, 100, 100), filled(100, 2));
  rig.frame(kMember, header_of(FrameKind::kGrant, key_of(1), 1000));
  rig.messenger.open(kCommunicator, kMembers);
  EXPECT_TRUE(rig.events.none());
  Bytes target(100), room(100);
  TaggedResult result;
  EXPECT_TRUE(rig.messenger.receive(kMember, key_of(0), {}, target.data(), 100, rig.owner, 0));
  EXPECT_EQ(target, filled(100, 1));
  EXPECT_TRUE(
      rig.messenger.receive_tagged(kAnyRank, tag_key(5), room.data(), 100, &result, rig.owner, 0));
  EXPECT_EQ(room, filled(100, 2));
  const Bytes payload(1000);
  rig.messenger.send(kMember, key_of(1), {}, payload, rig.owner, 0);
  rig.poll();
  EXPECT_THAT(rig.to(kMember).of(FrameKind::kData), SizeIs(1));
}

TEST(UnknownCommunicator, StrangersAreForgottenWhenItIsKnown) {
  Rig rig(false);
  CallRecord other;
  other.count = 3;
  FrameHeader probe = header_of(FrameKind::kProbe, key_of(0), 0);
  probe.record = other;
  rig.frame(kStranger, probe);
  rig.frame(kStranger, tagged(FrameKind::kEager, 5, 0, 100, 100), filled(100, 2));
  rig.frame(kStranger, tagged(FrameKind::kAnnounce, 5, 1, 100));
  FrameHeader foreign = eager(0, 100);
  foreign.record = other;
  rig.frame(kStranger, foreign, filled(100, 2));
  rig.frame(kStranger, header_of(FrameKind::kGrant, key_of(1), 1000));
  rig.frame(kStranger, header_of(FrameKind::kLeft, key_of(0), 0));
  EXPECT_THAT(rig.events.strangers, IsEmpty()) << "nobody knows yet";
  rig.messenger.open(kCommunicator, kMembers);
  EXPECT_THAT(rig.events.strangers, ElementsAre("7 3"));
  rig.enter(0, {});
  Bytes room(100);
  TaggedResult result;
  EXPECT_FALSE(
      rig.messenger.receive_tagged(kAnyRank, tag_key(5), room.data(), 100, &result, rig.owner, 0));
  const Bytes payload(1000);
  rig.messenger.send(kStranger, key_of(1), {}, payload, rig.owner, 0);
  rig.poll();
  EXPECT_THAT(rig.to(kStranger).frames, IsEmpty());
  EXPECT_THAT(rig.events.mismatches, IsEmpty());
  EXPECT_THAT(rig.events.left_by, IsEmpty());
}

TEST(UnknownCommunicator, WhatAStrangerIsSendingKeepsItsMemoryUntilItHasCome) {
  Rig rig(false);
  std::byte* const arriving = rig.place(kStranger, eager(0, 100));
  ASSERT_NE(arriving, nullptr);
  rig.messenger.open(kCommunicator, kMembers);
  std::fill_n(arriving, 100, std::byte{1});
  rig.received(kStranger, eager(0, 100));
  Bytes target(100);
  EXPECT_FALSE(rig.messenger.receive(kStranger, key_of(0), {}, target.data(), 100, rig.owner, 0));
}

TEST(UnknownCommunicator, WhatAStrangerIsStillSendingIsMatchedWithNothing) {
  CallRecord other;
  other.count = 3;
  FrameHeader collective = eager(0, 100);
  collective.record = other;
  for (const FrameHeader& header : {tagged(FrameKind::kEager, 5, 0, 100, 100), collective}) {
    Rig rig(false);
    ASSERT_NE(rig.place(kStranger, header), nullptr);
    rig.messenger.open(kCommunicator, kMembers);
    rig.enter(0, {});
    EXPECT_THAT(rig.events.mismatches, IsEmpty());
    Bytes room(100);
    TaggedResult result;
    EXPECT_FALSE(rig.messenger.receive_tagged(kAnyRank, tag_key(5), room.data(), 100, &result,
                                              rig.owner, 0));
    rig.received(kStranger, header);
    rig.frame(kMember, tagged(FrameKind::kEager, 5, 0, 100, 100), filled(100, 2));
    EXPECT_EQ(rig.owner.done[0], 1) << "the member's message is the first";
    EXPECT_EQ(result.peer, kMember);
    EXPECT_EQ(room, filled(100, 2));
  }
}

TEST(UnknownCommunicator, NothingIsWantedOfStrangersWhoHaveSpentTheirCredit) {
  for (const bool posted_before : {true, false}) {
    Rig rig(false);
    Bytes room(100);
    TaggedResult result;
    const auto post = [&] {
      rig.messenger.receive_tagged(kAnyRank, tag_key(5), room.data(), 100, &result, rig.owner, 0);
    };
    if (posted_before) rig.messenger.open(kCommunicator, kMembers);
    if (posted_before) post();
    rig.spend_credit(kStranger);
    rig.spend_credit(kMember);
    if (!posted_before) rig.messenger.open(kCommunicator, kMembers);
    if (!posted_before) post();
    EXPECT_THAT(rig.to(kMember).of(FrameKind::kWant), SizeIs(1));
    EXPECT_THAT(rig.to(kStranger).frames, IsEmpty());
  }
}

TEST(UnknownCommunicator, ViolationOfAMemberIsToldWhenItIsKnown) {
  Rig rig(false);
  rig.frame(kMember, piece(0, 100, 0), filled(100, 1));
  rig.frame(kStranger, piece(0, 100, 0), filled(100, 1));
  rig.frame(2, header_of(FrameKind::kLeft, key_of(0), 0));
  EXPECT_TRUE(rig.events.none());
  EXPECT_THAT(rig.events.left_by, IsEmpty());
  rig.messenger.open(kCommunicator, kMembers);
  EXPECT_THAT(rig.events.violations, ElementsAre(HasSubstr("7 1 sent data")));
  EXPECT_THAT(rig.events.left_by, ElementsAre("7 2"));
}

TEST(UnknownCommunicator, APeerSpeaksInABoundedNumberOfThem) {
  Rig rig;
  constexpr std::uint32_t kUnknownMax = 256;
  const auto speak = [&](Rank peer, std::uint32_t communicator) {
    FrameHeader header = eager(0, 10);
    header.communicator = communicator;
    return rig.frame(peer, header, filled(10, 1));
  };
  for (std::uint32_t i = 0; i < kUnknownMax; ++i) EXPECT_EQ(speak(1, 100 + i), Kind::kInto);
  // One that becomes known makes room.
  rig.messenger.open(100, kMembers);
  EXPECT_EQ(speak(1, 1000), Kind::kInto);
  EXPECT_TRUE(rig.events.none());
  EXPECT_EQ(speak(1, 1001), Kind::kDiscard);
  ASSERT_THAT(rig.events.closed, SizeIs(1));
  EXPECT_EQ(rig.events.closed[0].code(), ErrorCode::kProtocol);
  EXPECT_EQ(rig.events.closed[0].rank(), 1);
  EXPECT_THAT(rig.events.closed[0].message(), HasSubstr("256 communicators"));
  // It is given up as a whole, and nobody else is.
  EXPECT_EQ(speak(1, kCommunicator), Kind::kDiscard);
  EXPECT_EQ(speak(2, 1001), Kind::kInto);
  EXPECT_THAT(rig.events.closed, SizeIs(1));
}

}  // namespace
}  // namespace unisono::test
