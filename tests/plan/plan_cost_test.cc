// The algorithms' cost formulas against what their plans really send, reduce and wait for.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "algorithms/algorithm.h"
#include "plan/plan_builder.h"
#include "plan/plan_timing.h"
#include "tests/plan/plan_cases.h"

namespace unisono {
namespace {

using plan::StepKind;

struct Work {
  double sent = 0;
  double reduced = 0;
};

Work busiest(const std::vector<plan::Plan>& plans, std::size_t bytes) {
  Work most;
  for (const plan::Plan& plan : plans) {
    const auto layout = plan::layout_for(plan, bytes);
    Work work;
    for (const plan::Step& step : plan.steps) {
      if (step.kind == StepKind::kSend) {
        work.sent += static_cast<double>(layout.range(step.source).bytes);
      } else if (step.kind == StepKind::kReceiveReduce || step.kind == StepKind::kReduce) {
        work.reduced += static_cast<double>(layout.range(step.target).bytes);
      }
    }
    most = {std::max(most.sent, work.sent), std::max(most.reduced, work.reduced)};
  }
  return most;
}

class CostOf : public testing::TestWithParam<algorithms::Algorithm> {};

TEST_P(CostOf, IsWhatThePlansDo) {
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 13, 16, 24}) {
    const int chunks = 2;
    const plan::PlanRequest request{
        .collective = GetParam().collective, .ranks = ranks, .chunks = chunks};
    if (!GetParam().refuses(request).empty()) continue;
    const auto plans = plan_test::build_all(GetParam(), request);
    const std::size_t bytes = static_cast<std::size_t>(ranks) * 16 * 2 * chunks;
    const algorithms::Cost cost = GetParam().cost(ranks, chunks, bytes);
    const Work work = busiest(plans, bytes);
    EXPECT_DOUBLE_EQ(cost.bytes_sent, work.sent) << ranks << " ranks";
    EXPECT_DOUBLE_EQ(cost.bytes_reduced, work.reduced) << ranks << " ranks";
    // Trees that are not full and ranks that rest save a round or two.
    const int rounds = plan::rounds_of(plans);
    EXPECT_LE(rounds, cost.rounds) << ranks << " ranks";
    EXPECT_GE(rounds + 2, cost.rounds) << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, CostOf, testing::ValuesIn(algorithms::catalog()),
                         [](const auto& info) { return plan_test::title_of(info.param); });

TEST(PlanTiming, ChargesLatencyAndBytesOncePerRound) {
  const auto* ring = algorithms::find(Collective::kAllReduce, "ring");
  const auto plans =
      plan_test::build_all(*ring, {.collective = Collective::kAllReduce, .ranks = 4});
  const auto timing = plan::time_plans(plans, 4000, {.latency = 10, .per_byte = 0.01});
  EXPECT_DOUBLE_EQ(timing.end, 6 * (10 + 1000 * 0.01));
  EXPECT_EQ(timing.messages.size(), 24u);
}

TEST(PlanTiming, KeepsAllLinksBusyWhereEveryRankSendsToEveryOther) {
  const auto* linear = algorithms::find(Collective::kAllGather, "linear");
  const auto plans =
      plan_test::build_all(*linear, {.collective = Collective::kAllGather, .ranks = 16});
  const auto timing = plan::time_plans(plans, 16000, {.latency = 10, .per_byte = 0.01});
  EXPECT_NEAR(timing.end, 10 + 15 * 1000 * 0.01, 1e-6);
}

TEST(PlanTiming, LetsOneRankReceiveOneMessageAtATime) {
  const auto* linear = algorithms::find(Collective::kReduce, "linear");
  const auto plans = plan_test::build_all(*linear, {.collective = Collective::kReduce, .ranks = 4});
  const auto timing = plan::time_plans(plans, 1000, {.latency = 10, .per_byte = 0.01});
  EXPECT_DOUBLE_EQ(timing.end, 10 + 3 * 1000 * 0.01);
}

struct Sent {
  Rank from;
  Rank to;
  int blocks;
};

// Plans of nothing but these messages, all of them ready at once. A block is a byte of as many
// bytes as there are ranks.
std::vector<plan::Plan> plans_that_send(const std::vector<Sent>& messages, int ranks) {
  int blocks = 0;
  for (const Sent& message : messages) blocks += message.blocks;
  std::vector<plan::Plan> plans;
  for (Rank rank = 0; rank < ranks; ++rank) {
    plan::PlanBuilder builder({.collective = Collective::kAllGather, .ranks = ranks, .rank = rank},
                              "made_up", blocks, blocks);
    int first = 0;
    for (const auto& [from, to, count] : messages) {
      if (rank == from) builder.send(to, builder.input(first, count));
      if (rank == to) builder.receive(from, builder.output(first, count));
      first += count;
    }
    plans.push_back(std::move(builder).finish());
  }
  return plans;
}

TEST(PlanTiming, LetsTheRanksOfANodeTakeTurnsOnItsLink) {
  const auto plans =
      plans_that_send({{0, 2, 1}, {0, 2, 1}, {0, 2, 1}, {1, 3, 1}, {1, 3, 1}, {1, 3, 1}}, 4);
  const auto timing = plan::time_plans(
      plans, 4, {.per_byte = 0.5, .ranks_per_node = 2, .between_nodes = {.per_byte = 1}});
  ASSERT_EQ(timing.messages.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(timing.messages[i].sender, i % 2) << i;
    EXPECT_DOUBLE_EQ(timing.messages[i].start, static_cast<double>(i));
  }
}

// Rank 8's node takes 0's message first, so that 4's waits there; 8's own link is idle meanwhile.
TEST(PlanTiming, LetsNearMessagesPassAFarOneThatWaitsAtTheNode) {
  const auto plans = plans_that_send({{0, 9, 100}, {4, 8, 10}, {10, 8, 1}}, 12);
  const auto timing = plan::time_plans(
      plans, 12, {.per_byte = 1, .ranks_per_node = 4, .between_nodes = {.per_byte = 1}});
  for (const plan::TimedMessage& message : timing.messages) {
    EXPECT_DOUBLE_EQ(message.start, message.sender == 4 ? 100 : 0) << message.sender;
  }
}

TEST(PlanTiming, HoldsFarMessagesToTheRateOfARanksLink) {
  const auto plans = plans_that_send({{0, 2, 10}, {1, 3, 10}}, 4);
  const auto timing = plan::time_plans(
      plans, 4, {.per_byte = 1, .ranks_per_node = 2, .between_nodes = {.per_byte = 0.01}});
  EXPECT_GE(timing.end, 10);
  EXPECT_LE(timing.end, 10.5) << "both ranks send at once";
}

}  // namespace
}  // namespace unisono
