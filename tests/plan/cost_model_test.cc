// What the cost model predicts: against plans timed on a simple network, and against what was
// measured on networks of several kinds.
#include "algorithms/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "algorithms/selection.h"
#include "plan/plan_timing.h"
#include "tests/plan/plan_cases.h"

namespace unisono {
namespace {

using algorithms::Algorithm;
using algorithms::LinkFacts;
using algorithms::Prediction;

constexpr std::size_t kKiB = 1024;

double timed(const Algorithm& algorithm, Collective collective, int ranks, int chunks,
             std::size_t bytes, const LinkFacts& links) {
  const auto plans =
      plan_test::build_all(algorithm, {.collective = collective, .ranks = ranks, .chunks = chunks});
  return plan::time_plans(plans, bytes,
                          {.latency = links.latency_us, .per_byte = 1 / links.bytes_per_us})
      .end;
}

// Where messages that are ready together take turns, the one that others wait for may come last:
// by how much the plan then takes longer than predicted at most. 0: messages take no turns.
double worst_of_turns(const Algorithm& algorithm, int ranks, int chunks) {
  if (algorithm.collective == Collective::kAllGather) {
    return algorithm.name == "bruck" ? 1.85 : algorithm.name == "bine" ? 1.9 : 0;
  }
  const bool is_folded =
      algorithm.collective == Collective::kAllReduce && (ranks & (ranks - 1)) != 0 && chunks > 1;
  if (!is_folded) return 0;
  if (algorithm.name == "recursive_doubling") return 1.12;
  return algorithm.name == "halving_doubling" || algorithm.name == "bine" ? 1.37 : 0;
}

// Long messages, so that what a further message costs a rank, which plans are not charged, is
// little.
TEST(CostModel, PredictsWhatPlansTakeOnASimpleNetwork) {
  const LinkFacts links{.latency_us = 30, .bytes_per_us = 100};
  constexpr std::size_t kBytes = 16 * 1024 * kKiB;
  int compared = 0;
  for (const Algorithm& algorithm : algorithms::catalog()) {
    for (const int ranks : {1, 2, 3, 4, 7, 8, 13, 32}) {
      for (const int chunks : {1, 4, 16}) {
        const algorithms::Cost cost = algorithm.cost(ranks, chunks, kBytes);
        if (cost.path_messages == 0) continue;
        if (!algorithm.refuses({.collective = algorithm.collective, .ranks = ranks}).empty())
          continue;
        const double us = timed(algorithm, algorithm.collective, ranks, chunks, kBytes, links);
        const double predicted = algorithms::predict_us(cost, links);
        if (const double worst = worst_of_turns(algorithm, ranks, chunks); worst > 0) {
          // The busiest rank sends all it has to, whatever comes first.
          EXPECT_GE(us, cost.bytes_sent / links.bytes_per_us) << algorithm.name << ", " << ranks;
          EXPECT_LE(us, worst * predicted) << algorithm.name << ", " << ranks << " ranks";
          continue;
        }
        EXPECT_NEAR(predicted, us, us * 0.02)
            << unisono::name_of(algorithm.collective) << " " << algorithm.name << ", " << ranks
            << " ranks, " << chunks << " chunks";
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 600);
}

/// The same, and what a rank spends on further messages of a row.
double timed_with_messages(const Algorithm& algorithm, Collective collective, int ranks, int chunks,
                           std::size_t bytes, const LinkFacts& links) {
  const algorithms::Cost cost = algorithm.cost(ranks, chunks, bytes);
  return timed(algorithm, collective, ranks, chunks, bytes, links) +
         (cost.path_messages - cost.rounds) * std::min(5.0, links.latency_us);
}

/// The best of all algorithms whose paths are worked out, in one chunk, and of chains in any
/// number.
double best_timed(Collective collective, int ranks, std::size_t bytes, const LinkFacts& links) {
  double best = 0;
  for (const Algorithm& algorithm : algorithms::catalog()) {
    if (algorithm.collective != collective) continue;
    if (!algorithm.refuses({.collective = collective, .ranks = ranks}).empty()) continue;
    if (algorithm.cost(ranks, 1, bytes).path_messages == 0) continue;
    const int chunks_max = algorithm.name == "pipelined_chain" ? 64 : 1;
    for (int chunks = 1; chunks <= chunks_max; chunks *= 2) {
      if (chunks > 1 && bytes / static_cast<std::size_t>(chunks) < 4 * kKiB) break;
      const double us = timed_with_messages(algorithm, collective, ranks, chunks, bytes, links);
      best = best == 0 ? us : std::min(best, us);
    }
  }
  return best;
}

// Made-up networks: a fast one with long delays, a slow one, one that is quick in both.
TEST(CostModel, ChoosesWhatIsNearTheBest) {
  for (const LinkFacts& links : {LinkFacts{.latency_us = 100, .bytes_per_us = 3125},
                                 LinkFacts{.latency_us = 50, .bytes_per_us = 12},
                                 LinkFacts{.latency_us = 6, .bytes_per_us = 12500}}) {
    for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
      for (const int ranks : {2, 4, 8, 24}) {
        for (const std::size_t bytes : {4 * kKiB, 16 * kKiB, 256 * kKiB, 4096 * kKiB}) {
          const Prediction chosen =
              algorithms::predict_fastest({.collective = collective, .ranks = ranks}, bytes, links);
          ASSERT_NE(chosen.algorithm, nullptr);
          const double us = timed_with_messages(*chosen.algorithm, collective, ranks, chosen.chunks,
                                                bytes, links);
          EXPECT_LE(us, 1.1 * best_timed(collective, ranks, bytes, links))
              << unisono::name_of(collective) << " of " << bytes << " bytes, " << ranks
              << " ranks, " << links.latency_us << " us: " << chosen.algorithm->name << " in "
              << chosen.chunks;
        }
      }
    }
  }
}

struct Measured {
  std::size_t bytes;
  std::string algorithm;
  int chunks;
  double us;
};

// Four network namespaces on two EPYC cores, 1 Gbit/s, Linux 6.18, 2026-11-26: `unisono perf
// broadcast`, medians; the links were measured as 9.1 us and 116.7 bytes a us.
const std::vector<Measured> kGigabit{
    {16 * kKiB, "binomial", 1, 275},
    {16 * kKiB, "pipelined_chain", 4, 144},
    {64 * kKiB, "binomial", 1, 1095},
    {64 * kKiB, "pipelined_chain", 1, 558},
    {64 * kKiB, "pipelined_chain", 2, 551},
    {64 * kKiB, "pipelined_chain", 4, 555},
    {64 * kKiB, "pipelined_chain", 8, 558},
    {64 * kKiB, "pipelined_chain", 16, 566},
    {256 * kKiB, "binomial", 1, 4391},
    {256 * kKiB, "pipelined_chain", 4, 3155},
    {256 * kKiB, "pipelined_chain", 8, 2209},
    {256 * kKiB, "pipelined_chain", 16, 2219},
    {256 * kKiB, "pipelined_chain", 32, 2232},
    {256 * kKiB, "pipelined_chain", 64, 2243},
    {1024 * kKiB, "binomial", 1, 25798},
    {1024 * kKiB, "pipelined_chain", 16, 13173},
    {1024 * kKiB, "pipelined_chain", 32, 13013},
    {1024 * kKiB, "pipelined_chain", 64, 10522},
};

TEST(CostModel, ChoosesWhatWasMeasuredToBeNearTheBest) {
  const LinkFacts links{.latency_us = 9.1, .bytes_per_us = 116.7};
  for (const std::size_t bytes : {16 * kKiB, 64 * kKiB, 256 * kKiB, 1024 * kKiB}) {
    const Prediction chosen = algorithms::predict_fastest(
        {.collective = Collective::kBroadcast, .ranks = 4}, bytes, links);
    ASSERT_NE(chosen.algorithm, nullptr);
    double best = 0, us = 0;
    for (const Measured& row : kGigabit) {
      if (row.bytes != bytes) continue;
      best = best == 0 ? row.us : std::min(best, row.us);
      if (row.algorithm == chosen.algorithm->name && row.chunks == chosen.chunks) us = row.us;
    }
    ASSERT_GT(us, 0) << bytes << ": " << chosen.algorithm->name << " in " << chosen.chunks
                     << " was not measured";
    EXPECT_LE(us, 1.1 * best) << bytes;
  }
}

TEST(CostModel, ListsAllWaysTheFastestFirst) {
  const LinkFacts links{.latency_us = 25, .bytes_per_us = 1250};
  for (const int ranks : {2, 5, 64}) {
    for (const std::size_t bytes : {std::size_t{0}, 100 * kKiB, std::size_t{1} << 30}) {
      const plan::PlanRequest request{.collective = Collective::kBroadcast, .ranks = ranks};
      const std::vector<Prediction> ways = algorithms::predict(request, bytes, links);
      ASSERT_EQ(ways.size(), ranks == 5 ? 3u : 4u);  // bine is for powers of two
      for (std::size_t at = 1; at < ways.size(); ++at) EXPECT_LE(ways[at - 1].us, ways[at].us);
      const Prediction fastest = algorithms::predict_fastest(request, bytes, links);
      EXPECT_EQ(fastest.algorithm, ways.front().algorithm);
      EXPECT_EQ(fastest.chunks, ways.front().chunks);
    }
  }
}

TEST(CostModel, LeavesOtherCollectivesToTheTable) {
  const LinkFacts links{.latency_us = 25, .bytes_per_us = 1250};
  const plan::PlanRequest request{.collective = Collective::kAllReduce, .ranks = 4};
  EXPECT_TRUE(algorithms::predict(request, 4096, links).empty());
  EXPECT_EQ(algorithms::predict_fastest(request, 4096, links).algorithm, nullptr);
}

TEST(CostModel, KeepsToWhatServesTheCall) {
  const LinkFacts links{.latency_us = 1, .bytes_per_us = 10};
  plan::PlanRequest request{.collective = Collective::kReduce, .ranks = 8};
  EXPECT_EQ(algorithms::predict_fastest(request, 1 << 20, links).algorithm->name,
            "pipelined_chain");
  request.order = Order::kCanonical;
  for (const Prediction& way : algorithms::predict(request, 1 << 20, links)) {
    EXPECT_TRUE(way.algorithm->refuses(request).empty()) << way.algorithm->name;
    EXPECT_NE(way.algorithm->name, "pipelined_chain");
  }
}

}  // namespace
}  // namespace unisono
