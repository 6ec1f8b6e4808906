// Where the bytes of plans go: how many leave the group of neighbouring ranks that they are in, as
// racks or the groups of a dragonfly are, between which links are few.
#include <gtest/gtest.h>

#include "algorithms/algorithm.h"
#include "plan/plan_timing.h"
#include "tests/plan/plan_cases.h"

namespace unisono {
namespace {

constexpr int kRanks = 256;

class Traffic {
 public:
  /// Of a call of 1 MiB.
  Traffic(Collective collective, std::string_view algorithm) {
    const auto plans = plan_test::build_all(*algorithms::find(collective, algorithm),
                                            {.collective = collective, .ranks = kRanks});
    for (const plan::Plan& plan : plans) {
      const auto layout = plan::layout_for(plan, 1 << 20);
      for (const plan::Step& step : plan.steps) {
        if (step.kind != plan::StepKind::kSend) continue;
        const auto bytes = static_cast<double>(layout.range(step.source).bytes);
        messages_.push_back({plan.request.rank, step.peer, bytes});
      }
    }
  }

  /// Bytes between groups of `group` ranks, of which rank 0 is number `start` of its own.
  double between_groups(int group, int start) const {
    double bytes = 0;
    for (const Message& message : messages_) {
      if ((message.from + start) / group != (message.to + start) / group) bytes += message.bytes;
    }
    return bytes;
  }

  /// Over all places in a group where the ranks may begin.
  double between_groups(int group) const {
    double bytes = 0;
    for (int start = 0; start < group; ++start) bytes += between_groups(group, start);
    return bytes / group;
  }

 private:
  struct Message {
    Rank from;
    Rank to;
    double bytes;
  };
  std::vector<Message> messages_;
};

// Whether Bine trees are better depends on where in a group the ranks begin: this is a mean. Two
// thirds of the distance are its limit; groups that end now and then between near ranks take some
// of it.
TEST(BineTrees, SendAFifthLessBetweenGroupsAsAMeanOfWhereTheRanksBegin) {
  const struct {
    Collective collective;
    std::string_view other;
  } pairs[] = {{Collective::kBroadcast, "binomial"},
               {Collective::kReduce, "binomial"},
               {Collective::kAllReduce, "halving_doubling"},
               {Collective::kAllGather, "pat"},
               {Collective::kReduceScatter, "pat"}};
  for (const auto& [collective, other] : pairs) {
    const Traffic bine(collective, "bine");
    const Traffic others(collective, other);
    for (const int group : {8, 12, 16, 20, 24, 32}) {
      const double ratio = bine.between_groups(group) / others.between_groups(group);
      EXPECT_LT(ratio, 0.82) << unisono::name_of(collective) << ", groups of " << group;
      EXPECT_GT(ratio, 2.0 / 3) << unisono::name_of(collective) << ", groups of " << group;
    }
  }
}

// Which is why bine isn't the better one everywhere.
TEST(BinomialTrees, AreBetterWhereGroupsAreTheirSubtrees) {
  const struct {
    Collective collective;
    std::string_view other;
  } pairs[] = {{Collective::kBroadcast, "binomial"},
               {Collective::kReduce, "binomial"},
               {Collective::kAllReduce, "halving_doubling"}};
  for (const auto& [collective, other] : pairs) {
    const Traffic bine(collective, "bine");
    const Traffic others(collective, other);
    for (const int group : {8, 16, 32}) {
      const double ratio = bine.between_groups(group, 0) / others.between_groups(group, 0);
      EXPECT_GT(ratio, 1.6) << unisono::name_of(collective) << ", groups of " << group;
      EXPECT_LT(ratio, 3.3) << unisono::name_of(collective) << ", groups of " << group;
    }
  }
}

TEST(BinomialTrees, SendOnceToEveryGroupThatIsTheirSubtree) {
  const Traffic binomial(Collective::kBroadcast, "binomial");
  for (const int group : {8, 16, 32}) {
    EXPECT_EQ(binomial.between_groups(group, 0), (kRanks / group - 1) * double{1 << 20});
  }
}

TEST(FurthestFirst, SendsAFractionOfTheBytesOfNearestFirst) {
  const Traffic pat(Collective::kAllGather, "pat");
  const Traffic bine(Collective::kAllGather, "bine");
  for (const std::string_view other : {"bruck", "recursive_doubling"}) {
    const Traffic nearest_first(Collective::kAllGather, other);
    EXPECT_LT(pat.between_groups(16), 0.2 * nearest_first.between_groups(16));
    EXPECT_LT(bine.between_groups(16), 0.16 * nearest_first.between_groups(16));
  }
  const double halving =
      Traffic(Collective::kReduceScatter, "recursive_halving").between_groups(16);
  EXPECT_LT(Traffic(Collective::kReduceScatter, "pat").between_groups(16), 0.2 * halving);
  EXPECT_LT(Traffic(Collective::kReduceScatter, "bine").between_groups(16), 0.16 * halving);
}

}  // namespace
}  // namespace unisono
