// Scratch memory: its bound, and what is kept for the next call.
#include "engine/scratch_pool.h"

#include <gmock/gmock.h>

#include <cstdint>

#include "tests/support/refused_allocation.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

TEST(ScratchPool, HoldsItsBound) {
  ScratchPool pool(std::size_t{1} << 20);
  const auto most = pool.take(std::size_t{1} << 20);
  ASSERT_TRUE(most.has_value());
  for (const std::size_t bytes : {std::size_t{1}, ~std::size_t{0}}) {
    const auto more = pool.take(bytes);
    ASSERT_FALSE(more.has_value());
    EXPECT_EQ(more.error().code(), ErrorCode::kOutOfResources);
    EXPECT_THAT(more.error().message(), HasSubstr("UNISONO_SCRATCH_BYTES=1048576"));
  }
}

TEST(ScratchPool, MakesRoomOfWhatCameBack) {
  ScratchPool pool(std::size_t{1} << 20);
  { const auto small = pool.take(4096); }
  EXPECT_TRUE(pool.take(std::size_t{1} << 20).has_value());
}

TEST(ScratchPool, LendsWhatFitsThoughItsUsualSizeDoesNot) {
  for (const std::size_t bound : {std::size_t{3} << 19, (std::size_t{1} << 20) + 64}) {
    ScratchPool pool(bound);
    const std::byte* first = nullptr;
    for (int call = 0; call < 2; ++call) {
      const auto block = pool.take((std::size_t{1} << 20) + 1);
      ASSERT_TRUE(block.has_value()) << block.error().message();
      if (call == 0) first = block->data();
      EXPECT_EQ(block->data(), first) << "it is kept like any other";
    }
  }
}

TEST(ScratchPool, NamesWhatIsLeft) {
  ScratchPool pool(std::size_t{1000});
  const auto held = pool.take(500);
  ASSERT_TRUE(held.has_value());
  const auto more = pool.take(500);
  ASSERT_FALSE(more.has_value());
  EXPECT_THAT(more.error().message(), HasSubstr("needs 500 bytes of scratch memory and 448 are"));
}

TEST(ScratchPool, KnowsWhatHasNotComeBack) {
  ScratchPool pool(std::size_t{1} << 20);
  EXPECT_EQ(pool.lent(), 0u);
  const auto held = pool.take(5000);
  ASSERT_TRUE(held.has_value());
  {
    const auto other = pool.take(100);
    ASSERT_TRUE(other.has_value());
    EXPECT_EQ(pool.lent(), held->bytes() + other->bytes());
  }
  EXPECT_EQ(pool.lent(), held->bytes()) << "what is kept for the next one is not lent";
}

TEST(ScratchPool, TakesBackWithoutMemory) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  ScratchPool pool(std::size_t{1} << 20);
  auto block = pool.take(100);
  ASSERT_TRUE(block.has_value());
  refused_bytes = 1;
  *block = ScratchPool::Block();
  refused_bytes = 0;
  EXPECT_EQ(pool.lent(), 0u);
}

TEST(ScratchPool, GivesAlignedMemory) {
  ScratchPool pool(std::size_t{1} << 20);
  for (const std::size_t bytes : {1, 65, 5000}) {
    const auto block = pool.take(bytes);
    ASSERT_TRUE(block.has_value());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->data()) % 64, 0u);
    EXPECT_GE(block->bytes(), bytes);
  }
}

}  // namespace
}  // namespace unisono::test
