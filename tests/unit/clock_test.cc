// Deadlines that are far away, or have passed before they were asked for.
#include "base/clock.h"

#include <gtest/gtest.h>

namespace unisono {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kNow{seconds(1000)};

TEST(Later, IsSoLongAfterNow) {
  EXPECT_EQ(later(kNow, seconds(2)), TimePoint(seconds(1002)));
  EXPECT_EQ(later(kNow, seconds(0)), kNow);
}

TEST(Later, IsNeverWhereThatIsTooFar) {
  EXPECT_EQ(later(kNow, milliseconds::max()), kNever);
  EXPECT_EQ(later(kNow, std::chrono::duration_cast<milliseconds>(kNever - kNow)), kNever);
  EXPECT_EQ(later(kNever, milliseconds(1)), kNever);
}

TEST(Later, KnowsTimesBeforeTheEpoch) {
  EXPECT_EQ(later(TimePoint(seconds(-3)), seconds(2)), TimePoint(seconds(-1)));
  EXPECT_EQ(later(TimePoint::min(), seconds(2)), TimePoint::min() + seconds(2));
  EXPECT_EQ(later(TimePoint::min(), milliseconds::max()), kNever);
}

TEST(Later, IsNowWhereTheTimeHasPassedAlready) {
  for (const milliseconds passed : {milliseconds(-1), milliseconds(-10'000'000'000'000'000)}) {
    EXPECT_EQ(later(kNow, passed), kNow);
    EXPECT_EQ(later(TimePoint::min(), passed), TimePoint::min());
  }
}

}  // namespace
}  // namespace unisono
