// The cache of prepared plans: what shares a plan, what must not, what is dropped, and that one
// plan serves the buffers of any call of its shape, over loopback.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "backend/plan_cache.h"
#include "tests/engine/messenger_fixture.h"
#include "transports/loopback/loopback_transport.h"

namespace unisono::test {
namespace {

constexpr int kRanks = 3;
constexpr Rank kThisRank = 1;

int plans_built = 0;

const algorithms::Algorithm& original() {
  static const algorithms::Algorithm& linear = *algorithms::find(Collective::kAllGatherV, "linear");
  return linear;
}

plan::Plan build_and_count(const plan::PlanRequest& request) {
  ++plans_built;
  return original().build(request);
}

// As the catalogue's, but it counts.
const algorithms::Algorithm& counting() {
  static const algorithms::Algorithm made = [] {
    algorithms::Algorithm algorithm = original();
    algorithm.build = build_and_count;
    return algorithm;
  }();
  return made;
}

const std::size_t kCounts[]{4, 2, 1}, kOtherCounts[]{2, 4, 1}, kApart[]{0, 10, 20};

class PlanCacheTest : public ::testing::Test {
 protected:
  PlanCacheTest() { plans_built = 0; }

  PlanCache::Entry& get(const Call& call, int chunks = 1, bool in_place = false) {
    return cache_.get(call, counting(), chunks, in_place, kThisRank, kRanks);
  }
  static Call call_of(std::size_t count) {
    return {.collective = Collective::kAllGatherV,
            .count = count,
            .type = DataType::kFloat32,
            .out_counts = kCounts};
  }
  // Whether a call that differs in this has a plan of its own.
  bool has_own_plan(void (*change)(Call&)) {
    Call other = call_of(2);
    change(other);
    const int before = plans_built;
    get(other);
    return plans_built > before;
  }

  PlanCache cache_;
};

TEST_F(PlanCacheTest, BuildsThePlanOfAShapeOnce) {
  float one[8], other[8];
  Call call = call_of(2);
  call.in = one;
  PlanCache::Entry& entry = get(call);
  call.in = other;
  call.tag = 3;
  EXPECT_EQ(&get(call), &entry);
  EXPECT_EQ(plans_built, 1);
}

TEST_F(PlanCacheTest, KeepsApartWhatDecidesThePlan) {
  get(call_of(2));
  EXPECT_FALSE(has_own_plan([](Call&) {}));
  EXPECT_TRUE(has_own_plan([](Call& c) { c.count = 3; }));
  EXPECT_TRUE(has_own_plan([](Call& c) { c.type = DataType::kFloat64; }));
  EXPECT_TRUE(has_own_plan([](Call& c) { c.options.order = Order::kCanonical; }));
  EXPECT_TRUE(has_own_plan([](Call& c) { c.op = {.kind = OpKind::kUser, .commutative = false}; }));
  EXPECT_TRUE(has_own_plan([](Call& c) { c.out_counts = kOtherCounts; }));
  EXPECT_TRUE(has_own_plan([](Call& c) { c.out_displacements = kApart; }));
  const int before = plans_built;
  get(call_of(2), 2);
  get(call_of(2), 1, true);
  EXPECT_EQ(plans_built, before + 2) << "chunks, and whether the call is in place";
}

TEST_F(PlanCacheTest, KeepsAlgorithmsApart) {
  PlanCache::Entry& entry = get(call_of(2));
  EXPECT_NE(&cache_.get(call_of(2), original(), 1, false, kThisRank, kRanks), &entry);
}

TEST_F(PlanCacheTest, KeepsRootsApart) {
  const auto* linear = algorithms::find(Collective::kBroadcast, "linear");
  Call call{.collective = Collective::kBroadcast, .count = 2, .root = 0};
  PlanCache::Entry& entry = cache_.get(call, *linear, 1, true, kThisRank, kRanks);
  call.root = 2;
  EXPECT_NE(&cache_.get(call, *linear, 1, true, kThisRank, kRanks), &entry);
}

TEST_F(PlanCacheTest, BindsThePlanToTheCallsSizes) {
  const PreparedPlan& plan = get(call_of(2)).plan;
  EXPECT_EQ(plan.input_bytes, 2 * sizeof(float));
  std::size_t sent = 0, received = 0;
  for (const PlannedMessage& message : plan.messages)
    (message.sent ? sent : received) += message.bytes;
  EXPECT_EQ(sent, 2 * 2 * sizeof(float));
  EXPECT_EQ(received, (4 + 1) * sizeof(float));
}

// More shapes than it keeps.
constexpr std::size_t kMany = 200;

TEST_F(PlanCacheTest, DropsWhatWasUsedLongestAgo) {
  for (std::size_t count = 0; count < kMany; ++count) {
    get(call_of(1000));  // used again and again
    get(call_of(count));
  }
  EXPECT_EQ(plans_built, static_cast<int>(kMany) + 1);
  get(call_of(kMany - 1));
  get(call_of(1000));
  EXPECT_EQ(plans_built, static_cast<int>(kMany) + 1) << "the latest are kept";
  get(call_of(0));
  EXPECT_EQ(plans_built, static_cast<int>(kMany) + 2) << "the first is not";
}

TEST_F(PlanCacheTest, NeverDropsWhatIsInUse) {
  std::vector<PlanCache::Entry*> used;
  for (std::size_t count = 0; count < kMany; ++count) {
    used.push_back(&get(call_of(count)));
    ++used.back()->in_use;
  }
  for (std::size_t count = 0; count < kMany; ++count) EXPECT_EQ(&get(call_of(count)), used[count]);
  EXPECT_EQ(plans_built, static_cast<int>(kMany));
}

// A rank of a job over loopback, with a cache of its own.
struct LoopbackRank {
  LoopbackRank(const std::shared_ptr<LoopbackHub>& hub, Rank self)
      : rank(self), transport(hub, self) {
    const std::vector<Rank> members{0, 1};
    for (const Rank peer : members) messenger.set_route(peer, transport);
    messenger.open(kCommunicator, members);
  }
  void begin(const Call& call, std::uint64_t sequence) {
    const auto* ring = algorithms::find(Collective::kAllGather, "ring");
    entry = &cache.get(call, *ring, 1, false, rank, 2);
    EXPECT_TRUE(execution.begin({.plan = &entry->plan,
                                 .input = call.in,
                                 .output = call.out,
                                 .communicator = kCommunicator,
                                 .sequence = sequence,
                                 .world_ranks = &world}));
  }
  bool advance() {
    messenger.poll();
    return execution.advance();
  }

  const Rank rank;
  const std::vector<Rank> world{0, 1};
  Events events;
  LoopbackTransport transport;
  Messenger messenger{2, events, 0};
  ScratchPool scratch{1 << 20};
  Execution execution{messenger, scratch};
  PlanCache cache;
  PlanCache::Entry* entry = nullptr;
};

TEST(PlanCacheOverLoopback, ServesAnyBuffersOfAShapeWithOnePlan) {
  const auto hub = std::make_shared<LoopbackHub>(2);
  std::deque<LoopbackRank> ranks;
  for (const Rank rank : {0, 1}) ranks.emplace_back(hub, rank);
  const PlanCache::Entry* entry = nullptr;
  for (std::uint64_t round = 0; round < 3; ++round) {
    std::vector<int> inputs[2], outputs[2];
    for (LoopbackRank& rank : ranks) {
      const auto r = static_cast<std::size_t>(rank.rank);
      inputs[r] = {static_cast<int>(10 * round + r), static_cast<int>(r)};
      outputs[r].assign(4, -1);
      rank.begin({.collective = Collective::kAllGather,
                  .in = inputs[r].data(),
                  .out = outputs[r].data(),
                  .count = 2,
                  .type = DataType::kInt32},
                 round);
    }
    bool first_done = false, second_done = false;
    for (int looks = 0; looks < 1000 && !(first_done && second_done); ++looks) {
      if (!first_done) first_done = ranks[0].advance();
      if (!second_done) second_done = ranks[1].advance();
    }
    ASSERT_TRUE(first_done && second_done);
    const std::vector<int> wanted{static_cast<int>(10 * round), 0, static_cast<int>(10 * round + 1),
                                  1};
    EXPECT_EQ(outputs[0], wanted);
    EXPECT_EQ(outputs[1], wanted);
    if (round == 0) entry = ranks[0].entry;
    EXPECT_EQ(ranks[0].entry, entry);
  }
}

}  // namespace
}  // namespace unisono::test
