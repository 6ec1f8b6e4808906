// What counts as memory that has left the caches, by how long others take to hand a line over.
#include "transports/shm/cold_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <span>

namespace unisono::shm {
namespace {

constexpr HostFacts host_that_hands_over_in(std::uint32_t nanoseconds) {
  return {.waits = {nanoseconds, 0}, .copies = {}};
}

/// Pages that were never touched: to read from one takes longer than from any cache.
class FreshPages {
 public:
  FreshPages()
      : base_(mmap(nullptr, kColdBytesMin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                   0)) {}
  ~FreshPages() { munmap(base_, kColdBytesMin); }
  FreshPages(const FreshPages&) = delete;
  bool is_there() const { return base_ != MAP_FAILED; }
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(base_), kColdBytesMin};
  }

 private:
  void* base_;
};

TEST(ColdMemory, TakesLongerThanALineThatIsHandedOver) {
  const FreshPages pages;
  ASSERT_TRUE(pages.is_there());
  EXPECT_TRUE(ColdMemory().has(pages.bytes(), host_that_hands_over_in(1)));
}

TEST(ColdMemory, IsNoneThatComesSooner) {
  const FreshPages pages;
  ASSERT_TRUE(pages.is_there());
  EXPECT_FALSE(ColdMemory().has(pages.bytes(), host_that_hands_over_in(4'000'000'000)));
}

TEST(ColdMemory, IsNoneWhereNothingWasMeasured) {
  const FreshPages pages;
  ASSERT_TRUE(pages.is_there());
  EXPECT_FALSE(ColdMemory().has(pages.bytes(), HostFacts{}));
}

TEST(ColdMemory, IsNoneWithoutBytes) {
  EXPECT_FALSE(ColdMemory().has({}, host_that_hands_over_in(1)));
}

// Which is then stored past the caches, whether it was cold or the clock was wrong.
TEST(ColdMemory, IsNotTheSameAgain) {
  const FreshPages pages;
  const FreshPages others;
  ASSERT_TRUE(pages.is_there() && others.is_there());
  ColdMemory memory;
  EXPECT_TRUE(memory.has(pages.bytes(), host_that_hands_over_in(1)));
  EXPECT_FALSE(memory.has(pages.bytes(), host_that_hands_over_in(1)));
  EXPECT_TRUE(memory.has(others.bytes(), host_that_hands_over_in(1)));
}

}  // namespace
}  // namespace unisono::shm
