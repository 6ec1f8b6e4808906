// Who is heard in a communicator: its members, and before this rank knows who they are anybody, for
// the time being and within bounds.
#include "base/communicator_id.h"
#include "tests/engine/messenger_fixture.h"

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
  Fixture fixture;
  Bytes room(100), target(100);
  TaggedResult result;
  fixture.messenger.receive_tagged(kAnyRank, tag_key(5), room.data(), 100, &result, fixture.owner,
                                   0);
  fixture.messenger.receive(kStranger, key_of(0), {}, target.data(), 100, fixture.owner, 1);
  EXPECT_EQ(fixture.frame(kStranger, tagged(FrameKind::kEager, 5, 0, 100, 100), filled(100, 1)),
            Kind::kDiscard);
  EXPECT_EQ(fixture.frame(kStranger, eager(0, 100), filled(100, 1)), Kind::kDiscard);
  fixture.frame(kStranger, tagged(FrameKind::kAnnounce, 5, 0, 100));
  EXPECT_THAT(fixture.owner.done, IsEmpty());
  EXPECT_THAT(fixture.to(kStranger).of(FrameKind::kGrant), IsEmpty());
  fixture.frame(kMember, tagged(FrameKind::kEager, 5, 0, 100, 100), filled(100, 1));
  EXPECT_EQ(fixture.owner.done.size(), 1u);
  EXPECT_EQ(result.peer, kMember);
}

TEST(Stranger, FailsNothingAndIsToldOnce) {
  Fixture fixture;
  CallRecord ours, theirs;
  theirs.count = 9;
  fixture.enter(0, ours);
  for (const FrameKind kind :
       {FrameKind::kEager, FrameKind::kAnnounce, FrameKind::kGrant, FrameKind::kData,
        FrameKind::kCredit, FrameKind::kProbe, FrameKind::kWant, FrameKind::kAsk, FrameKind::kLeft,
        FrameKind::kTransport}) {
    FrameHeader header = header_of(kind, key_of(0), 100, 77, 13);
    header.record = theirs;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(fixture.frame(kStranger, header, filled(77, 1)), Kind::kDiscard);
    }
  }
  EXPECT_THAT(fixture.events.strangers, ElementsAre("7 3"));
  EXPECT_THAT(fixture.events.violations, IsEmpty());
  EXPECT_THAT(fixture.events.mismatches, IsEmpty());
  EXPECT_THAT(fixture.events.left_by, IsEmpty());
  EXPECT_THAT(fixture.to(kStranger).frames, IsEmpty());
}

TEST(Stranger, GetsNoGoodbye) {
  Fixture fixture;
  fixture.frame(kStranger, eager(0, 10), filled(10, 1));
  fixture.frame(kMember, eager(0, 10), filled(10, 1));
  fixture.messenger.close(kCommunicator);
  EXPECT_THAT(fixture.to(kStranger).frames, IsEmpty());
  EXPECT_THAT(fixture.to(kMember).of(FrameKind::kLeft), SizeIs(1));
}

// Each stream says it behind the data that it has.
TEST(Member, HasLeftOnceAllStreamsHaveSaidIt) {
  Fixture fixture;
  FrameHeader left = header_of(FrameKind::kLeft, key_of(0), 0);
  left.index = 3;
  for (int i = 0; i < 2; ++i) fixture.frame(kMember, left);
  EXPECT_THAT(fixture.events.left_by, IsEmpty());
  for (int i = 0; i < 2; ++i) fixture.frame(kMember, left);
  EXPECT_THAT(fixture.events.left_by, ElementsAre("7 1"));
}

TEST(UnknownCommunicator, MembersWaitUntilItIsKnown) {
  Fixture fixture(false);
  EXPECT_EQ(fixture.frame(kMember, eager(0, 100), filled(100, 1)), Kind::kInto);
  fixture.frame(kMember, tagged(FrameKind::kEager, 5, 0, 100, 100), filled(100, 2));
  fixture.frame(kMember, header_of(FrameKind::kGrant, key_of(1), 1000));
  fixture.messenger.open(kCommunicator, kMembers);
  EXPECT_TRUE(fixture.events.none());
  Bytes target(100), room(100);
  TaggedResult result;
  EXPECT_TRUE(
      fixture.messenger.receive(kMember, key_of(0), {}, target.data(), 100, fixture.owner, 0));
  EXPECT_EQ(target, filled(100, 1));
  EXPECT_TRUE(fixture.messenger.receive_tagged(kAnyRank, tag_key(5), room.data(), 100, &result,
                                               fixture.owner, 0));
  EXPECT_EQ(room, filled(100, 2));
  const Bytes payload(1000);
  fixture.messenger.send(kMember, key_of(1), {}, payload, fixture.owner, 0);
  fixture.poll();
  EXPECT_THAT(fixture.to(kMember).of(FrameKind::kData), SizeIs(1));
}

TEST(UnknownCommunicator, StrangersAreForgottenWhenItIsKnown) {
  Fixture fixture(false);
  CallRecord other;
  other.count = 3;
  FrameHeader probe = header_of(FrameKind::kProbe, key_of(0), 0);
  probe.record = other;
  fixture.frame(kStranger, probe);
  fixture.frame(kStranger, tagged(FrameKind::kEager, 5, 0, 100, 100), filled(100, 2));
  fixture.frame(kStranger, tagged(FrameKind::kAnnounce, 5, 1, 100));
  FrameHeader foreign = eager(0, 100);
  foreign.record = other;
  fixture.frame(kStranger, foreign, filled(100, 2));
  fixture.frame(kStranger, header_of(FrameKind::kGrant, key_of(1), 1000));
  fixture.frame(kStranger, header_of(FrameKind::kLeft, key_of(0), 0));
  EXPECT_THAT(fixture.events.strangers, IsEmpty()) << "nobody knows yet";
  fixture.messenger.open(kCommunicator, kMembers);
  EXPECT_THAT(fixture.events.strangers, ElementsAre("7 3"));
  fixture.enter(0, {});
  Bytes room(100);
  TaggedResult result;
  EXPECT_FALSE(fixture.messenger.receive_tagged(kAnyRank, tag_key(5), room.data(), 100, &result,
                                                fixture.owner, 0));
  const Bytes payload(1000);
  fixture.messenger.send(kStranger, key_of(1), {}, payload, fixture.owner, 0);
  fixture.poll();
  EXPECT_THAT(fixture.to(kStranger).frames, IsEmpty());
  EXPECT_THAT(fixture.events.mismatches, IsEmpty());
  EXPECT_THAT(fixture.events.left_by, IsEmpty());
}

TEST(UnknownCommunicator, WhatAStrangerIsSendingKeepsItsMemoryUntilItHasCome) {
  Fixture fixture(false);
  std::byte* const arriving = fixture.place(kStranger, eager(0, 100));
  ASSERT_NE(arriving, nullptr);
  fixture.messenger.open(kCommunicator, kMembers);
  std::fill_n(arriving, 100, std::byte{1});
  fixture.received(kStranger, eager(0, 100));
  Bytes target(100);
  EXPECT_FALSE(
      fixture.messenger.receive(kStranger, key_of(0), {}, target.data(), 100, fixture.owner, 0));
}

TEST(UnknownCommunicator, WhatAStrangerIsStillSendingIsMatchedWithNothing) {
  CallRecord other;
  other.count = 3;
  FrameHeader collective = eager(0, 100);
  collective.record = other;
  for (const FrameHeader& header : {tagged(FrameKind::kEager, 5, 0, 100, 100), collective}) {
    Fixture fixture(false);
    ASSERT_NE(fixture.place(kStranger, header), nullptr);
    fixture.messenger.open(kCommunicator, kMembers);
    fixture.enter(0, {});
    EXPECT_THAT(fixture.events.mismatches, IsEmpty());
    Bytes room(100);
    TaggedResult result;
    EXPECT_FALSE(fixture.messenger.receive_tagged(kAnyRank, tag_key(5), room.data(), 100, &result,
                                                  fixture.owner, 0));
    fixture.received(kStranger, header);
    fixture.frame(kMember, tagged(FrameKind::kEager, 5, 0, 100, 100), filled(100, 2));
    EXPECT_EQ(fixture.owner.done[0], 1) << "the member's message is the first";
    EXPECT_EQ(result.peer, kMember);
    EXPECT_EQ(room, filled(100, 2));
  }
}

TEST(UnknownCommunicator, NothingIsWantedOfStrangersWhoHaveSpentTheirCredit) {
  for (const bool posted_before : {true, false}) {
    Fixture fixture(false);
    Bytes room(100);
    TaggedResult result;
    const auto post = [&] {
      fixture.messenger.receive_tagged(kAnyRank, tag_key(5), room.data(), 100, &result,
                                       fixture.owner, 0);
    };
    if (posted_before) fixture.messenger.open(kCommunicator, kMembers);
    if (posted_before) post();
    fixture.spend_credit(kStranger);
    fixture.spend_credit(kMember);
    if (!posted_before) fixture.messenger.open(kCommunicator, kMembers);
    if (!posted_before) post();
    EXPECT_THAT(fixture.to(kMember).of(FrameKind::kWant), SizeIs(1));
    EXPECT_THAT(fixture.to(kStranger).frames, IsEmpty());
  }
}

TEST(UnknownCommunicator, ViolationOfAMemberIsToldWhenItIsKnown) {
  Fixture fixture(false);
  fixture.frame(kMember, piece(0, 100, 0), filled(100, 1));
  fixture.frame(kStranger, piece(0, 100, 0), filled(100, 1));
  fixture.frame(2, header_of(FrameKind::kLeft, key_of(0), 0));
  EXPECT_TRUE(fixture.events.none());
  EXPECT_THAT(fixture.events.left_by, IsEmpty());
  fixture.messenger.open(kCommunicator, kMembers);
  EXPECT_THAT(fixture.events.violations, ElementsAre(HasSubstr("7 1 sent data")));
  EXPECT_THAT(fixture.events.left_by, ElementsAre("7 2"));
}

// Ids are not given twice: one that is older than what is remembered is not taken for a new one.
TEST(UnknownCommunicator, IsNoneThatWasClosedLongAgo) {
  Fixture fixture;
  constexpr std::uint32_t kRemembered = 1 << 16, kLate = 300;
  const auto id = [](std::uint32_t number) { return communicator_id(number, 0, 4); };
  for (std::uint32_t number = 1; number <= kRemembered + kLate; ++number) {
    fixture.messenger.open(id(number), kMembers);
    fixture.messenger.close(id(number));
  }
  for (std::uint32_t number = 1; number <= kLate; ++number) {
    FrameHeader left = header_of(FrameKind::kLeft, key_of(0), 0);
    left.communicator = id(number);
    fixture.frame(1, left);
  }
  EXPECT_TRUE(fixture.events.none());
  EXPECT_THAT(fixture.to(1).frames, IsEmpty());
  FrameHeader late = eager(0, 10);
  late.communicator = id(1);
  EXPECT_EQ(fixture.frame(1, late, filled(10, 1)), Kind::kDiscard);
  EXPECT_THAT(fixture.to(1).of(FrameKind::kLeft), SizeIs(1)) << "it is told so";
  for (const std::uint32_t other : {id(kRemembered + kLate + 1), communicator_id(1, 1, 4)}) {
    late.communicator = other;
    EXPECT_EQ(fixture.frame(1, late, filled(10, 1)), Kind::kInto) << "that may become known";
  }
}

TEST(UnknownCommunicator, APeerSpeaksInABoundedNumberOfThem) {
  Fixture fixture;
  constexpr std::uint32_t kUnknownMax = 256;
  const auto speak = [&](Rank peer, std::uint32_t communicator) {
    FrameHeader header = eager(0, 10);
    header.communicator = communicator;
    return fixture.frame(peer, header, filled(10, 1));
  };
  for (std::uint32_t i = 0; i < kUnknownMax; ++i) EXPECT_EQ(speak(1, 100 + i), Kind::kInto);
  // One that becomes known makes room.
  fixture.messenger.open(100, kMembers);
  EXPECT_EQ(speak(1, 1000), Kind::kInto);
  EXPECT_TRUE(fixture.events.none());
  EXPECT_EQ(speak(1, 1001), Kind::kDiscard);
  ASSERT_THAT(fixture.events.closed, SizeIs(1));
  EXPECT_EQ(fixture.events.closed[0].code(), ErrorCode::kProtocol);
  EXPECT_EQ(fixture.events.closed[0].rank(), 1);
  EXPECT_THAT(fixture.events.closed[0].message(), HasSubstr("256 communicators"));
  // It is given up as a whole, and nobody else is.
  EXPECT_EQ(speak(1, kCommunicator), Kind::kDiscard);
  EXPECT_EQ(speak(2, 1001), Kind::kInto);
  EXPECT_THAT(fixture.events.closed, SizeIs(1));
}

}  // namespace
}  // namespace unisono::test
