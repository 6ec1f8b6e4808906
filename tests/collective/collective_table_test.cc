// The table of collectives against what others know of them: the checker of plans, which has its
// own list, the catalogue of algorithms, and the tests' cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "algorithms/algorithm.h"
#include "algorithms/selection.h"
#include "base/collective.h"
#include "plan/cell_map.h"
#include "plan/expectation.h"
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

constexpr int kRanks = 4;
constexpr Rank kRoot = 1;

std::vector<plan::PlanRequest> requests_of(Collective collective) {
  std::vector<plan::PlanRequest> requests(kRanks);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    plan::PlanRequest& request = requests[static_cast<std::size_t>(rank)];
    request.collective = collective;
    request.ranks = kRanks;
    request.rank = rank;
    request.root = kRoot;
    request.chunks = 2;
    request.in_place = true;
  }
  return requests;
}

// Chunks of a buffer of so many blocks; an algorithm may cut a vector into any number.
std::uint32_t chunks_of(int blocks, const plan::PlanRequest& request) {
  return static_cast<std::uint32_t>((blocks == plan::kOneVector ? 3 : blocks) * request.chunks);
}

// Whose input the checker wants to see in this rank's output.
std::set<Rank> sources_by_checker(const plan::PlanRequest& request) {
  std::set<Rank> sources;
  const std::uint32_t chunks = chunks_of(plan::output_blocks_of(request), request);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const plan::Expectation wanted = plan::expected(request, chunk);
    for (Rank rank = wanted.first; rank < wanted.first + wanted.count; ++rank) sources.insert(rank);
  }
  return sources;
}

std::set<Rank> sources_by_table(Flow flow, Rank self) {
  const auto ranks = [](Rank end) {
    std::set<Rank> all;
    for (Rank rank = 0; rank < end; ++rank) all.insert(rank);
    return all;
  };
  switch (flow) {
    case Flow::kAllToAll:
      return ranks(kRanks);
    case Flow::kAllToRoot:
      return self == kRoot ? ranks(kRanks) : std::set<Rank>();
    case Flow::kRootToAll:
      return {kRoot};
    case Flow::kUpToOwn:
      return ranks(self + 1);
    case Flow::kBelowOwn:
      return ranks(self);
    case Flow::kNone:
    case Flow::kBetweenTwo:
      return {};
  }
  return {};
}

TEST(CollectiveTable, SaysWhoseInputTheCheckerWantsToSee) {
  for (const CollectiveFacts& facts : collective_rows::kAll) {
    if (!facts.is_collective() || !facts.has_buffers()) continue;
    SCOPED_TRACE(facts.name);
    bool combines = false;
    for (const plan::PlanRequest& request : requests_of(facts.collective)) {
      EXPECT_EQ(sources_by_checker(request), sources_by_table(facts.flow, request.rank))
          << "rank " << request.rank;
      combines = combines || plan::expected(request, 0).count > 1;
    }
    EXPECT_EQ(combines, facts.reduces);
  }
}

// The checker also knows of an exchange of uneven blocks in place, which the check of calls
// refuses.
TEST(CollectiveTable, SaysWhereTheCheckerTakesBuffersForOneMemory) {
  for (const CollectiveFacts& facts : collective_rows::kAll) {
    if (!facts.is_collective() || facts.in_place == InPlace::kNever) continue;
    SCOPED_TRACE(facts.name);
    for (const plan::PlanRequest& request : requests_of(facts.collective)) {
      const std::uint32_t inputs = chunks_of(plan::input_blocks_of(request), request);
      const std::uint32_t outputs = chunks_of(plan::output_blocks_of(request), request);
      const plan::CellMap cells(request, inputs, outputs);
      if (inputs == 0 || outputs == 0) continue;
      const auto own_block = static_cast<std::uint32_t>(request.rank * request.chunks);
      const bool one_is_part = facts.has_blocks() && !facts.exchanges_blocks();
      const bool input_is_part = one_is_part && facts.input.holds == Holds::kBlock;
      const bool output_is_part = one_is_part && !input_is_part;
      EXPECT_EQ(cells.first_cell({plan::Buffer::kInput, 0, 1}) + (output_is_part ? own_block : 0),
                cells.first_cell({plan::Buffer::kOutput, 0, 1}) + (input_is_part ? own_block : 0))
          << "rank " << request.rank;
    }
  }
}

TEST(CollectiveTable, AgreesWithTheOracleOfCalls) {
  for (const CollectiveFacts& facts : collective_rows::kAll) {
    EXPECT_EQ(test::reduces(facts.collective), facts.reduces) << facts.name;
    EXPECT_EQ(test::is_rooted(facts.collective), facts.has_root()) << facts.name;
    EXPECT_EQ(test::has_counts(facts.collective), facts.is_uneven) << facts.name;
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

// What CONTRIBUTING.md says that a new collective needs, where nothing else misses it.
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

// Which serves calls of every size on any number of ranks.
TEST(CollectiveTable, HasADefaultRowForEach) {
  const algorithms::SelectionTable table = algorithms::SelectionTable::defaults();
  for (const CollectiveFacts& facts : collective_rows::kAll) {
    if (!facts.is_collective()) continue;
    for (const Order order : {Order::kAny, Order::kCanonical, Order::kExact}) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1} << 40}) {
        const auto choice = table.choose({.collective = facts.collective,
                                          .ranks = 7,
                                          .bytes = bytes,
                                          .commutative = order == Order::kAny,
                                          .order = order},
                                         "");
        ASSERT_TRUE(choice) << facts.name;
        ASSERT_NE(choice->algorithm, nullptr) << facts.name;
        EXPECT_NE(choice->row, nullptr) << facts.name << " of " << bytes << " bytes";
      }
    }
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
