// The checker has to reject plans that are broken in one place, each for its own reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/plan_builder.h"
#include "plan/plan_check.h"
#include "tests/plan/plan_cases.h"

namespace unisono {
namespace {

using plan::ChunkRange;
using plan::Plan;
using plan::PlanBuilder;
using plan::PlanRequest;
using plan::SendSemantics;
using plan::Step;
using plan::StepKind;
using testing::HasSubstr;

std::vector<Plan> plans_of(Collective collective, std::string_view name, PlanRequest request) {
  request.collective = collective;
  return plan_test::build_all(*algorithms::find(collective, name), request);
}

std::vector<Plan> ring_plans(int ranks = 4, int chunks = 1) {
  return plans_of(Collective::kAllReduce, "ring", {.ranks = ranks, .chunks = chunks});
}

std::string fault_of(const std::vector<Plan>& plans) { return plan::check_plans(plans).message(); }

// The n-th step of a kind.
Step& nth(Plan& plan, StepKind kind, int n) {
  for (Step& step : plan.steps) {
    if (step.kind == kind && n-- == 0) return step;
  }
  ADD_FAILURE() << "no such step";
  return plan.steps.front();
}

TEST(PlanCheck, RejectsAnyDroppedDependency) {
  // In a ring every edge is needed; without one the plan is wrong or two steps race.
  for (std::size_t victim = 0; victim < ring_plans()[1].steps.size(); ++victim) {
    auto plans = ring_plans();
    Step& step = plans[1].steps[victim];
    if (step.dependency_count == 0) continue;
    step.dependency_count -= 1;
    EXPECT_THAT(fault_of(plans), HasSubstr("without waiting for step")) << "step " << victim;
  }
}

TEST(PlanCheck, RejectsSwappedMessageIndices) {
  auto plans = ring_plans();
  std::swap(nth(plans[2], StepKind::kSend, 0).message_index,
            nth(plans[2], StepKind::kSend, 1).message_index);
  EXPECT_THAT(fault_of(plans), HasSubstr("has message index 1, not 0"));
}

TEST(PlanCheck, RejectsAMessageToTheWrongPeer) {
  auto plans = plans_of(Collective::kAllGather, "linear", {.ranks = 3});
  nth(plans[0], StepKind::kSend, 0).peer = 2;
  nth(plans[0], StepKind::kSend, 1).message_index = 1;
  EXPECT_THAT(fault_of(plans), HasSubstr("which is not sent"));
}

TEST(PlanCheck, RejectsAMessageThatNobodyTakes) {
  auto plans = ring_plans();
  plans[3].steps.pop_back();
  EXPECT_THAT(fault_of(plans), HasSubstr("which takes 5"));
}

TEST(PlanCheck, RejectsTheWrongChunk) {
  auto plans = ring_plans();
  Step& first = nth(plans[0], StepKind::kSend, 0);
  first.source.first = 1;
  EXPECT_THAT(fault_of(plans), HasSubstr("another length than its source"));

  // Blocks of an all-gather are equally long, so only the contents tell.
  plans = plans_of(Collective::kAllGather, "ring", {.ranks = 4, .chunks = 1});
  nth(plans[0], StepKind::kReceive, 2).target.first = 0;
  EXPECT_THAT(fault_of(plans), HasSubstr("without waiting"));
  plans = plans_of(Collective::kAllGather, "linear", {.ranks = 4, .chunks = 1});
  std::swap(nth(plans[0], StepKind::kReceive, 0).target,
            nth(plans[0], StepKind::kReceive, 1).target);
  EXPECT_THAT(fault_of(plans), HasSubstr("output chunk 2 of rank 0 is 3[0]"));
}

TEST(PlanCheck, RejectsAChunkOfAnotherLengthInVariableBlocks) {
  auto plans = plans_of(Collective::kAllGatherV, "linear", {.ranks = 3});
  std::swap(nth(plans[0], StepKind::kReceive, 0).target,
            nth(plans[0], StepKind::kReceive, 1).target);
  EXPECT_THAT(fault_of(plans), HasSubstr("another length"));
}

TEST(PlanCheck, RejectsARunAcrossVariableBlocks) {
  auto plans = plans_of(Collective::kAllGatherV, "linear", {.ranks = 3});
  nth(plans[0], StepKind::kReceive, 0).target = {plan::Buffer::kOutput, 0, 2};
  EXPECT_THAT(fault_of(plans), HasSubstr("crosses blocks"));
}

TEST(PlanCheck, RejectsAnOperandThatIsLost) {
  auto plans = plans_of(Collective::kReduce, "binomial", {.ranks = 4});
  plans[2].steps.back().source = plans[2].steps.front().source;  // without what came from rank 3
  EXPECT_THAT(fault_of(plans), HasSubstr("is ((0+1)+2)[0], not ranks 0 to 3 of chunk 0 once each"));
}

TEST(PlanCheck, RejectsAnOperandThatIsAddedTwice) {
  auto plans = plans_of(Collective::kReduce, "linear", {.ranks = 4});
  nth(plans[0], StepKind::kReduce, 1).source = {plan::Buffer::kInput, 0, 1};
  EXPECT_THAT(fault_of(plans), HasSubstr("is ((0+1)+(2+0))[0], not"));
}

TEST(PlanCheck, RejectsLostRankOrderOnlyWhereItMatters) {
  for (const bool commutative : {true, false}) {
    auto plans = plans_of(Collective::kAllReduce, "recursive_doubling",
                          {.ranks = 2, .commutative = commutative});
    for (Plan& plan : plans) {
      Step& step = nth(plan, StepKind::kReceiveReduce, 0);
      step.remote_first = !step.remote_first;
    }
    EXPECT_EQ(plan::check_plans(plans).ok(), commutative) << fault_of(plans);
  }
}

TEST(PlanCheck, RejectsResultsThatDifferBetweenRanks) {
  auto plans = plans_of(Collective::kAllReduce, "recursive_doubling", {.ranks = 2});
  nth(plans[1], StepKind::kReceiveReduce, 0).remote_first = false;
  EXPECT_THAT(fault_of(plans), HasSubstr("is (1+0)[0] on rank 1 but (0+1)[0] on rank 0"));
}

TEST(PlanCheck, RejectsAnotherTreeThanTheCanonicalOne) {
  auto plans = plans_of(Collective::kAllReduce, "recursive_doubling", {.ranks = 5});
  EXPECT_TRUE(plan::check_plans(plans).ok());
  for (Plan& plan : plans) plan.request.order = Order::kCanonical;
  EXPECT_THAT(fault_of(plans), HasSubstr("by the canonical tree"));
}

TEST(PlanCheck, RejectsRoundingTwiceInTheExactOrder) {
  auto plans = plans_of(Collective::kAllReduce, "one_shot", {.ranks = 4});
  for (Plan& plan : plans) plan.request.order = Order::kExact;
  EXPECT_THAT(fault_of(plans),
              HasSubstr("is ((0+1)+(2+3))[0], not ranks 0 to 3 of chunk 0 at once"));

  plans = plans_of(Collective::kReduce, "linear", {.ranks = 4, .order = Order::kExact});
  EXPECT_TRUE(plan::check_plans(plans).ok()) << fault_of(plans);
  plans[0].operands[1] = plans[0].operands[2];
  EXPECT_THAT(fault_of(plans), HasSubstr("is exact("));
}

TEST(PlanCheck, RejectsOperandsOutsideTheirListOrTheirBuffer) {
  auto plans = plans_of(Collective::kReduce, "linear", {.ranks = 4, .order = Order::kExact});
  const Step valid = nth(plans[0], StepKind::kReduceAll, 0);
  Step& step = nth(plans[0], StepKind::kReduceAll, 0);
  step.operand_count += 1;
  EXPECT_THAT(fault_of(plans), HasSubstr("outside the list"));
  step.operand_count = 0;
  EXPECT_THAT(fault_of(plans), HasSubstr("has no operands"));
  step = valid;
  plans[0].operands[0].first = 100;
  EXPECT_THAT(fault_of(plans), HasSubstr("leaves its buffer"));
}

TEST(PlanCheck, RejectsWritingTheCallersInput) {
  auto plans = plans_of(Collective::kReduce, "binomial", {.ranks = 4});
  Step& step = nth(plans[2], StepKind::kReceiveReduce, 0);
  step.target = step.source;
  EXPECT_THAT(fault_of(plans), HasSubstr("writes the caller's input"));
}

TEST(PlanCheck, RejectsRangesAndDependenciesOutsideThePlan) {
  auto plans = ring_plans();
  plans[0].steps[0].source.first = 4;
  EXPECT_THAT(fault_of(plans), HasSubstr("leaves its buffer"));
  plans = ring_plans();
  plans[0].steps[0].source.count = 0xffffffff;
  EXPECT_THAT(fault_of(plans), HasSubstr("leaves its buffer"));
  plans = ring_plans();
  plans[0].steps.back().dependency_count += 1;
  EXPECT_THAT(fault_of(plans), HasSubstr("dependencies outside the list"));
  plans = ring_plans();
  plans[0].dependencies.front() = 11;
  EXPECT_THAT(fault_of(plans), HasSubstr("not before it"));
}

TEST(PlanCheck, RejectsPlansOfDifferentCalls) {
  auto plans = ring_plans();
  plans[2] = plans_of(Collective::kAllReduce, "two_shot", {.ranks = 4})[2];
  EXPECT_THAT(fault_of(plans), HasSubstr("another call"));
  plans = ring_plans();
  std::swap(plans[1], plans[2]);
  EXPECT_THAT(fault_of(plans), HasSubstr("is made for rank 2"));
}

// Two ranks that swap one token: each receives over what it sends.
std::vector<Plan> token_exchange(bool through_a_copy) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 2; ++rank) {
    const PlanRequest request{
        .collective = Collective::kAllReduce, .ranks = 2, .rank = rank, .in_place = true};
    PlanBuilder builder(request, "token", 1, 1);
    ChunkRange source = builder.output(0);
    if (through_a_copy) {
      source = builder.add_scratch(builder.output(0));
      builder.copy(source, builder.output(0));
    }
    builder.send(1 - rank, source);
    builder.receive_reduce(1 - rank, builder.output(0), builder.output(0), rank == 1);
    plans.push_back(std::move(builder).finish());
  }
  return plans;
}

TEST(PlanCheck, FindsTheDeadlockThatOnlyRendezvousHas) {
  const auto plans = token_exchange(false);
  EXPECT_TRUE(plan::check_result(plans, SendSemantics::kEager).ok());
  const Status status = plan::check_result(plans, SendSemantics::kRendezvous);
  EXPECT_THAT(status.message(), HasSubstr("deadlock"));
  EXPECT_THAT(status.message(), HasSubstr("sending to rank"));
  EXPECT_TRUE(plan::check_plans(token_exchange(true)).ok());
}

TEST(PlanCheck, FindsTheDeadlockOfCrossedReceives) {
  std::vector<Plan> plans = plans_of(Collective::kAllGather, "linear", {.ranks = 2});
  for (Plan& plan : plans) {
    // Each sends only once it has received.
    const auto is_receive = [](const Step& step) { return step.kind == StepKind::kReceive; };
    const auto at = std::find_if(plan.steps.begin(), plan.steps.end(), is_receive);
    Step& send = nth(plan, StepKind::kSend, 0);
    send.dependency_first = static_cast<std::uint32_t>(plan.dependencies.size());
    send.dependency_count = 1;
    plan.dependencies.push_back(static_cast<std::uint32_t>(at - plan.steps.begin()));
  }
  EXPECT_THAT(plan::check_result(plans, SendSemantics::kEager).message(), HasSubstr("deadlock"));
}

// As long as it asked every step about every pair of ranks, this took hours.
TEST(PlanCheck, ChecksABarrierOfManyRanks) {
  EXPECT_TRUE(
      plan::check_plans(plans_of(Collective::kBarrier, "dissemination", {.ranks = 1500})).ok());
}

TEST(PlanCheck, SaysHowManySymbolsItKeeps) {
  const auto gather = plans_of(Collective::kAllGather, "linear", {.ranks = 4, .chunks = 2});
  EXPECT_EQ(plan::symbols_to_check(gather), 4u * 5 * 2);
  // Of each step a bit for each rank: of 1024 as much as two symbols.
  const auto barrier = plans_of(Collective::kBarrier, "dissemination", {.ranks = 1024});
  EXPECT_EQ(plan::symbols_to_check(barrier), 1024u * 20 * 2);
}

TEST(PlanCheck, RejectsABarrierThatLetsARankThroughEarly) {
  auto plans = plans_of(Collective::kBarrier, "dissemination", {.ranks = 4});
  EXPECT_TRUE(plan::check_plans(plans).ok());
  for (Plan& plan : plans) nth(plan, StepKind::kSend, 1).dependency_count = 0;
  EXPECT_THAT(fault_of(plans), HasSubstr("without knowing that rank"));
}

}  // namespace
}  // namespace unisono
