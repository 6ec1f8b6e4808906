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

TEST(TrafficCounter, CountsCallsByCollective) {
  TrafficCounter counter(2);
  counter.count_call(Collective::kBarrier);
  counter.count_call(Collective::kBarrier, 3);
  counter.count_call(Collective::kSend);
  const TrafficReport& report = counter.report();
  EXPECT_EQ(report.calls[static_cast<std::size_t>(Collective::kBarrier)], 4u);
  EXPECT_EQ(report.calls[static_cast<std::size_t>(Collective::kSend)], 1u);
  EXPECT_EQ(report.calls[static_cast<std::size_t>(Collective::kScan)], 0u);
}

TEST(TrafficCounter, CountsMessagesByCollectiveAndByPeer) {
  TrafficCounter counter(3);
  counter.count_sent(Collective::kSend, 1, 5);
  counter.count_sent(Collective::kSend, 2, 7);
  counter.count_received(Collective::kReceive, 2, 11);
  counter.count_received(Collective::kReceive, 2, 0);  // nothing has moved
  const TrafficReport& report = counter.report();
  const Traffic sent_to_1{.messages_sent = 1, .bytes_sent = 5};
  const Traffic of_2{
      .messages_sent = 1, .bytes_sent = 7, .messages_received = 1, .bytes_received = 11};
  const Traffic sent{.messages_sent = 2, .bytes_sent = 12};
  const Traffic received{.messages_received = 1, .bytes_received = 11};
  EXPECT_EQ(report.by_peer[0], Traffic());
  EXPECT_EQ(report.by_peer[1], sent_to_1);
  EXPECT_EQ(report.by_peer[2], of_2);
  EXPECT_EQ(report.by_collective[static_cast<std::size_t>(Collective::kSend)], sent);
  EXPECT_EQ(report.by_collective[static_cast<std::size_t>(Collective::kReceive)], received);
}

}  // namespace
}  // namespace unisono
