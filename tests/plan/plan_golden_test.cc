// Plans as text against golden files: a difference in review shows what a change of an algorithm
// means. `plan_golden_test --update-golden` rewrites the files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string_view>

#include "algorithms/algorithm.h"
#include "plan/plan_text.h"
#include "tests/plan/plan_cases.h"

namespace unisono {
namespace {

bool update_golden = false;

std::string golden_folder() { return UNISONO_GOLDEN_FOLDER "/"; }

std::string text_of_all(const algorithms::Algorithm& algorithm, int chunks) {
  const plan::PlanRequest request{.collective = algorithm.collective, .ranks = 4, .chunks = chunks};
  std::string text;
  for (const plan::Plan& plan : plan_test::build_all(algorithm, request)) {
    if (!text.empty()) text += "\n";
    text += text_of(plan);
  }
  return text;
}

class Golden : public testing::TestWithParam<algorithms::Algorithm> {};

TEST_P(Golden, HoldsThePlansOfFourRanks) {
  const std::string path = golden_folder() + plan_test::title_of(GetParam()) + "_4.txt";
  const std::string text = text_of_all(GetParam(), 1);
  if (update_golden) {
    std::ofstream file(path);
    file << text;
    ASSERT_TRUE(file.good()) << path;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path << " is missing: run with --update-golden and review it";
  std::ostringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << "run with --update-golden if the change is meant";
}

INSTANTIATE_TEST_SUITE_P(Plans, Golden, testing::ValuesIn(algorithms::catalog()),
                         [](const auto& info) { return plan_test::title_of(info.param); });

// The textbook ring, written out here so that no golden file can be updated into another one.
TEST(AllReduceRing, IsTheTextbookRingOnFourRanks) {
  const auto* ring = algorithms::find(Collective::kAllReduce, "ring");
  const auto plans =
      plan_test::build_all(*ring, {.collective = Collective::kAllReduce, .ranks = 4});
  // Who sends which chunk to whom, step by step: a is 0, b is 1, c is 2, d is 3.
  constexpr std::string_view kReduceScatter[3] = {"abcd", "dabc", "cdab"};
  constexpr std::string_view kAllGather[3] = {"bcda", "abcd", "dabc"};
  for (Rank rank = 0; rank < 4; ++rank) {
    std::string sends;
    std::string receives;
    std::vector<plan::StepKind> kinds;
    for (const plan::Step& step : plans[static_cast<std::size_t>(rank)].steps) {
      const bool is_send = step.kind == plan::StepKind::kSend;
      ASSERT_EQ(step.peer, is_send ? (rank + 1) % 4 : (rank + 3) % 4);
      const plan::ChunkRange& range = is_send ? step.source : step.target;
      ASSERT_EQ(range.count, 1u);
      (is_send ? sends : receives) += static_cast<char>('a' + range.first);
      if (!is_send) kinds.push_back(step.kind);
    }
    std::string expected;
    for (const auto& step : kReduceScatter) expected += step[static_cast<std::size_t>(rank)];
    for (const auto& step : kAllGather) expected += step[static_cast<std::size_t>(rank)];
    EXPECT_EQ(sends, expected) << "rank " << rank;
    EXPECT_EQ(receives.size(), 6u);
    // After three steps rank 3 owns a, 0 b, 1 c, 2 d.
    EXPECT_EQ(receives[2], "bcda"[rank]);
    using enum plan::StepKind;
    EXPECT_THAT(kinds, testing::ElementsAre(kReceiveReduce, kReceiveReduce, kReceiveReduce,
                                            kReceive, kReceive, kReceive));
  }
}

TEST(AllReduceRing, CutsEachBlockFurtherToPipeline) {
  const auto* ring = algorithms::find(Collective::kAllReduce, "ring");
  const auto plans =
      plan_test::build_all(*ring, {.collective = Collective::kAllReduce, .ranks = 4, .chunks = 2});
  // The second chunk's send of step 1 waits for the second chunk's receive of step 0 alone.
  const plan::Plan& plan = plans[0];
  const plan::Step& send = plan.steps[6];
  EXPECT_EQ(text_of(send), "send to 1 #3 output[7]");
  ASSERT_EQ(send.dependency_count, 1u);
  EXPECT_EQ(text_of(plan.steps[plan.dependencies[send.dependency_first]]),
            "receive_reduce from 3 #1 output[7] = message + input[7]");
}

}  // namespace
}  // namespace unisono

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--update-golden") unisono::update_golden = true;
  }
  return RUN_ALL_TESTS();
}
