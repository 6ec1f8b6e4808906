// Links that change what they carry although every check on the way passes: with checksums the link
// ends and says so before anybody is given what came; without, it is given.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "tests/support/seed.h"
#include "tests/verbs/message_pair.h"

namespace unisono::verbs::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using How = FakeTampering::How;

constexpr std::size_t kSmall = 1000;

WorldShape summed(int ports = 1) {
  WorldShape shape{.ranks = 2, .ports = ports};
  shape.options.checksum = true;
  return shape;
}

struct Change {
  const char* name;
  std::size_t bytes;  ///< of the frame
  int host;           ///< whose request it is: rank 0 writes records, rank 1 reads payloads
  FakeTampering how;
  const char* words;
};

class ChangeOnTheWay : public testing::TestWithParam<std::tuple<Change, Placement::Kind>> {};

// A record's payload begins behind two lines.
INSTANTIATE_TEST_SUITE_P(
    Verbs, ChangeOnTheWay,
    testing::Combine(
        testing::Values(
            Change{"header", kSmall, 0, {How::kFlip, IBV_WR_RDMA_WRITE_WITH_IMM, 9}, "header"},
            Change{"length", kSmall, 0, {How::kFlip, IBV_WR_RDMA_WRITE_WITH_IMM, 3}, "header"},
            Change{"kind", kSmall, 0, {How::kFlip, IBV_WR_RDMA_WRITE_WITH_IMM, 6}, "header"},
            Change{"sum", kSmall, 0, {How::kFlip, IBV_WR_RDMA_WRITE_WITH_IMM, 64 + 24}, "header"},
            Change{"payload",
                   kSmall,
                   0,
                   {How::kFlip, IBV_WR_RDMA_WRITE_WITH_IMM, 128 + kSmall - 1},
                   "1000 bytes of"},
            Change{
                "tail", kSmall, 0, {How::kCut, IBV_WR_RDMA_WRITE_WITH_IMM, 512}, "1000 bytes of"},
            Change{"address", kLarge, 0, {How::kFlip, IBV_WR_RDMA_WRITE_WITH_IMM, 64}, "header"},
            Change{"key", kLarge, 0, {How::kFlip, IBV_WR_RDMA_WRITE_WITH_IMM, 64 + 8}, "header"},
            Change{"read", kLarge, 1, {How::kFlip, IBV_WR_RDMA_READ, 150'000}, "200000 bytes of"},
            Change{"read_tail", kLarge, 1, {How::kCut, IBV_WR_RDMA_READ, 199'999}, "200000 bytes"}),
        testing::Values(Placement::Kind::kInto, Placement::Kind::kDeliver)),
    [](const auto& info) {
      const bool into = std::get<1>(info.param) == Placement::Kind::kInto;
      return std::get<0>(info.param).name + std::string(into ? "_placed" : "_delivered");
    });

TEST_P(ChangeOnTheWay, IsFoundBeforeAnybodyIsGivenIt) {
  const auto& [change, kind] = GetParam();
  const LogGuard log;
  World world(summed());
  ASSERT_TRUE(world.greet());
  world.witness(1).choose_placement = [kind = kind](const FrameHeader&) { return kind; };
  const std::uint64_t pieces = world.witness(1).pieces();
  world.network().tamper(change.host, 0, change.how);
  world.try_send(0, 1, {.bytes = change.bytes});
  const Status cause = world.end_of(1, 0);
  EXPECT_EQ(cause.code(), ErrorCode::kCorrupted);
  EXPECT_EQ(cause.rank(), 0);
  EXPECT_THAT(cause.message(), AllOf(HasSubstr("the verbs link to rank 0"), HasSubstr(change.words),
                                     HasSubstr("checksum"), HasSubstr("came over fake0 port 1")));
  EXPECT_EQ(world.witness(1).count(0), 1u) << "the greeting alone";
  EXPECT_EQ(world.witness(1).pieces(), pieces);
  const Status there = world.end_of(0, 1);
  EXPECT_EQ(there.code(), ErrorCode::kRankFailed);
  EXPECT_THAT(there.message(), AllOf(HasSubstr("rank 1 gave it up"), HasSubstr("checksum"),
                                     HasSubstr("came over fake0 port 1")));
  world.close_all();
}

TEST(Sums, FindAFrameThatComesTwice) {
  const LogGuard log;
  World world(summed());
  ASSERT_TRUE(world.greet());
  world.network().tamper(0, 0, {How::kRepeat, IBV_WR_RDMA_WRITE_WITH_IMM, 0});
  ASSERT_TRUE(world.send(0, 1, {.bytes = kSmall}));
  ASSERT_TRUE(world.settle(0, 1));
  ASSERT_TRUE(world.send(0, 1, {.bytes = kSmall}));
  const Status cause = world.end_of(1, 0);
  EXPECT_EQ(cause.code(), ErrorCode::kCorrupted);
  EXPECT_THAT(cause.message(), HasSubstr("frames before it are lost"));
  EXPECT_EQ(world.witness(1).count(0), 2u);
  world.close_all();
}

TEST(Sums, FindAPayloadThatIsReadInAnothersPlace) {
  const LogGuard log;
  World world(summed());
  ASSERT_TRUE(world.greet());
  world.network().tamper(1, 0, {How::kRepeat, IBV_WR_RDMA_READ, 0});
  ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge}));
  ASSERT_TRUE(world.settle(0, 1));
  ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge}));
  EXPECT_EQ(world.end_of(1, 0).code(), ErrorCode::kCorrupted);
  world.close_all();
}

TEST(NoSums, LetAFlippedBitPass) {
  const LogGuard log;
  for (const std::size_t bytes : {kSmall, kLarge}) {
    Pair pair({.ranks = 2, .ports = 1});
    std::vector<std::byte> from(bytes, std::byte{0x40}), into(bytes);
    const bool is_read = bytes == kLarge;
    pair.world.network().tamper(
        is_read ? 1 : 0, 0,
        {How::kFlip, is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE_WITH_IMM, 500});
    ASSERT_TRUE(pair.carry(from.data(), into.data(), bytes));
    EXPECT_EQ(std::count(into.begin(), into.end(), std::byte{0x41}), 1);
    EXPECT_EQ(std::count(into.begin(), into.end(), std::byte{0x40}),
              static_cast<std::ptrdiff_t>(bytes) - 1);
    pair.world.close_all();
  }
}

TEST(Sums, TakeALineOfASmallFrameAndNothingWhereTheyAreOff) {
  const LogGuard log;
  for (const bool has_sums : {false, true}) {
    WorldShape shape = summed();
    shape.options.checksum = has_sums;
    World world(std::move(shape));
    ASSERT_TRUE(world.greet());
    const auto written = [&] {
      world.network().wait_until_idle();
      return world.network().counters(0).bytes[IBV_WR_RDMA_WRITE_WITH_IMM];
    };
    const std::uint64_t before = written();
    ASSERT_TRUE(world.send(0, 1, {.bytes = 100}) && world.settle());
    EXPECT_EQ(written() - before, 64u + 128u + (has_sums ? 64u : 0u));
    const std::uint64_t with_small = written();
    ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge}) && world.settle());
    EXPECT_EQ(written() - with_small, 128u);
    world.close_all();
  }
}

// Records are written again and payloads read again, from copies where they were cancelled.
TEST(Sums, HoldWhileTheLinkMoves) {
  const unisono::test::SeedTrace trace;
  std::uint64_t cancelled = 0;
  for (std::uint64_t seed = 1; seed <= 8 && !testing::Test::HasFailure(); ++seed) {
    LogGuard log;
    log.expect("fake");
    WorldShape shape = summed(2);
    shape.network.seed = seed;
    shape.network.piece_bytes_max = 8 * 1024;
    shape.network.forget_completions_of_destroyed = seed % 2 == 0;
    World world(std::move(shape));
    ASSERT_TRUE(world.greet());
    const std::uint64_t epochs = world.verbs(0).work_counts().epochs;
    for (int round = 0; round < 8; ++round) {
      world.send_a_round(round);
      if (round == 3) world.network().set_link(static_cast<int>(seed % 2), 0, false);
      world.turns(static_cast<int>(seed % 4));
      cancelled += world.cancel_one(static_cast<Rank>(round % 2), static_cast<Rank>(1 - round % 2));
    }
    ASSERT_TRUE(world.settle()) << "seed " << seed;
    EXPECT_GT(world.verbs(0).work_counts().epochs, epochs) << "seed " << seed;
    world.close_all();
    EXPECT_TRUE(has_line(log, {"rank ", "fake0 port 1"})) << "seed " << seed;
  }
  EXPECT_GT(cancelled, 0u);
}

// Of a row of large frames: the peer may read the first while the second is summed.
TEST(Sums, LetEachLargeFrameLeaveBeforeTheNextIsSummed) {
  const LogGuard log;
  for (const bool has_sums : {false, true}) {
    WorldShape shape = summed();
    shape.options.checksum = has_sums;
    World world(std::move(shape));
    ASSERT_TRUE(world.greet());
    const std::uint64_t before = world.verbs(0).work_counts().writes;
    for (std::uint64_t frame = 1; frame <= 4; ++frame) {
      ASSERT_EQ(world.try_send(0, 1, {.bytes = kLarge}), PostResult::kPending);
      EXPECT_EQ(world.verbs(0).work_counts().writes - before, has_sums ? frame : 0);
    }
    ASSERT_TRUE(world.settle());
    world.close_all();
  }
}

// What has landed is handed over one by one, each read told before the next is summed.
TEST(Sums, LetTheSenderHearOfEachReadBeforeTheNextIsSummed) {
  const LogGuard log;
  World world(summed());
  ASSERT_TRUE(world.greet());
  for (int frame = 0; frame < 3; ++frame) {
    ASSERT_EQ(world.try_send(0, 1, {.bytes = kLarge, .kind = FrameKind::kData}),
              PostResult::kPending);
  }
  world.network().wait_until_idle();
  world.poll(1);
  world.network().wait_until_idle();
  const std::uint64_t told = world.verbs(1).work_counts().immediates;
  for (std::uint64_t frame = 1; frame <= 3; ++frame) {
    world.poll(1);
    EXPECT_EQ(world.witness(1).count(0), 1 + frame) << "the greeting, and one by one";
    EXPECT_EQ(world.verbs(1).work_counts().immediates - told, frame);
  }
  ASSERT_TRUE(world.settle());
  world.close_all();
}

TEST(Sums, CoverWhatCannotBeRegistered) {
  LogGuard log;
  log.expect("cannot be registered");
  World world(summed());
  ASSERT_TRUE(world.greet());
  for (const int host : {0, 1}) world.network().fail_calls_from(host, FakeCall::kRegMr, 1, ENOMEM);
  for (int round = 0; round < 4; ++round) world.send_a_round(round);
  ASSERT_TRUE(world.settle());
  EXPECT_GT(world.verbs(0).work_counts().staged_bytes, 0u);
  world.network().tamper(1, 0, {How::kFlip, IBV_WR_RDMA_READ, 77});
  world.try_send(0, 1, {.bytes = kLarge});
  EXPECT_EQ(world.end_of(1, 0).code(), ErrorCode::kCorrupted);
  world.close_all();
}

TEST(Sums, RefuseTheMemoryOfDevices) {
  const LogGuard log;
  World world(summed());
  ASSERT_TRUE(world.stands());
  const Status refused = world.transport(0).admits_direct(1, 100'000);
  EXPECT_EQ(refused.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("UNISONO_CHECKSUM"));
  world.close_all();
}

}  // namespace
}  // namespace unisono::verbs::test
