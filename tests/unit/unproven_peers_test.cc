// Whose place a newcomer takes when strangers fill all of them.
#include "base/unproven_peers.h"

#include <gtest/gtest.h>

#include <vector>

namespace unisono {
namespace {

using std::chrono::milliseconds;

TEST(UnprovenPeers, NobodyGoesBeforeHisTurnIsOver) {
  for (const bool greeted : {false, true}) {
    const Duration turn = unproven_turn(greeted);
    EXPECT_EQ(least_promising(std::vector<UnprovenPeer>(3, {"a", greeted, turn - Duration(1)})),
              kNobody);
    EXPECT_EQ(least_promising(std::vector<UnprovenPeer>(3, {"a", greeted, turn})), 0u);
  }
  EXPECT_EQ(least_promising({}), kNobody);
}

TEST(UnprovenPeers, WhoHasNotGreetedGoesBeforeWhoHas) {
  const std::vector<UnprovenPeer> all{{"a", true, milliseconds(500)},
                                      {"b", false, milliseconds(20)},
                                      {"a", true, milliseconds(900)}};
  EXPECT_EQ(least_promising(all), 1u);
}

TEST(UnprovenPeers, TheSourceWithMostPlacesGivesOneUp) {
  const std::vector<UnprovenPeer> all{{"member", true, milliseconds(900)},
                                      {"flood", true, milliseconds(220)},
                                      {"flood", true, milliseconds(230)},
                                      {"flood", true, milliseconds(1)}};
  EXPECT_EQ(least_promising(all), 2u);
}

TEST(UnprovenPeers, OfOneSourceTheLongestStalledGoes) {
  const std::vector<UnprovenPeer> all{{"a", true, milliseconds(220)},
                                      {"a", true, milliseconds(240)},
                                      {"a", true, milliseconds(230)}};
  EXPECT_EQ(least_promising(all), 1u);
}

}  // namespace
}  // namespace unisono
