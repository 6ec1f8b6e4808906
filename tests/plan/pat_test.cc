// Parallel aggregated trees where there are more ranks than a message has room for blocks: right,
// in the rounds that the formula says, in bounded scratch, and with little on the longest ways.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "algorithms/algorithm.h"
#include "algorithms/rank_math.h"
#include "plan/plan_check.h"
#include "plan/plan_timing.h"
#include "tests/plan/plan_cases.h"

namespace unisono {
namespace {

struct Case {
  Collective collective;
  int ranks;
  int chunks;
  int spare = 2;  // rounds that the formula may say too many
};

std::vector<plan::Plan> plans_of(const Case& c, std::string_view algorithm = "pat") {
  return plan_test::build_all(*algorithms::find(c.collective, algorithm),
                              {.collective = c.collective, .ranks = c.ranks, .chunks = c.chunks});
}

class Pat : public testing::TestWithParam<Case> {};

TEST_P(Pat, IsRightAndTakesTheRoundsOfTheFormula) {
  const auto plans = plans_of(GetParam());
  const Status status = plan::check_plans(plans);
  EXPECT_TRUE(status.ok()) << status.message();
  const int rounds = plan::rounds_of(plans);
  const algorithms::Cost cost =
      algorithms::find(GetParam().collective, "pat")->cost(GetParam().ranks, GetParam().chunks, 0);
  EXPECT_LE(rounds, cost.rounds);
  EXPECT_GE(rounds + GetParam().spare, cost.rounds);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Pat,
    testing::Values(
        Case{Collective::kAllGather, 64, 1}, Case{Collective::kAllGather, 97, 1},
        Case{Collective::kAllGather, 130, 1}, Case{Collective::kAllGather, 40, 40},
        Case{Collective::kAllGather, 100, 5}, Case{Collective::kReduceScatter, 64, 1},
        Case{Collective::kReduceScatter, 97, 1}, Case{Collective::kReduceScatter, 130, 1},
        Case{Collective::kReduceScatter, 40, 40}, Case{Collective::kReduceScatter, 100, 5},
        Case{Collective::kReduceScatter, 65, 11, 0}, Case{Collective::kReduceScatter, 43, 16, 5},
        Case{Collective::kReduceScatter, 75, 8, 4}, Case{Collective::kAllGather, 65, 16},
        Case{Collective::kAllGather, 75, 17}),
    [](const auto& info) {
      return std::string(name_of(info.param.collective)) + "_" + std::to_string(info.param.ranks) +
             "_ranks_" + std::to_string(info.param.chunks) + "_chunks";
    });

// In blocks of a rank. All ranks do the same, each around itself.
double scratch_of(const Case& c) {
  const auto* pat = algorithms::find(c.collective, "pat");
  const plan::Plan plan =
      pat->build({.collective = c.collective, .ranks = c.ranks, .rank = 1, .chunks = c.chunks});
  return static_cast<double>(plan.scratch_like.size()) / c.chunks;
}

// Where ranks are no power of two the trees side by side differ, and blocks are moved together.
TEST(PatScratch, GrowsWithTheLogarithmOfTheRanks) {
  const struct {
    int ranks;
    int chunks;
    int blocks;  // in a message
    int levels;  // of a tree, of which so many are walked side by side
  } cases[] = {{64, 1, 32, 1},     {97, 1, 32, 2},     {130, 1, 32, 3}, {43, 16, 2, 5},
               {75, 8, 4, 5},      {171, 4, 8, 5},     {683, 1, 32, 5}, {2731, 1, 32, 7},
               {43691, 1, 32, 11}, {43691, 16, 2, 15}, {40, 40, 1, 6}};
  for (const auto& [ranks, chunks, blocks, levels] : cases) {
    EXPECT_LE(scratch_of({Collective::kAllGather, ranks, chunks}), blocks * (2 + 3 * levels))
        << ranks << " ranks, " << chunks << " chunks";
    EXPECT_LE(scratch_of({Collective::kReduceScatter, ranks, chunks}), blocks * (3 + 4 * levels))
        << ranks << " ranks, " << chunks << " chunks";
  }
}

// Chunks by how far around the ranks they go.
std::map<int, std::size_t> chunks_by_distance(const std::vector<plan::Plan>& plans) {
  std::map<int, std::size_t> chunks;
  const int ranks = static_cast<int>(plans.size());
  for (const plan::Plan& plan : plans) {
    for (const plan::Step& step : plan.steps) {
      if (step.kind != plan::StepKind::kSend) continue;
      const int up = algorithms::wrap(step.peer - plan.request.rank, ranks);
      chunks[std::min(up, ranks - up)] += step.source.count;
    }
  }
  return chunks;
}

TEST(PatOfSixtyFourRanks, SendsOneBlockHalfwayRoundWhereBruckSendsHalfOfThem) {
  const auto pat = chunks_by_distance(plans_of({Collective::kAllGather, 64, 1}));
  const auto bruck = chunks_by_distance(plans_of({Collective::kAllGather, 64, 1}, "bruck"));
  EXPECT_EQ(pat.at(32), 64u * 1);
  EXPECT_EQ(pat.at(1), 64u * 32);
  EXPECT_EQ(bruck.at(32), 64u * 32);
  EXPECT_EQ(bruck.at(1), 64u * 1);
}

TEST(PatOfSixtyFourRanks, SendsOneMessageARound) {
  const auto plans = plans_of({Collective::kReduceScatter, 64, 1});
  for (const plan::Plan& plan : plans) {
    EXPECT_EQ(std::ranges::count(plan.steps, plan::StepKind::kSend, &plan::Step::kind), 6);
  }
}

}  // namespace
}  // namespace unisono
