// Memory that a rank pins: registered once, before the first message, and until it is unpinned.
#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "tests/verbs/message_pair.h"

namespace unisono::verbs::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMessage = 2 * kFramePayloadMax;
constexpr std::size_t kPage = 4096;

/// Whole pages, so that neighbours in memory are not registered with it.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes))) {
    std::fill_n(data_, bytes, std::byte{1});
  }
  ~Pages() { std::free(data_); }
  Pages(const Pages&) = delete;
  std::byte* data() const { return data_; }
  std::span<const std::byte> bytes() const { return {data_, bytes_}; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

TEST(Pin, RegistersBeforeTheFirstMessage) {
  const Pages from(kMessage), to(kMessage);
  Pair pair;
  const auto& counts = pair.world.verbs(0).registration_counts();
  const std::uint64_t before = counts.made;
  ASSERT_TRUE(pair.world.transport(0).pin(from.bytes()));
  EXPECT_EQ(counts.made, before + 1);
  for (int round = 0; round < 3; ++round) {
    from.data()[kMessage - 1] = static_cast<std::byte>(round);
    ASSERT_TRUE(pair.carry(from.data(), to.data(), kMessage));
    EXPECT_EQ(to.data()[kMessage - 1], static_cast<std::byte>(round));
  }
  EXPECT_EQ(counts.made, before + 1) << "a message registered it again";
  EXPECT_GE(counts.found, 3U);
  pair.world.transport(0).unpin(from.bytes());
  pair.world.close_all();
}

// The bound is that of one message, so that each pushes the other out unless it is held.
TEST(Pin, IsNotPushedOutByOtherMemory) {
  const Pages pinned(kMessage), other(kMessage), to(kMessage);
  WorldShape shape{.ranks = 2, .ports = 1};
  shape.options.registered_bytes_max = kMessage;
  Pair pair(std::move(shape));
  const auto& counts = pair.world.verbs(0).registration_counts();
  ASSERT_TRUE(pair.world.transport(0).pin(pinned.bytes()));
  ASSERT_TRUE(pair.carry(other.data(), to.data(), kMessage));
  const std::uint64_t made = counts.made;
  ASSERT_TRUE(pair.carry(pinned.data(), to.data(), kMessage));
  EXPECT_EQ(counts.made, made) << "it was pushed out";
  pair.world.transport(0).unpin(pinned.bytes());
  ASSERT_TRUE(pair.carry(other.data(), to.data(), kMessage));
  ASSERT_TRUE(pair.carry(pinned.data(), to.data(), kMessage));
  EXPECT_GT(counts.made, made) << "it is still held";
  pair.world.close_all();
}

TEST(Pin, OfTwoBuffersEndsOneByOne) {
  const Pages first(kMessage), second(kMessage);
  WorldShape shape{.ranks = 2, .ports = 1};
  shape.options.registered_bytes_max = 1;  // what is not held goes at once
  Pair pair(std::move(shape));
  Transport& transport = pair.world.transport(0);
  const auto& counts = pair.world.verbs(0).registration_counts();
  const std::size_t before = counts.bytes;
  ASSERT_TRUE(transport.pin(first.bytes()));
  ASSERT_TRUE(transport.pin(second.bytes()));
  EXPECT_EQ(counts.bytes, before + 2 * kMessage);
  transport.unpin(first.bytes());
  EXPECT_EQ(counts.bytes, before + kMessage);
  transport.unpin(first.bytes());  // no more of it is pinned
  EXPECT_EQ(counts.bytes, before + kMessage);
  transport.unpin(second.bytes());
  EXPECT_EQ(counts.bytes, before);
  pair.world.close_all();
}

TEST(Pin, NamesTheLimitOfLockedMemory) {
  LogGuard log;
  log.expect("cannot be registered");
  const Pages memory(kMessage);
  Pair pair;
  pair.world.network().fail_calls_from(0, FakeCall::kRegMr, 1, ENOMEM);
  const Status refused = pair.world.transport(0).pin(memory.bytes());
  EXPECT_EQ(refused.code(), ErrorCode::kOutOfResources);
  EXPECT_THAT(refused.message(), HasSubstr("memlock"));
  pair.world.transport(0).unpin(memory.bytes());
  pair.world.close_all();
}

TEST(Pin, IsUnsupportedWithoutAPort) {
  LogGuard log;
  log.expect("rank 1");
  World world({.ranks = 2, .ports = 1, .plain = {1}});
  ASSERT_TRUE(world.stands());
  const Pages memory(kMessage);
  const Status refused = world.transport(1).pin(memory.bytes());
  EXPECT_EQ(refused.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("tcp registers no memory"));
  world.transport(1).unpin(memory.bytes());
  // The other one has a port, though no peer is reached by it.
  EXPECT_TRUE(world.transport(0).pin(memory.bytes()));
  world.transport(0).unpin(memory.bytes());
  world.close_all();
}

}  // namespace
}  // namespace unisono::verbs::test
