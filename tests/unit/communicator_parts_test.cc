// The parts that a communicator's state is composed of, each by itself.
#include <gtest/gtest.h>

#include <vector>

#include "backend/call_selection.h"
#include "backend/last_call.h"
#include "backend/members.h"
#include "backend/traffic_counter.h"
#include "comm/failure.h"
#include "comm/request_pool.h"

namespace unisono {
namespace {

const Status kFirst(ErrorCode::kRankFailed, "first", 1);
const Status kSecond(ErrorCode::kTimeout, "second", 2);

TEST(Failure, IsTheFirstCause) {
  Failure failure;
  EXPECT_FALSE(failure.has_cause());
  EXPECT_TRUE(failure.cause().ok());
  EXPECT_TRUE(failure.set(kFirst));
  EXPECT_FALSE(failure.set(kSecond));
  EXPECT_TRUE(failure.has_cause());
  EXPECT_EQ(failure.cause().message(), "first");
}

TEST(Failure, OfADisputeIsTheFirstOneOnceItsTimeIsOver) {
  Failure failure;
  const TimePoint now = Clock::now();
  const TimePoint until = now + std::chrono::seconds(1);
  EXPECT_FALSE(failure.is_overdue(kNever));
  EXPECT_TRUE(failure.dispute(kFirst, until));
  EXPECT_FALSE(failure.dispute(kSecond, now)) << "the first one stands";
  EXPECT_EQ(failure.disputed().message(), "first");
  EXPECT_FALSE(failure.has_cause()) << "nothing is decided";
  EXPECT_FALSE(failure.is_overdue(now));
  EXPECT_TRUE(failure.is_overdue(until));
}

TEST(Failure, IsNotDisputedAfterwards) {
  Failure failure;
  failure.set(kFirst);
  EXPECT_FALSE(failure.dispute(kSecond, Clock::now()));
  EXPECT_FALSE(failure.is_disputed());
}

struct LastCallTest : ::testing::Test {
  LastCallTest() {
    last.remember(call, {.input_bytes = 16, .output_bytes = 16}, {}, 3);
    EXPECT_TRUE(last.is_again(call));
  }
  bool is_again_with(void (*change)(Call&)) {
    Call other = call;
    change(other);
    return last.is_again(other);
  }

  std::vector<float> buffers = std::vector<float>(16);
  Call call{.collective = Collective::kAllReduce,
            .in = buffers.data(),
            .out = buffers.data() + 4,
            .count = 4,
            .type = DataType::kFloat32,
            .op = ops::sum};
  LastCall last;
};

TEST_F(LastCallTest, IsNotAnotherCall) {
  EXPECT_FALSE(is_again_with([](Call& c) { c.collective = Collective::kScan; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.count = 3; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.type = DataType::kInt32; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.op = ops::max; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.root = 1; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.options.timeout = std::chrono::seconds(1); }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.options.order = Order::kCanonical; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.options.algorithm = "ring"; }));
  static const std::size_t counts[]{4};
  EXPECT_FALSE(is_again_with([](Call& c) { c.out_counts = counts; }));
}

TEST_F(LastCallTest, TakesOtherBuffersThatTheCheckWouldFindRight) {
  Call other = call;
  other.out = buffers.data() + 8;
  EXPECT_TRUE(last.is_again(other));
  EXPECT_FALSE(last.has_buffers_of(other));
  EXPECT_TRUE(last.has_buffers_of(call));
  other.out = buffers.data() + 3;  // overlaps
  EXPECT_FALSE(last.is_again(other));
  other.out = nullptr;
  EXPECT_FALSE(last.is_again(other));
  last.remember(call, {.in_place = true, .input_bytes = 16, .output_bytes = 16}, {}, 4);
  other.out = buffers.data() + 8;
  EXPECT_FALSE(last.is_again(other)) << "in place with other buffers";
}

TEST_F(LastCallTest, IsForgottenOrNeverToBeRepeated) {
  last.forget();
  EXPECT_FALSE(last.is_again(call));
  EXPECT_FALSE(last.has_buffers_of(call));
  last.remember(call, {}, {}, 0);
  EXPECT_FALSE(last.is_again(call));
}

TEST_F(LastCallTest, IsCountedOnce) {
  last.note_repeated();
  EXPECT_EQ(last.take_uncounted(), 2u);
  EXPECT_EQ(last.take_uncounted(), 0u);
}

TEST(LastReduction, IsMadeAnewForAnotherTypeOrOperator) {
  LastReduction last(2);
  Call call{.type = DataType::kFloat32, .op = ops::average};
  const auto first = last.of(call);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(*last.of(call), *first);
  call.type = DataType::kBool;
  EXPECT_EQ(last.of(call).status().code(), ErrorCode::kInvalidArgument);
  call.op = ops::max;
  EXPECT_TRUE(last.of(call).has_value());
}

TEST(Members, AreKnownByBothTheirRanks) {
  const Members members(7, {4, 2, 9}, 1);
  EXPECT_EQ(members.id(), 7u);
  EXPECT_EQ(members.self(), 1);
  EXPECT_EQ(members.size(), 3);
  EXPECT_EQ(members.world_rank(2), 9);
  EXPECT_EQ(members.find(4), 0);
  EXPECT_EQ(members.find(3), -1);
}

TEST(TrafficCounter, CountsWhatPlansMoveByCollectiveAndByPeer) {
  TrafficCounter counter(2);
  PreparedPlan plan;
  plan.messages = {{.peer = 1, .sent = true, .bytes = 8}, {.peer = 1, .sent = false, .bytes = 3}};
  counter.count_call(Collective::kScan);
  counter.count_plan(Collective::kScan, plan);
  const TrafficReport& report = counter.report();
  const Traffic moved{
      .messages_sent = 1, .bytes_sent = 8, .messages_received = 1, .bytes_received = 3};
  const auto scan = static_cast<std::size_t>(Collective::kScan);
  EXPECT_EQ(report.calls[scan], 1u);
  EXPECT_EQ(report.by_collective[scan], moved);
  ASSERT_EQ(report.by_peer.size(), 2u);
  EXPECT_EQ(report.by_peer[1], moved);
  EXPECT_EQ(report.by_peer[0], Traffic());
}

class CallSelectionTest : public ::testing::Test {
 protected:
  // "shared memory", the algorithm, or the error.
  std::string chosen(const CallOptions& options, bool shared_memory, std::size_t bytes = 8) {
    CallSelection selection(
        {.table = table_,
         .hints = hints_,
         .ranks = 4,
         .link = shared_memory ? algorithms::Link::kShm : algorithms::Link::kTcp,
         .shared_memory = shared_memory});
    const auto choice = selection.select({.collective = Collective::kAllReduce, .options = options},
                                         {.agreed_bytes = bytes});
    if (!choice) return choice.error().message();
    if (choice->algorithm == nullptr) return "shared memory";
    return std::string(choice->algorithm->name);
  }

  const algorithms::SelectionTable table_ = algorithms::SelectionTable::defaults();
  CallSelection::Hints hints_;
};

TEST_F(CallSelectionTest, TakesSharedMemoryOnlyWhereThereIsSome) {
  EXPECT_EQ(chosen({}, true), "shared memory");
  EXPECT_NE(chosen({}, false), "shared memory");
}

TEST_F(CallSelectionTest, FollowsTheCallsHintBeforeThatOfTheSettings) {
  hints_[static_cast<std::size_t>(Collective::kAllReduce)] = "ring";
  EXPECT_EQ(chosen({}, true), "ring");
  EXPECT_EQ(chosen({.algorithm = "native"}, true), "shared memory");
  EXPECT_NE(chosen({.algorithm = "native"}, false).find("native"), std::string::npos);
}

struct RequestPoolTest : ::testing::Test {
  detail::RequestPool pool{[](detail::RequestState&) {}};
  const Call call{.collective = Collective::kAllReduce, .count = 3};
};

TEST_F(RequestPoolTest, LendsARequestAgainOnceNobodyRefersToIt) {
  detail::RequestState& first = pool.prepare(call);
  EXPECT_NE(&pool.prepare(call), &first) << "a blocking call still has it";
  auto asynchronous = first.shared_from_this();
  first.refer(nullptr);
  first.held = false;
  EXPECT_NE(&pool.prepare(call), &first) << "a Request refers to it";
  asynchronous.reset();
  EXPECT_NE(&pool.prepare(call), &first) << "nobody has said that it is let go";
  first.let_go();
  first.running = true;
  EXPECT_NE(&pool.prepare(call), &first) << "the engine has it";
  first.running = false;
  EXPECT_EQ(&pool.prepare(call), &first);
}

TEST_F(RequestPoolTest, LeavesNothingOfTheCallBefore) {
  detail::RequestState* before = &pool.prepare(call);
  before->notes.timed_out = before->only_sends = before->concerns_call_alone = true;
  before->done.store(true);
  before->outcome = kFirst;
  before->on_host = before;
  before->held = false;
  detail::RequestState& after = pool.prepare({.collective = Collective::kScan});
  ASSERT_EQ(&after, before);
  EXPECT_EQ(after.call.collective, Collective::kScan);
  EXPECT_FALSE(after.notes.timed_out || after.only_sends || after.concerns_call_alone);
  EXPECT_FALSE(after.done.load() || after.is_on_device());
  EXPECT_TRUE(after.outcome.ok());
}

TEST_F(RequestPoolTest, CopiesCountsThatTheCallerMayChange) {
  std::size_t counts[]{1, 2};
  detail::RequestState& request =
      pool.prepare({.collective = Collective::kAllGatherV, .out_counts = counts});
  detail::RequestPool::copy_counts(request);
  counts[1] = 5;
  EXPECT_EQ(request.call.out_counts[1], 2u);
}

TEST_F(RequestPoolTest, KnowsWhatRunsInTheOrderOfTheCalls) {
  detail::RequestState& first = pool.prepare(call);
  detail::RequestState& second = pool.prepare(call);
  detail::RequestState& third = pool.prepare(call);
  for (auto* each : {&first, &second, &third}) pool.note_running(*each);
  pool.note_ended(second);
  EXPECT_EQ(pool.running(), (std::vector<detail::RequestState*>{&first, &third}));
}

}  // namespace
}  // namespace unisono
