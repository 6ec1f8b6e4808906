// Which link joins two ranks, from what they published: every rank must come to the same answer,
// whoever has verbs and whichever ports it has.
#include "comm/link_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "comm/host_load.h"
#include "rendezvous/messages/peer_information.h"
#include "transports/verbs/world_address.h"

namespace unisono::test {
namespace {

using algorithms::Link;

constexpr const char* kPlain = "tcp:1:10.0.0.1";

struct Fixture {
  const char* host;
  std::vector<std::string> networks;  ///< none: a rank without verbs
};

World world_of(Rank self, const std::vector<Fixture>& rigs) {
  World world;
  world.rank = self;
  world.size = static_cast<int>(rigs.size());
  for (const Fixture& fixture : rigs) {
    Member member;
    member.rank = static_cast<Rank>(world.members.size());
    member.host = fixture.host;
    member.addresses = std::string("cpus 1\ntcp ") + kPlain + "\n";
    if (!fixture.networks.empty()) {
      member.addresses += "verbs " + verbs::world_address_text({fixture.networks, kPlain}) + "\n";
    }
    world.members.push_back(std::move(member));
  }
  return world;
}

LinkMap map_of(Rank self, const std::vector<Fixture>& rigs, const std::string& transport = "auto",
               bool shares_memory = false) {
  const World world = world_of(self, rigs);
  auto made = LinkMap::make(world, transport, [&](Rank rank) {
    return shares_memory && same_host(world.members[static_cast<std::size_t>(rank)],
                                      world.members[static_cast<std::size_t>(self)]);
  });
  EXPECT_TRUE(made) << made.status().message();
  return made ? *made : LinkMap();
}

std::vector<Rank> all_of(const std::vector<Fixture>& rigs) {
  std::vector<Rank> ranks(rigs.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST(WorldAddress, IsReadAsItIsWritten) {
  const std::string text = verbs::world_address_text({{"eth:7fff", "ib:1"}, kPlain});
  const auto read = verbs::parse_world_address(text);
  ASSERT_TRUE(read) << read.status().message();
  EXPECT_THAT(read->networks, testing::ElementsAre("eth:7fff", "ib:1"));
  EXPECT_EQ(read->side, kPlain);
}

TEST(WorldAddress, OfARankWithoutVerbsIsItsPlainOne) {
  const auto read = verbs::parse_world_address(kPlain);
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->networks.empty());
  EXPECT_EQ(read->side, kPlain);
}

TEST(WorldAddress, OfAnotherVersionIsRefused) {
  for (const char* text :
       {"verbs2;eth:7fff;tcp:1:10.0.0.1", "verbs1", "verbs1;eth:7fff", "verbs"}) {
    const auto read = verbs::parse_world_address(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code(), ErrorCode::kRendezvous);
    EXPECT_THAT(read.error().message(), testing::HasSubstr("version"));
  }
}

TEST(LinkMap, JoinsHostsByVerbsWhereBothHaveThem) {
  const std::vector<Fixture> rigs{{"a", {"eth:7fff"}}, {"b", {"eth:7fff"}}, {"c", {}}};
  EXPECT_EQ(map_of(0, rigs).to(1), Link::kVerbs);
  EXPECT_EQ(map_of(1, rigs).to(0), Link::kVerbs);
  EXPECT_EQ(map_of(0, rigs).to(2), Link::kTcp);
  EXPECT_EQ(map_of(2, rigs).to(0), Link::kTcp);
}

TEST(LinkMap, LeavesLocalRanksTheirMemoryUnlessVerbsIsAskedFor) {
  const std::vector<Fixture> rigs{{"a", {"eth:7fff"}}, {"a", {"eth:7fff"}}};
  EXPECT_EQ(map_of(0, rigs, "auto", true).to(1), Link::kShm);
  EXPECT_EQ(map_of(0, rigs, "auto").to(1), Link::kUnix);
  EXPECT_EQ(map_of(0, rigs, "verbs", true).to(1), Link::kVerbs);
  EXPECT_EQ(map_of(0, rigs, "tcp", true).to(1), Link::kTcp);
  EXPECT_EQ(map_of(0, rigs, "loopback", true).to(1), Link::kLoopback);
}

TEST(LinkMap, FallsBackToTcpWherePortsHaveNothingInCommon) {
  const std::vector<Fixture> rigs{{"a", {"eth:7fff", "ib:1"}}, {"b", {"ib:2"}}, {"c", {"ib:1"}}};
  for (const char* transport : {"auto", "verbs"}) {
    EXPECT_EQ(map_of(0, rigs, transport).to(1), Link::kTcp);
    EXPECT_EQ(map_of(1, rigs, transport).to(0), Link::kTcp);
    EXPECT_EQ(map_of(0, rigs, transport).to(2), Link::kVerbs);
  }
}

TEST(LinkMap, GivesEveryMemberTheSameSlowestLink) {
  const std::vector<std::pair<std::vector<Fixture>, Link>> jobs{
      {{{"a", {"ib:1"}}, {"b", {"ib:1"}}, {"c", {"ib:1", "eth:7fff"}}}, Link::kVerbs},
      // The second reaches both others by verbs, and they each other by TCP alone.
      {{{"a", {"ib:1"}}, {"b", {"ib:1", "eth:7fff"}}, {"c", {"eth:7fff"}}}, Link::kTcp},
      {{{"a", {"ib:1"}}, {"b", {"ib:1"}}, {"c", {}}}, Link::kTcp},
      {{{"a", {"ib:1"}}, {"a", {"ib:1"}}, {"b", {"ib:1"}}}, Link::kVerbs},
      {{{"a", {"ib:1"}}, {"a", {"ib:2"}}, {"b", {"ib:1", "ib:2"}}}, Link::kTcp},
      {{{"a", {"ib:1"}}, {"a", {}}, {"a", {"ib:1"}}}, Link::kShm},
  };
  for (const auto& [rigs, expected] : jobs) {
    for (const Rank self : all_of(rigs)) {
      EXPECT_EQ(map_of(self, rigs, "auto", true).slowest(all_of(rigs)), expected)
          << "rank " << self;
    }
  }
}

TEST(LinkMap, LooksAtTheMembersAlone) {
  const std::vector<Fixture> rigs{{"a", {"ib:1"}}, {"b", {"ib:1"}}, {"c", {}}};
  EXPECT_EQ(map_of(0, rigs).slowest({0, 1}), Link::kVerbs);
  EXPECT_EQ(map_of(0, rigs).slowest({0, 2}), Link::kTcp);
}

TEST(LinkMap, NamesARankOfAnotherVersion) {
  World world = world_of(0, {{"a", {"ib:1"}}, {"b", {}}});
  world.members[1].addresses = "verbs verbs9;x;y\n";
  const auto made = LinkMap::make(world, "auto", [](Rank) { return false; });
  ASSERT_FALSE(made);
  EXPECT_THAT(made.status().message(), testing::HasSubstr("rank 1"));
}

}  // namespace
}  // namespace unisono::test
