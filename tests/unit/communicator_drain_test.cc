// How long a rank that leaves waits for what it has sent.
#include <gtest/gtest.h>

#include "base/drain.h"

namespace unisono {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const TimePoint kLeaves = TimePoint() + std::chrono::hours(1);

Duration lasts_for(Drain drain, Duration between_looks) {
  TimePoint now = kLeaves;
  while (drain.goes_on(now)) now += between_looks;
  return now - kLeaves;
}

TEST(Drain, LastsLongerWhereSomebodyWaits) {
  EXPECT_EQ(lasts_for(Drain(true, kLeaves), milliseconds(1)), seconds(2));
  EXPECT_EQ(lasts_for(Drain(false, kLeaves), milliseconds(1)), milliseconds(100));
}

TEST(Drain, IsNotOverBecauseTheJobWasStopped) {
  Drain drain(true, kLeaves);
  const TimePoint again = kLeaves + seconds(6);
  EXPECT_TRUE(drain.goes_on(again));
  EXPECT_EQ(drain.deadline(), again + seconds(2) - Drain::kLookMax);
}

}  // namespace
}  // namespace unisono
