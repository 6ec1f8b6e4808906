// Whose place a newcomer takes when strangers fill all of them.
#include "base/unproven_peers.h"

#include <gtest/gtest.h>

#include <vector>

namespace unisono {
namespace {

using std::chrono::milliseconds;

TEST(UnprovenPeers, NobodyGoesBeforeHisTurnIsOver) {
  const std::vector<UnprovenPeer> all(3, {"a", false, kUnprovenTurn - milliseconds(1)});
  EXPECT_EQ(least_promising(all), kNobody);
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
                                      {"flood", true, milliseconds(20)},
                                      {"flood", true, milliseconds(30)},
                                      {"flood", true, milliseconds(1)}};
  EXPECT_EQ(least_promising(all), 2u);
}

TEST(UnprovenPeers, OfOneSourceTheLongestStalledGoes) {
  const std::vector<UnprovenPeer> all{
      {"a", true, milliseconds(20)}, {"a", true, milliseconds(40)}, {"a", true, milliseconds(30)}};
  EXPECT_EQ(least_promising(all), 1u);
}

}  // namespace
}  // namespace unisono
