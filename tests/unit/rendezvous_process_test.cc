// Ranks as processes: killed ones, leftovers of killed jobs, exits without goodbye, forked
// children that hold descriptors.
#include <gmock/gmock.h>

#include <filesystem>

#include "rendezvous_support.h"

namespace unisono::rendezvous {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<RankProcess> start(const std::string& url, int size) {
  std::vector<RankProcess> ranks;
  for (Rank rank = 0; rank < size; ++rank) ranks.emplace_back(url, rank, size);
  return ranks;
}

void expect_joined(std::vector<RankProcess>* ranks) {
  for (RankProcess& rank : *ranks) ASSERT_EQ(rank.line(), "joined");
}

std::string env_url() { return "env://" + abstract_point().name; }
std::string file_url() { return "file://" + file_point().name; }

TEST(Processes, KilledRankIsNamedToAllOthers) {
  auto ranks = start(env_url(), 4);
  expect_joined(&ranks);
  ranks[2].kill();
  for (const int survivor : {0, 1, 3}) {
    EXPECT_THAT(ranks[survivor].line(), StartsWith("decision 2 rank 2 (host testhost, pid "));
  }
  for (const int survivor : {1, 3, 0}) EXPECT_EQ(ranks[survivor].finish(), 0);
}

TEST(Processes, KilledRankZeroIsNamedToAllOthers) {
  auto ranks = start(env_url(), 4);
  expect_joined(&ranks);
  ranks[0].kill();
  for (const int survivor : {1, 2, 3}) {
    EXPECT_THAT(ranks[survivor].line(), StartsWith("decision 0 rank 0 (host testhost, pid "));
  }
}

TEST(Processes, KilledRankIsNamedThoughItsForkedChildLives) {
  const std::string url = env_url();
  std::vector<RankProcess> ranks;
  for (Rank rank = 0; rank < 3; ++rank) ranks.emplace_back(url, rank, 3, "forks");
  expect_joined(&ranks);
  ranks[1].kill();
  for (const int survivor : {0, 2}) EXPECT_THAT(ranks[survivor].line(), StartsWith("decision 1"));
  ranks[0].kill();
  EXPECT_THAT(ranks[2].line(), StartsWith("decision 0"));
}

TEST(Processes, RankZeroMayLeaveAndEndBeforeTheOthers) {
  auto ranks = start(env_url(), 3);
  expect_joined(&ranks);
  EXPECT_EQ(ranks[0].finish(), 0);
  for (const int survivor : {1, 2}) {
    EXPECT_EQ(ranks[survivor].finish(), 0);
    EXPECT_EQ(ranks[survivor].line(), "") << "no decision";
  }
}

TEST(Processes, ArbiterServesOnAfterRankZeroLeft) {
  const std::string url = env_url();
  std::vector<RankProcess> ranks;
  ranks.emplace_back(url, 0, 3, "leaves");
  ranks.emplace_back(url, 1, 3);
  ranks.emplace_back(url, 2, 3);
  expect_joined(&ranks);
  ranks[1].kill();
  EXPECT_THAT(ranks[2].line(), StartsWith("decision 1"));
  EXPECT_EQ(ranks[0].finish(), 0) << "the arbiter does not hold up the end of the process";
}

TEST(Processes, RankZeroExitingWithoutGoodbyeIsAFailure) {
  const std::string url = env_url();
  std::vector<RankProcess> ranks;
  ranks.emplace_back(url, 0, 2, "exits");
  ranks.emplace_back(url, 1, 2);
  expect_joined(&ranks);
  EXPECT_EQ(ranks[0].finish(), 0);
  EXPECT_THAT(ranks[1].line(), StartsWith("decision 0"));
}

TEST(Processes, FileServesTheNextJobAndTheOneAfterAKilledJob) {
  const std::string url = file_url();
  for (int job = 0; job < 2; ++job) {
    auto ranks = start(url, 2);
    expect_joined(&ranks);
    for (const int rank : {1, 0}) EXPECT_EQ(ranks[rank].finish(), 0);
  }
  {
    // Killed while it waits for its second rank, so that its file stays behind.
    RankProcess lonely(url, 0, 2);
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(url.substr(7)); }));
    lonely.kill();
    ASSERT_TRUE(std::filesystem::exists(url.substr(7)));
  }
  // The second rank starts first and reads the dead job's file.
  std::vector<RankProcess> ranks;
  ranks.emplace_back(url, 1, 2);
  ranks.emplace_back(url, 0, 2);
  expect_joined(&ranks);
}

TEST(Processes, TcpServesTheNextJobAfterAKilledOne) {
  const std::string url = "tcp://127.0.0.1:" + std::to_string(tcp_point().port);
  for (int job = 0; job < 2; ++job) {
    auto ranks = start(url, 3);
    expect_joined(&ranks);
    ranks[1].kill();
    EXPECT_THAT(ranks[2].line(), StartsWith("decision 1"));
    ranks[0].kill();
    EXPECT_THAT(ranks[2].line(), StartsWith("decision 0"));
  }
}

}  // namespace
}  // namespace unisono::rendezvous
