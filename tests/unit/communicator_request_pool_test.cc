// The requests of a communicator: when one is used again, and with nothing of the call before.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "backend/request_pool.h"

namespace unisono {
namespace {

struct RequestPoolTest : ::testing::Test {
  detail::RequestPool pool{[](detail::RequestState&) {}};
  const Call call{.collective = Collective::kAllReduce, .count = 3};
};

TEST_F(RequestPoolTest, LendsARequestAgainOnceNobodyRefersToIt) {
  detail::RequestState& first = pool.prepare(call);
  EXPECT_EQ(&pool.prepare(call), &first) << "it has not begun";
  pool.note_running(first);
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
  before->outcome = Status(ErrorCode::kRankFailed, "first", 1);
  before->on_host = before;
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
  std::vector<detail::RequestState*> made;
  for (int i = 0; i < 3; ++i) {
    made.push_back(&pool.prepare(call));
    pool.note_running(*made.back());
  }
  pool.note_ended(*made[1]);
  std::vector<detail::RequestState*> running;
  for (detail::RequestState& request : pool.running()) running.push_back(&request);
  EXPECT_EQ(running, (std::vector<detail::RequestState*>{made[0], made[2]}));
  pool.note_ended(*made[1]);  // once more changes nothing
  EXPECT_EQ(&pool.running().front(), made[0]);
}

// Those that stay do not lie in the way of the others, which use the same ones again.
TEST_F(RequestPoolTest, MakesFewMoreThanAreUnderWayAtOnce) {
  constexpr std::size_t kStaying = 1000;
  std::set<detail::RequestState*> made;
  const auto begin = [&]() -> detail::RequestState& {
    detail::RequestState& request = pool.prepare(call);
    pool.note_running(request);
    made.insert(&request);
    return request;
  };
  for (std::size_t i = 0; i < kStaying; ++i) begin();
  for (std::size_t i = 0; i < 20 * kStaying; ++i) {
    detail::RequestState& request = begin();
    pool.note_ended(request);
    request.held = false;
  }
  EXPECT_LE(made.size(), 2 * kStaying + 10);
}

}  // namespace
}  // namespace unisono
