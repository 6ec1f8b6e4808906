// `unisono plan --cost`: networks from text, and what plans take on them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/plan/cost.h"
#include "tools/plan/topology.h"

namespace unisono::tools {
namespace {

using testing::HasSubstr;

TEST(Topology, SaysWhatNodesAndLinksThereAre) {
  const auto network = parse_topology("nodes=4x8,intra=400G:1us,inter=25G:5us", 32);
  ASSERT_TRUE(network) << network.error().message();
  EXPECT_EQ(network->ranks_per_node, 8);
  EXPECT_EQ(network->node_of(7), 0);
  EXPECT_EQ(network->node_of(8), 1);
  EXPECT_DOUBLE_EQ(network->latency, 1e-6);
  EXPECT_DOUBLE_EQ(gbps_of(network->per_byte), 400);
  EXPECT_DOUBLE_EQ(network->between_nodes.latency, 5e-6);
  EXPECT_DOUBLE_EQ(gbps_of(network->between_nodes.per_byte), 25);
  EXPECT_EQ(describe_topology(*network, 32),
            "4 nodes of 8 ranks, 400 Gb/s and 1 us within, 25 Gb/s and 5 us between");
}

TEST(Topology, TakesFieldsAfterAPresetInItsPlace) {
  const auto flat = parse_topology("flat,intra=1.5T:250ns", 5);
  ASSERT_TRUE(flat) << flat.error().message();
  EXPECT_EQ(flat->ranks_per_node, 0);
  EXPECT_DOUBLE_EQ(gbps_of(flat->per_byte), 1500);
  EXPECT_DOUBLE_EQ(flat->latency, 2.5e-7);
  const auto tree = parse_topology("fat-tree,nodes=2x4,inter=100M:1ms", 8);
  ASSERT_TRUE(tree) << tree.error().message();
  EXPECT_EQ(tree->ranks_per_node, 4);
  EXPECT_DOUBLE_EQ(gbps_of(tree->between_nodes.per_byte), 0.1);
}

TEST(Topology, SaysWhatIsWrong) {
  const struct {
    const char* text;
    const char* says;
  } wrong[] = {{"", "no field is called ''"},
               {"torus", "choose of: flat, fat-tree, nodes=, intra=, inter="},
               {"nodes=4x8", "4 x 8 = 32 ranks, but --ranks is 16: add -n 32"},
               {"nodes=16", "must be as 8x4"},
               {"nodes=0x16", "nodes: 0 is outside 1 to"},
               {"nodes=-4x-4", "nodes"},
               {"nodes=99999999999x2", "nodes"},
               {"intra=100G", "as 100G:5us"},
               {"intra=100:5us", "as 100G:5us"},
               {"intra=nanG:5us", "as 100G:5us"},
               {"intra=infG:5us", "as 100G:5us"},
               {"intra=0G:5us", "as 100G:5us"},
               {"intra=100G:-5us", "as 100G:5us"},
               {"intra=100G:99s", "as 100G:5us"},
               {"inter=100G:5us", "intra is missing"},
               {"nodes=4x4,intra=100G:5us", "inter is missing"},
               {"intra=100G:5us,inter=100G:5us", "nodes is missing"},
               {"flat=5", "flat is a preset and takes no value"},
               {"fat-tree,flat", "flat must come first"},
               {"nodes=4x4,intra=100G:5us,inter=9G:5us,flat", "flat must come first"},
               {"intra=100G:5us,fat-tree", "fat-tree must come first"},
               {"intra=100G:5us,intra=9G:5us", "intra is there twice"},
               {"flat,", "no field is called ''"}};
  for (const auto& [text, says] : wrong) {
    const auto network = parse_topology(text, 16);
    ASSERT_FALSE(network) << text;
    EXPECT_THAT(std::string(network.error().message()), HasSubstr(says)) << text;
  }
}

plan::PlanRequest request_of(Collective collective, int ranks) {
  return {.collective = collective, .ranks = ranks};
}

double us_of(Collective collective, std::string_view name, int ranks, std::size_t bytes,
             const plan::NetworkModel& network) {
  const auto costs = costs_on_network(request_of(collective, ranks), name, bytes, network);
  EXPECT_EQ(costs.size(), 1u);
  EXPECT_EQ(costs.at(0).refusal, "");
  return costs.at(0).seconds * 1e6;
}

TEST(CostOnNetwork, IsTheTextbooksOnAFlatNetwork) {
  const auto network = parse_topology("intra=8G:10us", 64);  // 1000 bytes a us
  ASSERT_TRUE(network);
  for (const int ranks : {2, 8, 64}) {
    const double rounds = std::log2(ranks);
    const double whole = 64'000;
    const double block = whole / ranks;
    EXPECT_NEAR(us_of(Collective::kAllReduce, "ring", ranks, 64'000, *network),
                2 * (ranks - 1) * (10 + block / 1000), 1e-6);
    EXPECT_NEAR(us_of(Collective::kAllReduce, "recursive_doubling", ranks, 64'000, *network),
                rounds * (10 + whole / 1000), 1e-6);
    EXPECT_NEAR(us_of(Collective::kAllGather, "ring", ranks, 64'000, *network),
                (ranks - 1) * (10 + block / 1000), 1e-6);
    EXPECT_NEAR(us_of(Collective::kAllGather, "recursive_doubling", ranks, 64'000, *network),
                rounds * 10 + (whole - block) / 1000, 1e-6);
  }
}

// Four ranks a node and a link for all of them: half of all bytes go through it one after another.
TEST(CostOnNetwork, SharesTheLinkOfANode) {
  const auto network = parse_topology("nodes=2x4,intra=80G:0us,inter=8G:10us", 8);
  ASSERT_TRUE(network);
  const double us = us_of(Collective::kAllToAll, "linear", 8, 64'000, *network);
  const double through = 4 * 4 * 8'000 / 1000.0;  // each of 4 ranks sends 4 blocks over it
  EXPECT_GE(us, through + 10);
  EXPECT_LE(us, 1.1 * (through + 10));
}

// A chain takes as long as ranks - 2 + chunks messages of a chunk after its latencies.
TEST(CostOnNetwork, CutsEachAlgorithmAsSuitsIt) {
  const auto network = parse_topology("intra=8G:10us", 64);
  ASSERT_TRUE(network);
  const auto costs_of = [&](std::string_view name, int chunks_max) {
    return costs_on_network(request_of(Collective::kBroadcast, 64), name, 64'000, *network,
                            chunks_max);
  };
  const PlanCost chain = costs_of("pipelined_chain", kChunksTried).at(0);
  const PlanCost whole = costs_of("pipelined_chain", 1).at(0);
  EXPECT_GT(chain.chunks, 1);
  EXPECT_EQ(whole.chunks, 1);
  EXPECT_LT(chain.seconds, whole.seconds / 5);
  for (int chunks = 1; chunks <= kChunksTried; chunks *= 2) {
    auto request = request_of(Collective::kBroadcast, 64);
    request.chunks = chunks;
    const auto cost = costs_on_network(request, chain.algorithm->name, 64'000, *network, chunks);
    EXPECT_GE(cost.at(0).seconds, chain.seconds * (1 - 1e-6)) << chunks;
  }
  EXPECT_EQ(costs_of("linear", kChunksTried).at(0).chunks, 1) << "which gains nothing";
}

TEST(CostOnNetwork, PutsTheFastestFirstAndTheUnknownLast) {
  const auto network = parse_topology("fat-tree", 48);
  ASSERT_TRUE(network);
  const auto costs =
      costs_on_network(request_of(Collective::kAllGather, 48), "", std::size_t{1} << 20, *network);
  ASSERT_GE(costs.size(), 5u);
  for (std::size_t i = 1; i < costs.size(); ++i) {
    if (!costs[i].refusal.empty()) continue;
    EXPECT_EQ(costs[i - 1].refusal, "");
    EXPECT_LE(costs[i - 1].seconds, costs[i].seconds);
  }
  EXPECT_THAT(costs.back().refusal, HasSubstr("power of two"));
}

TEST(CostOnNetwork, WalksFourThousandRanksAndSaysWhichPlansAreTooLarge) {
  const auto network = parse_topology("fat-tree", 4096);
  ASSERT_TRUE(network);
  const auto request = request_of(Collective::kReduceScatter, 4096);
  const auto bine = costs_on_network(request, "bine", std::size_t{1} << 24, *network);
  EXPECT_EQ(bine.at(0).refusal, "");
  EXPECT_GT(bine.at(0).seconds, 12 * 5e-6 - 3 * 4e-6);
  const auto ring = costs_on_network(request, "ring", std::size_t{1} << 24, *network);
  EXPECT_THAT(ring.at(0).refusal, HasSubstr("more than 2000000 steps"));
}

TEST(CostOnNetwork, IsPrintedForPeopleAndForPrograms) {
  const auto network = parse_topology("nodes=2x3,intra=80G:1us,inter=8G:10us", 6);
  ASSERT_TRUE(network);
  const auto request = request_of(Collective::kAllGather, 6);
  const auto costs = costs_on_network(request, "", 6'000, *network);
  const std::string text = text_of_costs(costs, request, 6'000, *network);
  EXPECT_THAT(text, HasSubstr("2 nodes of 3 ranks"));
  EXPECT_THAT(text, HasSubstr("chunks"));
  EXPECT_THAT(text, HasSubstr("Not predicted:\n"));
  EXPECT_THAT(text, HasSubstr("bine: needs a power of two ranks"));
  const auto json = nlohmann::json::parse(json_of_costs(costs, request, 6'000, *network));
  EXPECT_EQ(json["topology"]["ranks_per_node"], 3);
  EXPECT_DOUBLE_EQ(json["topology"]["inter"]["gbps"], 8);
  EXPECT_EQ(json["algorithms"].size(), costs.size());
  EXPECT_GT(json["algorithms"][0]["predicted_us"], 0);
  EXPECT_EQ(json["algorithms"][0]["chunks"], 1);
  EXPECT_EQ(json["algorithms"][0]["algorithm"], costs[0].algorithm->name);
}

}  // namespace
}  // namespace unisono::tools
