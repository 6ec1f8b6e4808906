// The table of collectives against what others know of them: the checker of plans, which has its
// own list, the catalogue of algorithms, and the tests' cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "algorithms/algorithm.h"
#include "base/collective.h"
#include "plan/plan_sizes.h"
#include "tests/collective/matrix_cases.h"
#include "unisono/collectives.h"

namespace unisono {
namespace {

int blocks_of(const BufferFacts& buffer, const plan::PlanRequest& request) {
  if (buffer.at_root_alone && request.rank != request.root) return 0;
  constexpr int kCut = -1;  // as the algorithm likes
  return buffer.holds == Holds::kNothing  ? 0
         : buffer.holds == Holds::kVector ? kCut
         : buffer.holds == Holds::kBlock  ? 1
                                          : request.ranks;
}

TEST(CollectiveTable, AgreesWithTheCheckerOfPlans) {
  for (const CollectiveFacts& facts : collective_rows::kAll) {
    if (!facts.is_collective()) continue;
    SCOPED_TRACE(facts.name);
    EXPECT_EQ(facts.is_one_vector(), plan::is_one_vector(facts.collective));
    EXPECT_EQ(facts.is_uneven, plan::has_uneven_blocks(facts.collective));
    plan::PlanRequest request;
    request.collective = facts.collective;
    request.ranks = 3;
    request.root = 1;
    for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
      EXPECT_EQ(blocks_of(facts.input, request), plan::input_blocks_of(request));
      EXPECT_EQ(blocks_of(facts.output, request), plan::output_blocks_of(request));
    }
  }
}

// What the public header cannot look up.
TEST(CollectiveTable, AgreesWithTheTypedForms) {
  for (const CollectiveFacts& facts : collective_rows::kAll) {
    const bool root_has_less = facts.output.at_root_alone;
    EXPECT_EQ(detail::has_equal_buffers(facts.collective), facts.is_one_vector() && !root_has_less)
        << facts.name;
  }
}

TEST(CollectiveTable, NamesEachOnce) {
  std::set<std::string_view> names;
  for (const CollectiveFacts& facts : collective_rows::kAll) {
    EXPECT_TRUE(names.insert(facts.name).second) << facts.name;
    EXPECT_EQ(name_of(facts.collective), facts.name);
    Collective parsed = Collective::kBarrier;
    EXPECT_TRUE(parse(facts.name, &parsed));
    EXPECT_EQ(parsed, facts.collective);
  }
}

// Some of what CONTRIBUTING.md says that a new collective needs.
TEST(CollectiveTable, HasAnAlgorithmAndCasesForEach) {
  std::set<Collective> tested;
  for (const test::CollectiveCase& c : test::cases_of_job(0, 3)) tested.insert(c.collective);
  for (const CollectiveFacts& facts : collective_rows::kAll) {
    if (!facts.is_collective()) continue;
    EXPECT_TRUE(tested.contains(facts.collective)) << facts.name;
    EXPECT_TRUE(std::ranges::any_of(algorithms::catalog(), [&](const auto& algorithm) {
      return algorithm.collective == facts.collective;
    })) << facts.name;
  }
}

TEST(CollectiveTable, TakesNoOtherValueForOne) {
  const auto none = static_cast<Collective>(200);
  EXPECT_FALSE(is_known(none));
  EXPECT_EQ(name_of(none), "unknown");
  EXPECT_FALSE(reduces(none) || is_rooted(none) || facts_of(none).has_buffers());
}

}  // namespace
}  // namespace unisono
