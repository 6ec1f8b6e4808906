// Why a communicator has failed: the first cause, and what is not decided on yet.
#include <gtest/gtest.h>

#include <chrono>

#include "comm/failure.h"

namespace unisono {
namespace {

const Status kFirst(ErrorCode::kRankFailed, "first", 1);
const Status kSecond(ErrorCode::kTimeout, "second", 2);

TEST(Failure, IsTheFirstCause) {
  Failure failure;
  EXPECT_FALSE(failure.has_cause());
  EXPECT_TRUE(failure.cause().ok());
  EXPECT_TRUE(failure.set(kFirst));
  EXPECT_FALSE(failure.set(kSecond));
  EXPECT_TRUE(failure.has_cause());
  EXPECT_EQ(failure.cause().message(), "first");
}

TEST(Failure, OfSuspicionsIsTheFirstOneOnceItsTimeIsOver) {
  Failure failure;
  const TimePoint now = Clock::now();
  const TimePoint until = now + std::chrono::seconds(1);
  EXPECT_FALSE(failure.is_overdue(kNever));
  EXPECT_TRUE(failure.suspect(kFirst, until));
  EXPECT_FALSE(failure.suspect(kSecond, now)) << "the first one stands";
  EXPECT_EQ(failure.suspicion().message(), "first");
  EXPECT_FALSE(failure.has_cause()) << "nothing is decided";
  EXPECT_FALSE(failure.is_overdue(now));
  EXPECT_TRUE(failure.is_overdue(until));
}

TEST(Failure, IsNotSuspectedAfterwards) {
  Failure failure;
  failure.set(kFirst);
  EXPECT_FALSE(failure.suspect(kSecond, Clock::now()));
  EXPECT_FALSE(failure.is_suspected());
}

}  // namespace
}  // namespace unisono
