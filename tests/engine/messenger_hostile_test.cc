// A member that breaks the protocol. What it sends is refused before it is written anywhere,
// completes nothing and is told once; nothing more of it counts in that communicator.
#include "tests/engine/messenger_fixture.h"

namespace unisono::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = Placement::Kind;

constexpr std::size_t kPiece = kFramePayloadMax;
constexpr std::size_t kLong = 3 * kPiece + 100;

class Hostile : public testing::Test {
 public:
  /// The test fails unless rank 1 has been found out, in these words.
  void expect_violation(const std::string& words) {
    EXPECT_THAT(fixture.events.violations, ElementsAre(HasSubstr("7 1 "))) << words;
    EXPECT_THAT(fixture.events.violations, ElementsAre(HasSubstr(words)));
    EXPECT_THAT(fixture.owner.done, IsEmpty());
  }
  /// The same of counts that rank 1 and this rank do not share.
  void expect_counts_differ(const std::string& words) {
    EXPECT_THAT(fixture.events.differing_counts, ElementsAre("7 1 " + words));
    EXPECT_THAT(fixture.events.violations, IsEmpty());
    EXPECT_THAT(fixture.owner.done, IsEmpty());
  }
  /// A posted receive of rank 1's; above the eager size it is granted.
  void post(std::uint64_t sequence, Bytes* target, std::uint32_t slot = 0) {
    EXPECT_FALSE(fixture.messenger.receive(1, key_of(sequence), {}, target->data(), target->size(),
                                           fixture.owner, slot));
  }
  void post_tagged(Tag tag, Bytes* room, Rank peer = 1, std::uint32_t slot = 0) {
    EXPECT_FALSE(
        fixture.messenger.receive_tagged(peer, {kCommunicator, FrameClass::kPointToPoint, tag, 0},
                                         room->data(), room->size(), &result, fixture.owner, slot));
  }
  void send(std::uint64_t sequence, const Bytes& payload) {
    fixture.messenger.send(1, key_of(sequence), {}, payload, fixture.owner, 0);
  }

  Fixture fixture;
  TaggedResult result;
};

TEST_F(Hostile, EagerFrameOfAnotherLengthIsRefused) {
  Bytes target(100);
  post(0, &target);
  EXPECT_EQ(fixture.frame(1, header_of(FrameKind::kEager, key_of(0), 100, 200), filled(200, 1)),
            Kind::kDiscard);
  expect_violation("not the whole of its message");
}

TEST_F(Hostile, EagerFrameOfAReductionBeginsAtTheStartWhateverItsOffsetSays) {
  const Bytes payload(36);
  send(0, payload);  // 100 of credit
  EXPECT_FALSE(fixture.messenger.receive(1, key_of(0), {}, nullptr, 100, fixture.owner, 0));
  FrameHeader header = eager(0, 100);
  header.offset = 100;
  EXPECT_EQ(fixture.frame(1, header, filled(100, 1)), Kind::kDeliver);
  EXPECT_TRUE(fixture.events.none());
  EXPECT_THAT(fixture.owner.piece_offsets, ElementsAre(0u));
}

TEST_F(Hostile, EagerFrameBeyondItsCreditIsRefusedAndCompletesNothing) {
  Bytes target(100);
  post(0, &target);
  for (std::size_t spent = 0; spent + 264 <= kCreditBytes; spent += 264) {
    EXPECT_EQ(fixture.frame(1, eager(100 + spent, 200), filled(200, 1)), Kind::kInto);
  }
  EXPECT_TRUE(fixture.events.none());
  EXPECT_EQ(fixture.frame(1, eager(0, 100), filled(100, 1)), Kind::kDiscard);
  expect_violation("more eager bytes than it had credit for");
  EXPECT_EQ(target, Bytes(100));
}

TEST_F(Hostile, CreditThatWasNotReturnedYetIsNotItsToSpend) {
  // Received at once, so that nothing is held; a quarter of the credit has to gather first.
  Bytes target(kEagerBytes);
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    post(sequence, &target);
    fixture.frame(1, eager(sequence, kEagerBytes), filled(kEagerBytes, 1));
  }
  ASSERT_THAT(fixture.owner.done, ElementsAre(testing::Pair(0u, 3)));
  ASSERT_THAT(fixture.to(1).of(FrameKind::kCredit), IsEmpty());
  fixture.owner.done.clear();
  for (std::size_t spent = 3 * 320; spent + 64 <= kCreditBytes; spent += 64) {
    fixture.frame(1, tagged(FrameKind::kAnnounce, 1, spent, 1000));
  }
  EXPECT_TRUE(fixture.events.none());
  fixture.frame(1, tagged(FrameKind::kAnnounce, 1, kCreditBytes, 1000));
  expect_violation("announced more messages than it had credit for");
}

TEST_F(Hostile, EagerMessageOfAnotherCountIsRefused) {
  Bytes target(100);
  post(0, &target);
  EXPECT_EQ(fixture.frame(1, eager(0, 101), filled(101, 1)), Kind::kDiscard);
  expect_counts_differ("sent 101 bytes where 100 were expected");
}

TEST_F(Hostile, EagerMessageOfAnotherCallIsAMismatch) {
  Bytes target(100);
  post(0, &target);
  FrameHeader header = eager(0, 100);
  header.record.count = 5;
  EXPECT_EQ(fixture.frame(1, header, filled(100, 1)), Kind::kDiscard);
  EXPECT_THAT(fixture.events.mismatches, ElementsAre("7 1"));
  EXPECT_THAT(fixture.owner.done, IsEmpty());
  EXPECT_EQ(target, Bytes(100));
}

TEST_F(Hostile, UnexpectedMessageOfAnotherCallIsAMismatchAndNotKept) {
  CallRecord ours;
  ours.count = 9;
  fixture.enter(0, ours);
  EXPECT_EQ(fixture.frame(1, eager(0, 100), filled(100, 1)), Kind::kDiscard);
  fixture.frame(1, header_of(FrameKind::kAnnounce, key_of(0), 100));
  fixture.frame(1, header_of(FrameKind::kGrant, key_of(0), 100));
  EXPECT_THAT(fixture.events.mismatches, ElementsAre("7 1", "7 1", "7 1"));
  Bytes target(100);
  EXPECT_FALSE(fixture.messenger.receive(1, key_of(0), ours, target.data(), 100, fixture.owner, 0));
  EXPECT_THAT(fixture.to(1).of(FrameKind::kGrant), IsEmpty());
}

TEST_F(Hostile, WhatWasSaidOfACallBeforeItIsMadeIsComparedWithIt) {
  CallRecord theirs;
  theirs.count = 9;
  FrameHeader probe = header_of(FrameKind::kProbe, key_of(3), 0);
  FrameHeader unexpected = eager(3, 10);
  probe.record = unexpected.record = theirs;
  for (const bool by_probe : {true, false}) {
    Fixture late;
    late.frame(1, by_probe ? probe : unexpected, by_probe ? Bytes{} : filled(10, 1));
    late.enter(2, {});
    EXPECT_TRUE(late.events.none()) << "another call";
    late.enter(3, {});
    EXPECT_THAT(late.events.mismatches, testing::ElementsAre("7 1"));
  }
}

TEST_F(Hostile, AnnouncementOfAnotherCallOrCountIsNotGranted) {
  Bytes target(100);
  post(0, &target);
  post(1, &target);
  FrameHeader header = header_of(FrameKind::kAnnounce, key_of(0), 100);
  header.record.count = 5;
  fixture.frame(1, header);
  EXPECT_THAT(fixture.events.mismatches, ElementsAre("7 1"));
  fixture.frame(1, header_of(FrameKind::kAnnounce, key_of(1), 50));
  expect_counts_differ("sent 50 bytes where 100 were expected");
  EXPECT_THAT(fixture.to(1).of(FrameKind::kGrant), IsEmpty());
}

TEST_F(Hostile, ReceiveThatFindsAMessageOfAnotherCountTakesNothing) {
  fixture.frame(1, eager(0, 100), filled(100, 1));
  Bytes target(50);
  post(0, &target);
  expect_counts_differ("sent 100 bytes where 50 were expected");
  EXPECT_EQ(target, Bytes(50));
}

TEST_F(Hostile, DataForNoReceiveAreRefused) {
  EXPECT_EQ(fixture.frame(1, piece(0, kLong, 0)), Kind::kDiscard);
  expect_violation("not been asked for");
  // They cannot count for a receive that is posted while they are on their way either.
  Bytes target(kPiece);
  post(0, &target);
  fixture.received(1, piece(0, kPiece, 0));
  EXPECT_THAT(fixture.owner.done, IsEmpty());
}

TEST_F(Hostile, DataForAReceiveThatWasNotGrantedAreRefused) {
  Bytes target(100);
  post(0, &target);
  EXPECT_EQ(fixture.frame(1, piece(0, 100, 0), filled(100, 1)), Kind::kDiscard);
  expect_violation("not been asked for");
  EXPECT_EQ(target, Bytes(100));
}

struct NoPiece {
  const char* name;
  std::uint64_t offset;
  std::uint32_t bytes;
  std::uint64_t total;
};

class HostilePiece : public Hostile, public testing::WithParamInterface<NoPiece> {};
INSTANTIATE_TEST_SUITE_P(
    Lies, HostilePiece,
    testing::Values(NoPiece{"between_two", 64, kPiece, kLong}, NoPiece{"shorter", 0, 64, kLong},
                    NoPiece{"empty", 0, 0, kLong}, NoPiece{"empty_at_the_end", kLong, 0, kLong},
                    NoPiece{"last_one_longer", 3 * kPiece, 101, kLong},
                    NoPiece{"beyond_the_end", 4 * kPiece, 100, kLong},
                    NoPiece{"far_beyond_the_end", ~std::uint64_t{0} - kPiece + 1, kPiece, kLong},
                    NoPiece{"of_a_longer_message", 3 * kPiece, kPiece, 4 * kPiece},
                    NoPiece{"of_a_shorter_message", 0, 100, 100},
                    NoPiece{"of_a_message_that_ends_elsewhere", 0, kPiece, kLong + 1}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(HostilePiece, IsRefused) {
  Bytes target(kLong);
  post(0, &target);
  const NoPiece& lie = GetParam();
  EXPECT_EQ(
      fixture.frame(1, header_of(FrameKind::kData, key_of(0), lie.total, lie.bytes, lie.offset)),
      Kind::kDiscard);
  expect_violation("which is no piece of a message of 786532");
}

TEST_F(Hostile, EmptyPieceAtTheEndOfWholePiecesIsRefused) {
  Bytes target(2 * kPiece);
  post(0, &target);
  EXPECT_EQ(fixture.frame(1, piece(0, 2 * kPiece, 2)), Kind::kDiscard);
  expect_violation("no piece");
}

TEST_F(Hostile, PieceThatAnotherStreamBringsTooIsRefusedWhileTheFirstIsOnItsWay) {
  for (const std::size_t index : {std::size_t{0}, std::size_t{2}}) {
    Fixture fresh;
    Bytes target(kLong);
    fresh.messenger.receive(1, key_of(0), {}, target.data(), kLong, fresh.owner, 0);
    EXPECT_NE(fresh.place(1, piece(0, kLong, index)), nullptr);
    EXPECT_EQ(fresh.place(1, piece(0, kLong, index)), nullptr);
    EXPECT_THAT(fresh.events.violations, ElementsAre(HasSubstr("same piece of a message twice")));
    // Neither of the two, nor the rest, completes the message: its memory is being written to.
    for (std::size_t i = 0; i < 4; ++i) fresh.received(1, piece(0, kLong, i));
    EXPECT_THAT(fresh.owner.done, IsEmpty());
    fresh.messenger.cancel(fresh.owner);
    EXPECT_THAT(fresh.to(1).abandoned, ElementsAre(target.data()));
  }
}

TEST_F(Hostile, PieceThatHasComeIsRefusedWhenItComesAgain) {
  Bytes target(kLong);
  post(0, &target);
  EXPECT_EQ(fixture.frame(1, piece(0, kLong, 0)), Kind::kInto);
  EXPECT_EQ(fixture.frame(1, piece(0, kLong, 2)), Kind::kInto);
  EXPECT_EQ(fixture.frame(1, piece(0, kLong, 1)), Kind::kInto);
  EXPECT_EQ(fixture.frame(1, piece(0, kLong, 2)), Kind::kDiscard);
  expect_violation("same piece of a message twice");
}

TEST_F(Hostile, PiecesMayOvertakeOneAnother) {
  for (std::vector<std::size_t> order :
       {std::vector<std::size_t>{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 0, 1, 3}}) {
    Bytes target(kLong);
    post(order.front(), &target);
    for (const std::size_t index : order) {
      const FrameHeader header = piece(order.front(), kLong, index);
      EXPECT_EQ(fixture.place(1, header), target.data() + index * kPiece);
    }
    EXPECT_THAT(fixture.owner.done, IsEmpty());
    for (const std::size_t index : order) fixture.received(1, piece(order.front(), kLong, index));
    EXPECT_THAT(fixture.owner.done, SizeIs(1));
    fixture.owner.done.clear();
  }
  EXPECT_TRUE(fixture.events.none());
}

TEST_F(Hostile, EmptyPieceComesOnce) {
  fixture.spend_credit(1);
  EXPECT_FALSE(fixture.messenger.receive(1, key_of(0), {}, nullptr, 0, fixture.owner, 0));
  EXPECT_THAT(fixture.to(1).of(FrameKind::kGrant), SizeIs(1));
  fixture.place(1, piece(0, 0, 0));
  fixture.place(1, piece(0, 0, 0));
  expect_violation("twice");
}

TEST_F(Hostile, ReductionIsHandedEachPieceOnce) {
  EXPECT_FALSE(fixture.messenger.receive(1, key_of(0), {}, nullptr, kLong, fixture.owner, 0));
  EXPECT_EQ(fixture.frame(1, piece(0, kLong, 0), Bytes(kPiece)), Kind::kDeliver);
  EXPECT_EQ(fixture.frame(1, piece(0, kLong, 0), Bytes(kPiece)), Kind::kDiscard);
  expect_violation("twice");
  EXPECT_EQ(fixture.owner.piece_bytes, kPiece);
}

TEST_F(Hostile, MessageThatDoesNotFitIsCountedOnceToo) {
  Bytes room(10);
  post_tagged(5, &room);
  FrameHeader header = tagged(FrameKind::kAnnounce, 5, 0, kLong);
  fixture.frame(1, header);
  header.kind = FrameKind::kData;
  header.payload_bytes = kPiece;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fixture.frame(1, header), Kind::kDiscard);
  EXPECT_TRUE(fixture.events.none());
  fixture.frame(1, header);
  expect_violation("twice");
  EXPECT_EQ(room, Bytes(10));
}

TEST_F(Hostile, EagerMessageAndItsPiecesExcludeEachOther) {
  for (const bool eager_first : {false, true}) {
    Fixture fresh;
    Bytes target(100);
    fresh.messenger.receive(1, key_of(0), {}, target.data(), 100, fresh.owner, 0);
    // Announced without need, so granted.
    fresh.frame(1, header_of(FrameKind::kAnnounce, key_of(0), 100));
    const FrameHeader first = eager_first ? eager(0, 100) : piece(0, 100, 0);
    const FrameHeader second = eager_first ? piece(0, 100, 0) : eager(0, 100);
    EXPECT_NE(fresh.place(1, first), nullptr);
    EXPECT_EQ(fresh.place(1, second), nullptr);
    EXPECT_THAT(fresh.events.violations, SizeIs(1));
    fresh.received(1, second);
    EXPECT_THAT(fresh.owner.done, IsEmpty());
  }
}

TEST_F(Hostile, NothingCountsAfterAViolation) {
  Bytes target(kLong), small(100);
  post(0, &target);
  post(1, &small, 1);
  EXPECT_NE(fixture.place(1, piece(0, kLong, 0)), nullptr);
  fixture.frame(1, piece(5, 100, 0));
  ASSERT_THAT(fixture.events.violations, SizeIs(1));
  fixture.received(1, piece(0, kLong, 0));
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(fixture.frame(1, piece(0, kLong, i)), Kind::kDiscard);
  }
  EXPECT_EQ(fixture.frame(1, eager(1, 100), filled(100, 1)), Kind::kDiscard);
  EXPECT_THAT(fixture.owner.done, IsEmpty());
  EXPECT_THAT(fixture.events.violations, SizeIs(1)) << "once is enough";
  // Others are not concerned.
  EXPECT_FALSE(fixture.messenger.receive(2, key_of(1), {}, small.data(), 100, fixture.owner, 2));
  fixture.frame(2, eager(1, 100), filled(100, 1));
  EXPECT_THAT(fixture.owner.done, SizeIs(1));
}

TEST_F(Hostile, UnexpectedMessageStaysUntilItHasComeThoughItsSenderIsFoundOut) {
  std::byte* const arriving = fixture.place(1, eager(0, 100));
  ASSERT_NE(arriving, nullptr);
  Bytes target(100);
  post(0, &target);  // waits for it
  fixture.frame(1, piece(5, 100, 0));
  std::fill_n(arriving, 100, std::byte{1});
  fixture.received(1, eager(0, 100));
  expect_violation("not been asked for");
  EXPECT_EQ(target, Bytes(100));
  fixture.messenger.cancel(fixture.owner);
  EXPECT_THAT(fixture.to(1).abandoned, ElementsAre(target.data())) << "it was lost";
}

TEST_F(Hostile, UnexpectedMessageStaysUntilItHasComeThoughItsCommunicatorIsClosed) {
  std::byte* const arriving = fixture.place(1, eager(0, 100));
  ASSERT_NE(arriving, nullptr);
  fixture.messenger.close(kCommunicator);
  // Frames of other streams with its name are nobody's.
  fixture.frame(1, piece(0, 100, 0));
  std::fill_n(arriving, 100, std::byte{1});
  fixture.received(1, eager(0, 100));
  EXPECT_THAT(fixture.owner.done, IsEmpty());
}

TEST_F(Hostile, CancelledReceiveIsNotCompletedByWhatWasOnItsWay) {
  Bytes target(100), other(100);
  post(0, &target, 0);
  ASSERT_EQ(fixture.place(1, eager(0, 100)), target.data());
  fixture.messenger.cancel(fixture.owner);
  EXPECT_THAT(fixture.to(1).abandoned, ElementsAre(target.data()));
  post(1, &other, 1);
  fixture.received(1, eager(0, 100));
  EXPECT_THAT(fixture.owner.done, IsEmpty());
  EXPECT_TRUE(fixture.events.none());
}

TEST_F(Hostile, CancelledReceiveIsNotCompletedByPiecesThatWereOnTheirWay) {
  Bytes target(kPiece);
  post(0, &target);
  ASSERT_EQ(fixture.place(1, piece(0, kPiece, 0)), target.data());
  fixture.messenger.cancel(fixture.owner);
  EXPECT_THAT(fixture.to(1).abandoned, ElementsAre(target.data()));
  fixture.received(1, piece(0, kPiece, 0));
  EXPECT_THAT(fixture.owner.done, IsEmpty());
  EXPECT_TRUE(fixture.events.none());
}

TEST_F(Hostile, CancelledMessageThatWasHeldBackIsNotSent) {
  Bytes payload(kEagerBytes);
  for (std::uint64_t sequence = 0; sequence < 100; ++sequence) send(sequence, payload);
  fixture.messenger.cancel(fixture.owner);
  const std::size_t sent = fixture.to(1).frames.size();
  fixture.frame(1, header_of(FrameKind::kCredit, key_of(0), 1000));
  fixture.frame(1, header_of(FrameKind::kGrant, key_of(99), kEagerBytes));
  fixture.poll();
  EXPECT_THAT(fixture.to(1).frames, SizeIs(sent));
}

TEST_F(Hostile, CancelledReductionIsHandedNothingMore) {
  EXPECT_FALSE(fixture.messenger.receive(1, key_of(0), {}, nullptr, 100, fixture.owner, 0));
  EXPECT_EQ(fixture.messenger.place(1, eager(0, 100)).kind, Kind::kDeliver);
  fixture.messenger.cancel(fixture.owner);
  fixture.messenger.deliver(1, eager(0, 100), 0, Bytes(100));
  EXPECT_EQ(fixture.owner.piece_bytes, 0u);
}

TEST_F(Hostile, AnnouncementBeyondItsCreditIsRefused) {
  fixture.spend_credit(1);
  EXPECT_TRUE(fixture.events.none());
  fixture.frame(1, tagged(FrameKind::kAnnounce, 5, 0, 1000));
  expect_violation("announced more messages than it had credit for");
  Bytes room(1000);
  post_tagged(5, &room);
  EXPECT_THAT(fixture.to(1).of(FrameKind::kGrant), IsEmpty());
}

TEST_F(Hostile, AnnouncementThatClaimsToBeWantedIsRefused) {
  FrameHeader header = tagged(FrameKind::kAnnounce, 5, 0, 1000);
  header.offset = kAnswer;
  fixture.frame(1, header);
  expect_violation("nobody had waited for");
}

TEST_F(Hostile, WantedAnnouncementIsAnsweredOnce) {
  fixture.spend_credit(1);
  Bytes room(1000);
  post_tagged(5, &room);
  ASSERT_THAT(fixture.to(1).of(FrameKind::kWant), SizeIs(1));
  FrameHeader header = tagged(FrameKind::kAnnounce, 5, 0, 1000);
  header.offset = kAnswer;
  fixture.frame(1, header);
  EXPECT_TRUE(fixture.events.none());
  EXPECT_THAT(fixture.to(1).of(FrameKind::kGrant), SizeIs(1));
  fixture.frame(1, header);
  expect_violation("nobody had waited for");
}

TEST_F(Hostile, GrantOfAnotherCallIsAMismatch) {
  const Bytes payload(1000);
  send(0, payload);
  FrameHeader header = header_of(FrameKind::kGrant, key_of(0), 1000);
  header.record.count = 5;
  fixture.frame(1, header);
  fixture.poll();
  EXPECT_THAT(fixture.events.mismatches, ElementsAre("7 1"));
  EXPECT_THAT(fixture.to(1).of(FrameKind::kData), IsEmpty());
}

TEST_F(Hostile, GrantOfAnotherCountIsRefused) {
  const Bytes payload(1000);
  send(0, payload);
  fixture.frame(1, header_of(FrameKind::kGrant, key_of(0), 999));
  fixture.poll();
  expect_counts_differ("expected 999 bytes where 1000 were sent");
  EXPECT_THAT(fixture.to(1).of(FrameKind::kData), IsEmpty());
}

TEST_F(Hostile, GrantOfAMessageThatWasNotAnnouncedIsRefused) {
  fixture.frame(1, tagged(FrameKind::kGrant, 5, 0, 1000));
  expect_violation("had not been announced");
}

TEST_F(Hostile, GrantIsGoodForOneMessage) {
  const Bytes payload(1000);
  send(0, payload);
  for (int i = 0; i < 2; ++i) fixture.frame(1, header_of(FrameKind::kGrant, key_of(0), 1000));
  fixture.poll();
  EXPECT_THAT(fixture.to(1).of(FrameKind::kData), SizeIs(1));
}

TEST_F(Hostile, GrantsThatNobodyNeedsAreKeptUpToABound) {
  constexpr std::uint64_t kGrants = 4096;
  for (std::uint64_t sequence = 0; sequence <= kGrants; ++sequence) {
    fixture.frame(1, header_of(FrameKind::kGrant, key_of(sequence), 1000));
  }
  EXPECT_TRUE(fixture.events.none()) << "a peer may have that many receives posted";
  const Bytes payload(1000);
  send(kGrants - 1, payload);
  fixture.poll();
  EXPECT_THAT(fixture.to(1).of(FrameKind::kData), SizeIs(1));
  EXPECT_THAT(fixture.to(1).of(FrameKind::kAsk), IsEmpty());
  send(kGrants, payload);
  fixture.poll();
  EXPECT_THAT(fixture.to(1).of(FrameKind::kData), SizeIs(1)) << "its grant was kept";
  EXPECT_THAT(fixture.to(1).of(FrameKind::kAsk), SizeIs(1));
}

TEST_F(Hostile, AnswerToNoQuestionIsNotKept) {
  FrameHeader header = header_of(FrameKind::kGrant, key_of(0), 1000);
  header.offset = kAnswer;
  fixture.frame(1, header);
  const Bytes payload(1000);
  send(0, payload);
  fixture.poll();
  EXPECT_THAT(fixture.to(1).of(FrameKind::kData), IsEmpty());
}

TEST_F(Hostile, AskingTwiceForOneGrantIsRefused) {
  Bytes target(1000);
  const FrameHeader ask = header_of(FrameKind::kAsk, key_of(0), 1000);
  fixture.frame(1, ask);
  EXPECT_THAT(fixture.to(1).frames, IsEmpty()) << "it is granted when it is posted";
  post(0, &target);
  fixture.frame(1, ask);
  EXPECT_TRUE(fixture.events.none());
  ASSERT_THAT(fixture.to(1).of(FrameKind::kGrant), SizeIs(2));
  EXPECT_EQ(fixture.to(1).of(FrameKind::kGrant)[1].offset, kAnswer);
  fixture.frame(1, ask);
  expect_violation("asked twice");
  EXPECT_THAT(fixture.to(1).of(FrameKind::kGrant), SizeIs(2));
}

TEST_F(Hostile, AskingForWhatIsNotGrantedGrantsNothing) {
  Bytes target(100);
  post(0, &target);
  fixture.frame(1, header_of(FrameKind::kAsk, key_of(0), 100));
  EXPECT_THAT(fixture.to(1).frames, IsEmpty());
}

// The receiver of fewer bytes waits for an eager message, and grants nothing.
TEST_F(Hostile, MoreThanIsExpectedIsOfferedAndSeen) {
  Bytes target(kEagerBytes);
  post(0, &target);
  EXPECT_THAT(fixture.to(1).frames, IsEmpty());
  fixture.frame(1, header_of(FrameKind::kOffer, key_of(0), kEagerBytes));
  EXPECT_TRUE(fixture.events.none());
  fixture.frame(1, header_of(FrameKind::kOffer, key_of(0), kEagerBytes + 4));
  EXPECT_THAT(fixture.events.differing_counts,
              ElementsAre(HasSubstr("sent 260 bytes where 256 were expected")));
  fixture.frame(1, header_of(FrameKind::kOffer, key_of(9), 1));
  EXPECT_THAT(fixture.events.differing_counts, SizeIs(1)) << "nothing is posted there";
}

TEST_F(Hostile, WhatWaitsIsOfferedTwiceAtMost) {
  const Bytes large(kEagerBytes + 4), other(kEagerBytes + 8);
  send(0, large);
  send(1, other);
  fixture.messenger.probe(1, kCommunicator, 0, {});
  ASSERT_THAT(fixture.to(1).of(FrameKind::kOffer), SizeIs(1)) << "of that call alone";
  EXPECT_EQ(fixture.to(1).of(FrameKind::kOffer)[0].total_bytes, large.size());
  for (int i = 0; i < 3; ++i) fixture.frame(1, header_of(FrameKind::kProbe, key_of(0), 0));
  EXPECT_THAT(fixture.to(1).of(FrameKind::kOffer), SizeIs(2));
  fixture.frame(1, header_of(FrameKind::kGrant, key_of(0), large.size()));
  fixture.poll();
  EXPECT_THAT(fixture.to(1).of(FrameKind::kData), SizeIs(1));
  EXPECT_TRUE(fixture.events.none());
}

TEST_F(Hostile, TagIsNamedOnce) {
  for (const Tag tag : {1u, 2u}) fixture.frame(1, tagged(FrameKind::kWant, tag, 0, 0));
  EXPECT_TRUE(fixture.events.none());
  fixture.frame(1, tagged(FrameKind::kWant, 2, 0, 0));
  expect_violation("more tags that it waits for");
}

TEST_F(Hostile, TagsAreNamedUpToABound) {
  constexpr Tag kTags = 1 << 14;
  for (Tag tag = 0; tag < kTags; ++tag) fixture.frame(1, tagged(FrameKind::kWant, tag, 0, 0));
  EXPECT_TRUE(fixture.events.none());
  fixture.frame(1, tagged(FrameKind::kWant, kTags, 0, 0));
  expect_violation("more tags that it waits for");
}

TEST_F(Hostile, FrameOfNoKindOfTheEnginesIsRefused) {
  fixture.frame(1, header_of(FrameKind::kTransport, key_of(0), 0));
  expect_violation("unknown kind");
}

TEST_F(Hostile, LeavingTwiceIsToldOnce) {
  for (int i = 0; i < 3; ++i) fixture.frame(1, header_of(FrameKind::kLeft, key_of(0), 0));
  EXPECT_THAT(fixture.events.left_by, ElementsAre("7 1"));
}

TEST_F(Hostile, WhoSpeaksInAClosedCommunicatorIsToldOnce) {
  fixture.messenger.close(kCommunicator);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(fixture.frame(1, eager(0, 100), filled(100, 1)), Kind::kDiscard);
    fixture.frame(1, header_of(FrameKind::kLeft, key_of(0), 0));
    fixture.frame(2, header_of(FrameKind::kCredit, key_of(0), 1));
  }
  EXPECT_THAT(fixture.to(1).of(FrameKind::kLeft), SizeIs(1));
  EXPECT_THAT(fixture.to(2).frames, IsEmpty()) << "it has left too, or needs no answer";
  EXPECT_TRUE(fixture.events.none());
}

TEST_F(Hostile, WhoWasToldOfTheClosingIsNotToldAgain) {
  fixture.frame(1, eager(0, 100), filled(100, 1));
  fixture.messenger.close(kCommunicator);
  fixture.frame(1, eager(1, 100), filled(100, 1));
  EXPECT_THAT(fixture.to(1).of(FrameKind::kLeft), SizeIs(1));
}

}  // namespace
}  // namespace unisono::test
