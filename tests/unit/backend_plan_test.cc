// The backend for plans: a call from its start to its end, as rank 0 of three sees it whose peers
// the test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "backend/plan_backend.h"
#include "backend/started_call.h"
#include "tests/engine/messenger_fixture.h"
#include "tests/support/awaited_ranks.h"

namespace unisono::test {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr std::size_t kElements = 16;
constexpr std::size_t kBytes = kElements * sizeof(float);

class PlanBackendTest : public ::testing::Test {
 protected:
  Call broadcast_of(Rank root) {
    return {.collective = Collective::kBroadcast,
            .in = buffer_.data(),
            .out = buffer_.data(),
            .count = kBytes,
            .type = DataType::kUint8,
            .root = root};
  }
  Result<Operation*> start(const Call& what, std::string_view algorithm) {
    call_.reset(what);
    call_.choice = {.algorithm = algorithms::find(what.collective, algorithm)};
    call_.record = make_record(what, Order::kAny, calls_.digest(), kRecordSelected);
    CallShape shape;
    EXPECT_TRUE(check_call(what, members_.self(), members_.size(), &shape));
    if (reduces(what.collective)) {
      call_.reduction = *compute::Reduction::make(what.type, what.op, 3, Order::kAny);
    }
    return backend_.start(call_, shape);
  }
  // The root's message of the call that was started last.
  void hear_of(Rank root, const Bytes& payload) {
    FrameHeader header = eager(call_.sequence, payload.size());
    header.record = call_.record;
    peers_.frame(root, header, payload);
  }
  const Traffic& moved_with(Rank peer) const {
    return traffic_.report().by_peer[static_cast<std::size_t>(peer)];
  }

  Fixture peers_;
  ScratchPool scratch_{kBytes / 2};
  const Members members_{kCommunicator, {0, 1, 2}, 0};
  CallHistory calls_;
  TrafficCounter traffic_{3};
  PlanBackend backend_{peers_.messenger, scratch_, members_, calls_, traffic_};
  StartedCall call_;
  Bytes buffer_ = filled(kBytes, 1);
};

TEST_F(PlanBackendTest, WaitsForItsPeersAndCountsWhatMoved) {
  Operation& operation = **start(broadcast_of(1), "linear");
  EXPECT_FALSE(operation.advance());
  EXPECT_THAT(awaited_by(operation), ElementsAre(1));
  EXPECT_EQ(calls_.next(), 1u);
  EXPECT_FALSE(call_.only_sends);

  hear_of(1, filled(kBytes, 2));
  EXPECT_TRUE(operation.advance());
  EXPECT_TRUE(operation.status()) << operation.status().message();
  EXPECT_EQ(buffer_, filled(kBytes, 2));
  EXPECT_EQ(moved_with(1), Traffic()) << "before the end";

  backend_.end(call_, true);
  EXPECT_EQ(moved_with(1), (Traffic{.messages_received = 1, .bytes_received = kBytes}));
  EXPECT_EQ(call_.plan, nullptr);
}

TEST_F(PlanBackendTest, SaysOfARootThatItOnlySends) {
  Operation& operation = **start(broadcast_of(0), "linear");
  EXPECT_TRUE(call_.only_sends);
  EXPECT_TRUE(operation.advance());
  for (const Rank peer : {1, 2}) EXPECT_THAT(peers_.to(peer).of(FrameKind::kEager), SizeIs(1));
  backend_.end(call_, true);
  EXPECT_EQ(moved_with(2), (Traffic{.messages_sent = 1, .bytes_sent = kBytes}));
}

TEST_F(PlanBackendTest, GivesTheBuffersOfAFailedCallBackAndCountsNothing) {
  Operation& failed = **start(broadcast_of(1), "linear");
  EXPECT_FALSE(failed.advance());
  failed.fail(Status(ErrorCode::kRankFailed, "gone", 2));
  EXPECT_EQ(failed.status().rank(), 2);
  hear_of(1, filled(kBytes, 3));
  EXPECT_EQ(buffer_, filled(kBytes, 1));
  backend_.end(call_, false);
  EXPECT_EQ(moved_with(1), Traffic());

  Operation& next = **start(broadcast_of(1), "linear");
  EXPECT_EQ(call_.sequence, 1u);
  hear_of(1, filled(kBytes, 4));
  EXPECT_TRUE(next.advance());
  EXPECT_EQ(buffer_, filled(kBytes, 4));
  backend_.end(call_, true);
}

TEST_F(PlanBackendTest, CountsNoPartOfAnotherCall) {
  Operation& operation = **start(broadcast_of(0), "linear");
  call_.is_counted = false;
  EXPECT_TRUE(operation.advance());
  backend_.end(call_, true);
  EXPECT_EQ(moved_with(1), Traffic());
}

TEST_F(PlanBackendTest, NumbersNoCallThatHasNotBegun) {
  std::vector<float> in(kElements), out(kElements);
  const Call all_reduce{.collective = Collective::kAllReduce,
                        .in = in.data(),
                        .out = out.data(),
                        .count = kElements,
                        .type = DataType::kFloat32,
                        .op = ops::sum};
  EXPECT_EQ(start(all_reduce, "recursive_doubling").status().code(), ErrorCode::kOutOfResources)
      << "there is scratch for half of it";
  EXPECT_EQ(calls_.next(), 0u);
  EXPECT_EQ(call_.plan, nullptr);
}

}  // namespace
}  // namespace unisono::test
