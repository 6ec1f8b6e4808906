// When a connection that acknowledges nothing is dead, from what the kernel would say of it.
#include "transports/tcp/ack_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

namespace unisono::test {
namespace {

using std::chrono::milliseconds;
using tcp::AckFacts;
using tcp::AckWatch;

// Something was sent at 0, and again at these times, as Linux 6.18 did and as it does where its
// pauses are not bounded.
const std::vector<milliseconds> kBounded{milliseconds(420), milliseconds(850), milliseconds(1670),
                                         milliseconds(2710), milliseconds(3730)};
const std::vector<milliseconds> kUnbounded{milliseconds(420), milliseconds(870), milliseconds(1710),
                                           milliseconds(3400), milliseconds(6800)};
constexpr milliseconds kNeverBack = milliseconds::max();
constexpr milliseconds kPatience{2790};  // with a silence of 3 s

struct Network {
  std::vector<milliseconds> repeats;
  milliseconds back = kNeverBack;  // what is sent again then or later is answered at once

  std::optional<AckFacts> facts_at(milliseconds now) const {
    AckFacts facts{.last_ack = now + milliseconds(1), .round_trip = milliseconds(1)};
    for (const milliseconds at : repeats) {
      if (at > now) break;
      if (at >= back) return std::nullopt;
      ++facts.repeats;
    }
    return facts;
  }
};

// When it is taken for dead; nullopt: never.
std::optional<milliseconds> death_of(const Network& network, milliseconds patience) {
  AckWatch watch;
  const TimePoint began = Clock::now();
  const auto step = std::chrono::duration_cast<milliseconds>(AckWatch::look_every(patience));
  for (milliseconds now{0}; now < milliseconds(10000); now += step) {
    if (watch.judge(network.facts_at(now), began + now, patience)) return now;
  }
  return std::nullopt;
}

TEST(AckWatch, FindsADeadConnectionByTheEndOfItsPatience) {
  const auto death = death_of({kBounded}, kPatience);
  ASSERT_TRUE(death);
  EXPECT_GE(*death, milliseconds(2710));
  EXPECT_LE(*death, kPatience + AckWatch::look_every(kPatience));
}

TEST(AckWatch, FindsItLaterWhereTheKernelPausesLong) {
  const auto death = death_of({kUnbounded}, kPatience);
  ASSERT_TRUE(death);
  EXPECT_GE(*death, milliseconds(3400));
  EXPECT_LE(*death, milliseconds(3500));
}

TEST(AckWatch, AwaitsTheRepeatThatANetworkMayAnswerWhichIsBack) {
  for (const int back_ms : {100, 500, 1000, 1750, 2000, 2600}) {
    EXPECT_FALSE(death_of({kBounded, milliseconds(back_ms)}, kPatience)) << back_ms;
    EXPECT_FALSE(death_of({kUnbounded, milliseconds(back_ms)}, kPatience)) << back_ms;
  }
  EXPECT_FALSE(death_of({kUnbounded, milliseconds(3300)}, kPatience));
}

// A peer that reads nothing answered at 0.26, 0.47, 1.78 and 2.8 s, and not what came less than
// half a second after an answer.
TEST(AckWatch, KnowsThatProbesOfAWindowAreAnsweredSeldom) {
  for (const int patience_ms : {186, 465, 930, 1100, 2790}) {
    AckWatch watch;
    const milliseconds patience{patience_ms};
    const TimePoint began = Clock::now();
    const auto step = std::chrono::duration_cast<milliseconds>(AckWatch::look_every(patience));
    for (milliseconds now{0}; now < milliseconds(3500); now += step) {
      milliseconds acknowledged{0};
      for (const int at_ms : {255, 466, 1778, 2800}) {
        if (milliseconds(at_ms) <= now) acknowledged = milliseconds(at_ms);
      }
      const bool is_probed = now >= milliseconds(914) && acknowledged == milliseconds(466);
      const AckFacts facts{
          .repeats = is_probed ? 1U : 0U, .is_window_closed = true, .last_ack = now - acknowledged};
      ASSERT_FALSE(watch.judge(facts, began + now, patience))
          << patience_ms << " at " << now.count();
    }
  }
}

TEST(AckWatch, GivesUpAClosedWindowThatNobodyAnswersFor) {
  AckWatch watch;
  const TimePoint began = Clock::now();
  bool is_dead = false;
  for (milliseconds now{0}; now < milliseconds(5000) && !is_dead; now += milliseconds(4)) {
    const unsigned probes = static_cast<unsigned>(std::count_if(
        kBounded.begin(), kBounded.end(), [&](milliseconds at) { return at <= now; }));
    is_dead = watch.judge(AckFacts{.repeats = probes, .is_window_closed = true, .last_ack = now},
                          began + now, milliseconds(186));
  }
  EXPECT_TRUE(is_dead);
}

// A machine that was stopped for longer than half of the patience, and whose kernel sends again.
TEST(AckWatch, BeginsAnewWhereItWasNotRun) {
  AckWatch watch;
  const milliseconds patience{186};
  const TimePoint began = Clock::now();
  EXPECT_FALSE(watch.judge(AckFacts{}, began, patience));
  const AckFacts late{.repeats = 1, .last_ack = milliseconds(400)};
  EXPECT_FALSE(watch.judge(late, began + milliseconds(400), patience));
  EXPECT_FALSE(watch.judge(late, began + milliseconds(420), patience));
}

}  // namespace
}  // namespace unisono::test
