// Dependencies as the builder derives them.
#include "plan/plan_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::plan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<std::uint32_t> waits(const Plan& plan, std::size_t step) {
  const auto first = plan.dependencies.begin() + plan.steps[step].dependency_first;
  return {first, first + plan.steps[step].dependency_count};
}

PlanRequest request_of(Collective collective, bool in_place = false) {
  return {.collective = collective,
          .ranks = 4,
          .rank = 1,
          .root = 1,
          .chunks = 2,
          .in_place = in_place};
}

TEST(PlanBuilder, OrdersReadsAfterTheLastWrite) {
  PlanBuilder builder(request_of(Collective::kAllReduce), "test", 1, 1);
  builder.receive(0, builder.output(0));
  builder.send(2, builder.output(0));
  builder.send(3, part(builder.output(0), 1));
  const Plan plan = std::move(builder).finish();
  EXPECT_THAT(waits(plan, 1), ElementsAre(0));
  EXPECT_THAT(waits(plan, 2), ElementsAre(0));
}

TEST(PlanBuilder, OrdersAWriteAfterAllReadersAndNamesEachStepOnce) {
  PlanBuilder builder(request_of(Collective::kAllReduce), "test", 1, 1);
  builder.receive(0, builder.output(0));
  builder.send(0, builder.output(0));
  builder.send(2, builder.output(0));
  builder.send(3, part(builder.output(0), 0));
  builder.receive(0, builder.output(0));
  const Plan plan = std::move(builder).finish();
  EXPECT_THAT(waits(plan, 4), UnorderedElementsAre(1, 2, 3));
}

TEST(PlanBuilder, OrdersAWriteAfterAWriteThatNobodyRead) {
  PlanBuilder builder(request_of(Collective::kAllReduce), "test", 1, 1);
  builder.receive(0, builder.output(0));
  builder.receive(0, builder.output(0));
  EXPECT_THAT(waits(std::move(builder).finish(), 1), ElementsAre(0));
}

TEST(PlanBuilder, LetsAStepUpdateItsOwnTarget) {
  PlanBuilder builder(request_of(Collective::kAllReduce, true), "test", 1, 1);
  builder.receive_reduce(0, builder.output(0), builder.input(0), true);
  builder.receive_reduce(2, builder.output(0), builder.output(0), false);
  const Plan plan = std::move(builder).finish();
  EXPECT_THAT(waits(plan, 0), IsEmpty());
  EXPECT_THAT(waits(plan, 1), ElementsAre(0));
}

TEST(PlanBuilder, KnowsWhereInputAndOutputCoincideInPlace) {
  struct Case {
    Collective collective;
    int inputs, outputs, input_block, output_block;
  };
  for (const Case& c :
       {Case{Collective::kAllReduce, 4, 4, 2, 2}, Case{Collective::kAllGather, 1, 4, 0, 1},
        Case{Collective::kGather, 1, 4, 0, 1}, Case{Collective::kReduceScatter, 4, 1, 1, 0},
        Case{Collective::kScatter, 4, 1, 1, 0}, Case{Collective::kAllToAll, 4, 4, 3, 3}}) {
    for (const bool in_place : {false, true}) {
      PlanBuilder builder(request_of(c.collective, in_place), "test", c.inputs, c.outputs);
      EXPECT_EQ(builder.same_memory(builder.input(c.input_block), builder.output(c.output_block)),
                in_place);
      builder.send(0, builder.input(c.input_block));
      builder.receive(0, builder.output(c.output_block));
      builder.copy(builder.output(c.output_block), builder.input(c.input_block));
      const Plan plan = std::move(builder).finish();
      EXPECT_EQ(waits(plan, 1).size(), in_place ? 1u : 0u) << name_of(c.collective);
      EXPECT_EQ(plan.steps.size(), in_place ? 2u : 3u) << "a copy onto itself is elided";
    }
  }
}

TEST(PlanBuilder, IgnoresInPlaceWhereARankHasOnlyOneBuffer) {
  PlanBuilder builder(request_of(Collective::kReduce, true), "test", 1, 0);
  const ChunkRange scratch = builder.add_scratch(builder.input(0));
  builder.send(0, builder.input(0));
  builder.receive(0, scratch);
  EXPECT_THAT(waits(std::move(builder).finish(), 1), IsEmpty());
}

TEST(PlanBuilder, CountsMessagesPerChannelAndDirection) {
  PlanBuilder builder(request_of(Collective::kAllReduce), "test", 1, 1);
  builder.send(0, builder.input(0));
  builder.receive(0, part(builder.output(0), 0));
  builder.send(2, builder.input(0));
  builder.send(0, builder.input(0));
  builder.receive(0, part(builder.output(0), 1));
  const Plan plan = std::move(builder).finish();
  std::vector<std::uint32_t> channels;
  for (const Step& step : plan.steps) channels.push_back(step.message_index);
  EXPECT_THAT(channels, ElementsAre(0, 0, 0, 1, 1));
}

TEST(PlanBuilder, AddsTheOrderThatNoDataImpose) {
  PlanBuilder builder(request_of(Collective::kBarrier), "test", 0, 0);
  const StepIndex first = builder.receive(0, {});
  builder.order_after(first);
  builder.order_after(kNoStep);
  builder.order_after(first);
  builder.send(2, {});
  builder.send(3, {});
  const Plan plan = std::move(builder).finish();
  EXPECT_THAT(waits(plan, 1), ElementsAre(0));
  EXPECT_THAT(waits(plan, 2), IsEmpty());
}

}  // namespace
}  // namespace unisono::plan
