// What counts as memory that has left the caches, of a processor that the tests make up.
#include "transports/shm/cold_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace unisono::shm {
namespace {

using std::chrono::nanoseconds;

/// What a line takes from each place, and where lines are: those that were flushed, and `far` ones,
/// come from where it says.
struct Processor {
  nanoseconds near{30};
  nanoseconds memory{145};
  nanoseconds far{145};
  bool can_flush = true;
  std::span<const std::byte> far_place;
  std::set<const std::byte*> flushed;
};
Processor processor;

Duration time_of_reading(const std::byte& line) {
  if (processor.flushed.erase(&line) > 0) return processor.memory;
  const auto at = reinterpret_cast<std::uintptr_t>(&line);
  const auto from = reinterpret_cast<std::uintptr_t>(processor.far_place.data());
  return at - from < processor.far_place.size() ? processor.far : processor.near;
}

void flush(const std::byte& line) {
  if (processor.can_flush) processor.flushed.insert(&line);
}

class ColdMemoryTest : public testing::Test {
 protected:
  ColdMemoryTest() { processor = {}; }
  /// Whether a place is cold of which each line takes so long.
  bool is_cold(nanoseconds time) {
    processor.far = time;
    processor.far_place = place_;
    return ColdMemory(kProbe).has(place_);
  }

  static constexpr LineProbe kProbe{&time_of_reading, &flush};
  const std::vector<std::byte> place_{kColdBytesMin};
};

TEST_F(ColdMemoryTest, ComesAsLateAsALineThatWasFlushed) {
  EXPECT_TRUE(is_cold(nanoseconds(145)));
  EXPECT_FALSE(is_cold(nanoseconds(30)));
}

// Where another core takes 280 ns to hand a line over, in the slow state of a virtual machine,
// memory is nearer than that.
TEST_F(ColdMemoryTest, IsMeasuredByMemoryHoweverFarOtherCoresAre) {
  processor.memory = nanoseconds(140);
  EXPECT_TRUE(is_cold(nanoseconds(150)));
  EXPECT_TRUE(is_cold(nanoseconds(135)));
}

TEST_F(ColdMemoryTest, IsNoneThatAThirdLevelCacheHolds) { EXPECT_FALSE(is_cold(nanoseconds(95))); }

TEST_F(ColdMemoryTest, IsNoneWhereLinesCannotBeFlushed) {
  processor.can_flush = false;
  EXPECT_FALSE(is_cold(nanoseconds(145)));
}

TEST_F(ColdMemoryTest, IsNoneOfShortPlaces) {
  processor.far_place = place_;
  EXPECT_FALSE(ColdMemory(kProbe).has({}));
  EXPECT_FALSE(ColdMemory(kProbe).has(std::span(place_).first(kColdBytesMin - 1)));
}

// Which is then stored past the caches, whether it was cold or the clock was wrong.
TEST_F(ColdMemoryTest, IsNotTheSameAgain) {
  const std::vector<std::byte> both(2 * kColdBytesMin);
  const std::span place = std::span(both).first(kColdBytesMin);
  processor.far_place = both;
  ColdMemory memory(kProbe);
  EXPECT_TRUE(memory.has(place));
  EXPECT_FALSE(memory.has(place));
  EXPECT_TRUE(memory.has(std::span(both).last(kColdBytesMin)));
}

// A virtual machine may come to lie elsewhere.
TEST_F(ColdMemoryTest, FollowsWhatMemoryTakes) {
  const std::vector<std::byte> both(2 * kColdBytesMin);
  processor.far_place = both;
  ColdMemory memory(kProbe);
  const auto are_cold = [&] {
    const bool first = memory.has(std::span(both).first(kColdBytesMin));
    return memory.has(std::span(both).last(kColdBytesMin)) && first;
  };
  EXPECT_TRUE(are_cold());
  processor.memory = nanoseconds(400);
  for (int call = 0; call < 1000; ++call) are_cold();
  EXPECT_FALSE(are_cold());
}

// Of the processor itself.
TEST(LineProbe, ReadsALineLateThatWasFlushed) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "only there the clock is known to wait for reads";
#endif
  alignas(kLineBytes) const std::array<std::byte, kLineBytes> line{};
  std::vector<Duration> flushed, near;
  for (int i = 0; i < 101; ++i) {
    kLineProbe.flush(line[0]);
    flushed.push_back(kLineProbe.time_of_reading(line[0]));
    near.push_back(kLineProbe.time_of_reading(line[0]));
  }
  const auto median = [](std::vector<Duration>& times) {
    std::nth_element(times.begin(), times.begin() + 50, times.end());
    return times[50];
  };
  EXPECT_GT(median(flushed), median(near));
}

}  // namespace
}  // namespace unisono::shm
