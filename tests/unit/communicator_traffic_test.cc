// What a communicator's calls have moved, by collective and by peer.
#include <gtest/gtest.h>

#include "backend/traffic_counter.h"

namespace unisono {
namespace {

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

}  // namespace
}  // namespace unisono
