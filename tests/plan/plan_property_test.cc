// Every algorithm, over all small numbers of ranks, roots, chunk counts, operators and orders, in
// place and not, is checked symbolically under rendezvous and eager semantics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "algorithms/algorithm.h"
#include "plan/plan_check.h"
#include "plan/plan_text.h"
#include "tests/plan/plan_cases.h"
#include "tests/support/watchdog.h"

namespace unisono {
namespace {

using algorithms::Algorithm;
using plan::PlanRequest;
using plan_test::InPlace;

constexpr int kRanksMax = 33;

// Under a sanitizer the numbers of ranks next to powers of two stand for all: the code is the same.
std::vector<int> rank_counts() {
  if (test::is_sanitized() && !test::is_full_run()) return {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33};
  std::vector<int> all(kRanksMax);
  std::iota(all.begin(), all.end(), 1);
  return all;
}

std::string describe(const PlanRequest& request, InPlace in_place) {
  std::ostringstream text;
  text << request.ranks << " ranks, root " << request.root << ", " << request.chunks
       << " chunks, in place " << static_cast<int>(in_place)
       << (request.commutative ? "" : ", not commutative")
       << (request.order == Order::kAny ? "" : ", ") << name_of(request.order);
  return text.str();
}

// Commutativity and order that a collective can be asked for.
std::vector<PlanRequest> flavours(const PlanRequest& request) {
  std::vector<PlanRequest> all{request};
  if (!reduces(request.collective)) return all;
  for (const bool commutative : {true, false}) {
    for (const Order order : {Order::kAny, Order::kCanonical, Order::kExact}) {
      // The exact order is for sums.
      if (commutative ? order == Order::kAny : order == Order::kExact) continue;
      all.push_back(request);
      all.back().commutative = commutative;
      all.back().order = order;
    }
  }
  return all;
}

class EveryAlgorithm : public testing::TestWithParam<Algorithm> {
 protected:
  // True when the algorithm took the request.
  bool check(const PlanRequest& request, InPlace in_place) {
    if (!GetParam().refuses(request).empty()) return false;
    const auto plans = plan_test::build_all(GetParam(), request, in_place);
    const Status status = plan::check_plans(plans);
    EXPECT_TRUE(status.ok()) << describe(request, in_place) << ": " << status.message() << "\n"
                             << (status.rank() >= 0
                                     ? plan::text_of(plans[static_cast<std::size_t>(status.rank())])
                                     : std::string());
    return true;
  }

  PlanRequest request(int ranks, Rank root, int chunks) const {
    return {.collective = GetParam().collective, .ranks = ranks, .root = root, .chunks = chunks};
  }
};

TEST_P(EveryAlgorithm, KeepsItsPromiseForAllSmallNumbersOfRanks) {
  const bool has_root = is_rooted(GetParam().collective);
  int accepted = 0;
  for (const int ranks : rank_counts()) {
    for (Rank root = 0; root < (has_root ? ranks : 1); ++root) {
      for (int chunks = 1; chunks <= 3; ++chunks) {
        for (const InPlace in_place : {InPlace::kNobody, InPlace::kEverybody}) {
          // With many roots to try, the other dimensions take turns beyond a few ranks.
          if (has_root && ranks > 9 && (root + chunks + (in_place == InPlace::kNobody)) % 3 != 0) {
            continue;
          }
          accepted += check(request(ranks, root, chunks), in_place);
          if (HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST_P(EveryAlgorithm, KeepsRankOrderAndTheCanonicalTreeWhereItAcceptsThem) {
  const bool has_root = is_rooted(GetParam().collective);
  for (const int ranks : rank_counts()) {
    for (Rank root = 0; root < (has_root ? ranks : 1); ++root) {
      for (const PlanRequest& flavour : flavours(request(ranks, root, 1 + root % 3))) {
        check(flavour, root % 2 == 0 ? InPlace::kEverybody : InPlace::kNobody);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(EveryAlgorithm, LetsRanksMixInPlaceAndOutOfPlace) {
  for (const int ranks : rank_counts()) {
    check(request(ranks, ranks / 2, 2), InPlace::kOddRanks);
    if (HasFailure()) return;
  }
}

TEST_P(EveryAlgorithm, DeclaresCanonicalExactlyWhenItAcceptsCanonicalRequests) {
  bool accepts = false;
  for (int ranks = 2; ranks <= kRanksMax; ++ranks) {
    PlanRequest canonical = request(ranks, 0, 1);
    canonical.order = Order::kCanonical;
    accepts |= GetParam().refuses(canonical).empty();
  }
  EXPECT_EQ(accepts, GetParam().canonical);
}

TEST_P(EveryAlgorithm, ServesOneRank) {
  PlanRequest one = request(1, 0, 2);
  one.commutative = false;
  one.order = Order::kCanonical;
  EXPECT_EQ(GetParam().refuses(one), "");
  EXPECT_TRUE(plan::check_plans(plan_test::build_all(GetParam(), one)).ok());
  const auto in_place = plan_test::build_all(GetParam(), one, InPlace::kEverybody);
  EXPECT_EQ(in_place.front().steps.empty(), in_place.front().request.in_place)
      << plan::text_of(in_place.front());
}

INSTANTIATE_TEST_SUITE_P(Plans, EveryAlgorithm, testing::ValuesIn(algorithms::catalog()),
                         [](const auto& info) { return plan_test::title_of(info.param); });

TEST(Catalog, NamesEachAlgorithmOnceAndFindsIt) {
  for (const Algorithm& algorithm : algorithms::catalog()) {
    const Algorithm* found = algorithms::find(algorithm.collective, algorithm.name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found, &algorithm) << plan_test::title_of(algorithm) << " is listed twice";
  }
  EXPECT_EQ(algorithms::find(Collective::kAllReduce, "telepathy"), nullptr);
  EXPECT_EQ(algorithms::names_of(Collective::kGather), "linear, binomial");
  EXPECT_EQ(algorithms::names_of(Collective::kSend), "");
}

TEST(Catalog, HasAnAlgorithmForEveryCollectiveRankCountAndOrder) {
  for (int c = 0; c < static_cast<int>(Collective::kSend); ++c) {
    for (const int ranks : rank_counts()) {
      PlanRequest request{.collective = static_cast<Collective>(c), .ranks = ranks};
      for (const PlanRequest& flavour : flavours(request)) {
        const auto serves = [&](const Algorithm& algorithm) {
          return algorithm.collective == flavour.collective && algorithm.refuses(flavour).empty();
        };
        EXPECT_TRUE(std::ranges::any_of(algorithms::catalog(), serves))
            << name_of(request.collective) << ", " << describe(flavour, InPlace::kNobody);
      }
    }
  }
}

TEST(Catalog, SaysWhyARequestIsRefused) {
  const auto refusal = [](Collective collective, std::string_view name, PlanRequest request) {
    request.collective = collective;
    return algorithms::find(collective, name)->refuses(request);
  };
  EXPECT_THAT(
      std::string(refusal(Collective::kAllReduce, "ring", {.ranks = 4, .commutative = false})),
      testing::HasSubstr("rank order"));
  EXPECT_THAT(std::string(refusal(Collective::kAllReduce, "halving_doubling",
                                  {.ranks = 6, .order = Order::kCanonical})),
              testing::HasSubstr("power of two"));
  EXPECT_THAT(std::string(refusal(Collective::kAllGather, "recursive_doubling", {.ranks = 6})),
              testing::HasSubstr("power of two"));
}

}  // namespace
}  // namespace unisono
