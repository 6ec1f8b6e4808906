// Memory is used up while a frame arrives: the transport goes on, and the communicator fails. Or
// while a call begins, which then ends: nothing of its buffers is referenced any more.
#include "tests/engine/messenger_fixture.h"
#include "tests/support/refused_allocation.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using Kind = Placement::Kind;

/// `work` with its allocation of this number refused; whether there was one.
template <typename Work>
bool refusing(std::uint64_t nth, const Work& work) {
  refused_allocation = allocations + nth;
  work();
  return allocations >= std::exchange(refused_allocation, 0);
}

/// What this rank calls, and whether it has failed for that allocation.
template <typename Call>
bool fails_refused(std::uint64_t nth, const Call& call) {
  bool has_failed = false;
  refusing(nth, [&] {
    try {
      call();
    } catch (const std::bad_alloc&) {
      has_failed = true;
    }
  });
  return has_failed;
}

TEST(MemoryForAFrame, WhichIsNotKeptFailsItsCommunicatorAlone) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const Bytes payload = filled(200, 2);
  bool was_one = true;
  for (std::uint64_t nth = 1; was_one; ++nth) {
    Fixture fixture;
    fixture.frame(1, eager(0, 10), filled(10, 1));
    was_one = refusing(nth, [&] { fixture.frame(1, eager(1, 200), payload); });
    EXPECT_EQ(fixture.events.short_of_memory,
              std::vector<std::uint32_t>(was_one ? 1 : 0, kCommunicator));
    EXPECT_THAT(fixture.events.violations, IsEmpty());
    // What comes later is not taken for what was lost.
    EXPECT_EQ(fixture.frame(1, eager(2, 10), filled(10, 3)),
              was_one ? Kind::kDiscard : Kind::kInto);
    EXPECT_EQ(fixture.frame(2, eager(1, 10), filled(10, 4)), Kind::kInto);
    FrameHeader other = eager(0, 10);
    other.communicator = kCommunicator + 1;
    EXPECT_EQ(fixture.frame(1, other, filled(10, 5)), Kind::kInto);
    fixture.messenger.cancel(fixture.owner);
    ASSERT_LT(nth, 100U);
  }
}

TEST(MemoryForAFrame, OfACommunicatorThatIsNotKnownYetIsMissedOnceItIs) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  Fixture fixture(false);
  fixture.frame(1, eager(0, 10), filled(10, 1));
  refused_bytes = 200;
  EXPECT_EQ(fixture.messenger.place(1, eager(1, 200)).kind, Kind::kDiscard);
  fixture.received(1, eager(1, 200));
  refused_bytes = 0;
  EXPECT_THAT(fixture.events.short_of_memory, IsEmpty());
  fixture.messenger.open(kCommunicator, std::vector<Rank>{0, 1, 2});
  EXPECT_THAT(fixture.events.short_of_memory, ElementsAre(kCommunicator));
  EXPECT_THAT(fixture.events.violations, IsEmpty());
}

TEST(MemoryForAFrame, WhichIsTheFirstOfItsCommunicatorIsMissedOnceThatIsKnown) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  FrameHeader other = eager(0, 10);
  other.communicator = kCommunicator + 1;
  const Bytes payload = filled(10, 1);
  bool was_one = true;
  for (std::uint64_t nth = 1; was_one; ++nth) {
    Fixture fixture(false);
    fixture.frame(1, other, payload);
    was_one = refusing(nth, [&] { fixture.frame(1, eager(0, 10), payload); });
    EXPECT_THAT(fixture.events.short_of_memory, IsEmpty());
    fixture.messenger.open(kCommunicator, std::vector<Rank>{0, 1, 2});
    EXPECT_EQ(fixture.events.short_of_memory,
              std::vector<std::uint32_t>(was_one ? 1 : 0, kCommunicator));
    EXPECT_EQ(fixture.frame(2, eager(0, 10), filled(10, 1)), Kind::kInto);
    fixture.messenger.cancel(fixture.owner);
    ASSERT_LT(nth, 100U);
  }
}

TEST(MemoryForAFrame, WhichAReceiveHasClaimedIsMissedThere) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  bool was_one = true;
  for (std::uint64_t nth = 1; was_one; ++nth) {
    Fixture fixture;
    Bytes target(200);
    fixture.place(1, eager(0, 200));
    EXPECT_FALSE(fixture.messenger.receive(1, key_of(0), {}, target.data(), 200, fixture.owner, 0));
    was_one = refusing(nth, [&] { fixture.received(1, eager(0, 200)); });
    EXPECT_EQ(fixture.owner.done.size() + fixture.events.short_of_memory.size(), 1U);
    fixture.messenger.cancel(fixture.owner);
    ASSERT_LT(nth, 100U);
  }
}

TEST(MemoryForACall, OfAMessageThatIsThereIsGivenBackWithTheCall) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  bool has_failed = true;
  for (std::uint64_t nth = 1; has_failed; ++nth) {
    Fixture fixture;
    Bytes target(200);
    fixture.frame(1, eager(0, 200), filled(200, 1));
    has_failed = fails_refused(nth, [&] {
      EXPECT_TRUE(
          fixture.messenger.receive(1, key_of(0), {}, target.data(), 200, fixture.owner, 0));
    });
    fixture.messenger.cancel(fixture.owner);
    Owner other;
    EXPECT_FALSE(fixture.messenger.receive(1, key_of(1), {}, target.data(), 200, other, 0));
    EXPECT_EQ(fixture.place(1, eager(1, 200)), target.data());
    ASSERT_LT(nth, 100U);
  }
}

TEST(MemoryForACall, WhichIsTheFirstWithAPeerIsGivenBackWithTheCall) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  bool has_failed = true;
  for (std::uint64_t nth = 1; has_failed; ++nth) {
    Fixture fixture;
    Bytes target(200);
    const auto receive = [&](MessageOwner& owner) {
      fixture.messenger.receive(1, key_of(0), {}, target.data(), 200, owner, 0);
    };
    has_failed = fails_refused(nth, [&] { receive(fixture.owner); });
    fixture.messenger.cancel(fixture.owner);
    Owner other;
    receive(other);
    fixture.messenger.cancel(other);
    EXPECT_NE(fixture.place(1, eager(0, 200)), target.data());
    EXPECT_THAT(fixture.events.short_of_memory, IsEmpty());
    ASSERT_LT(nth, 100U);
  }
}

TEST(MemoryForAFrame, WhereThereIsNoneAtAllNobodyIsHeard) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  Fixture fixture;
  fixture.frame(1, eager(0, 10), filled(10, 1));
  FrameHeader header = eager(0, 200);
  header.communicator = kCommunicator + 1;
  fixture.events.short_of_memory.reserve(4);
  refused_bytes = 1;
  EXPECT_EQ(fixture.messenger.place(1, header).kind, Kind::kDiscard);
  fixture.messenger.received(1, header);
  refused_bytes = 0;
  EXPECT_THAT(fixture.events.short_of_memory, Each(kEveryCommunicator));
  EXPECT_FALSE(fixture.events.short_of_memory.empty());
  for (const Rank peer : {1, 2}) {
    EXPECT_EQ(fixture.frame(peer, eager(1, 10), filled(10, 1)), Kind::kDiscard);
  }
}

TEST(MemoryForAFrame, IsMissedWhereALinkEndsToo) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  Fixture fixture;
  fixture.frame(1, eager(0, 10), filled(10, 1));
  fixture.events.short_of_memory.reserve(1);
  refused_bytes = 1;
  fixture.messenger.closed(1, Status());
  refused_bytes = 0;
  EXPECT_THAT(fixture.events.short_of_memory, ElementsAre(kEveryCommunicator));
}

}  // namespace
}  // namespace unisono::test
