// Who is in a communicator.
#include <gtest/gtest.h>

#include "backend/members.h"

namespace unisono {
namespace {

TEST(Members, AreKnownByBothTheirRanks) {
  const Members members(7, {4, 2, 9}, 1);
  EXPECT_EQ(members.id(), 7u);
  EXPECT_EQ(members.self(), 1);
  EXPECT_EQ(members.size(), 3);
  EXPECT_EQ(members.world_rank(2), 9);
  EXPECT_EQ(members.find(4), 0);
  EXPECT_EQ(members.find(3), -1);
}

}  // namespace
}  // namespace unisono
