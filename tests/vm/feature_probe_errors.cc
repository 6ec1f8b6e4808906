// The feature probe's part on errors: each is reported with the status that verbs prescribe, and a
// queue pair can be used again.
#include <gtest/gtest.h>

#include "tests/vm/feature_probe.h"

namespace unisono::vm {
namespace {

TEST_F(DeviceFeature, FailsAtOnceWithoutReceiveAndRetry) {
  Link link = make_link({.retries = {.not_ready = 0}});
  ASSERT_EQ(post(link.source, Work::of(IBV_WR_SEND, link.source.piece(0, 64))), 0);
  EXPECT_TRUE(ends_as(next_completion(link.source.cq.get()), IBV_WC_RNR_RETRY_EXC_ERR));
}

TEST_F(DeviceFeature, WaitsForALateReceiveWhereRetriesAllow) {
  Link link = make_link({.retries = {.not_ready = 7}});
  ASSERT_EQ(post(link.source, Work::of(IBV_WR_SEND, link.source.piece(0, 64))), 0);
  const ibv_wc early = next_completion(link.source.cq.get(), milliseconds(200));
  EXPECT_EQ(early.wr_id, ~std::uint64_t{0}) << "completed without a receive";
  ASSERT_EQ(post_receive(link.target, 1, 0, 64), 0);
  EXPECT_TRUE(succeeds(next_completion(link.source.cq.get())));
}

TEST_F(DeviceFeature, RefusesAWrongKeyAndStopsTheQueuePair) {
  Link link = make_link();
  Work wrong = Work::of(IBV_WR_RDMA_WRITE, link.source.piece(0, 64)).to(link.target, 0);
  const Work right = wrong;
  wrong.request.wr.rdma.rkey ^= 0x55;
  ASSERT_EQ(post(link.source, wrong), 0);
  ASSERT_EQ(post(link.source, right), 0);
  EXPECT_TRUE(ends_as(next_completion(link.source.cq.get()), IBV_WC_REM_ACCESS_ERR));
  EXPECT_TRUE(ends_as(next_completion(link.source.cq.get()), IBV_WC_WR_FLUSH_ERR));
  ibv_qp_attr attributes;
  ibv_qp_init_attr made;
  ASSERT_EQ(ibv_query_qp(link.source.queue_pair.get(), &attributes, IBV_QP_STATE, &made), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
}

TEST_F(DeviceFeature, RefusesAWritePastTheRegion) {
  Link link = make_link();
  ASSERT_EQ(
      post(link.source,
           Work::of(IBV_WR_RDMA_WRITE, link.source.piece(0, 64)).to(link.target, kLinkBytes - 32)),
      0);
  EXPECT_TRUE(ends_as(next_completion(link.source.cq.get()), IBV_WC_REM_ACCESS_ERR));
}

TEST_F(DeviceFeature, ReportsAPeerThatIsGone) {
  Link link = make_link({.retries = {.timeout = 12, .count = 3}});
  link.target.queue_pair.reset();
  ASSERT_EQ(
      post(link.source, Work::of(IBV_WR_RDMA_WRITE, link.source.piece(0, 64)).to(link.target, 0)),
      0);
  EXPECT_TRUE(ends_as(next_completion(link.source.cq.get()), IBV_WC_RETRY_EXC_ERR));
}

TEST_F(DeviceFeature, FlushesWhatIsPostedInTheErrorState) {
  Link link = make_link();
  ASSERT_EQ(post_receive(link.source, 1, 0, 64), 0);
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(link.source.queue_pair.get(), &error, IBV_QP_STATE), 0);
  EXPECT_TRUE(ends_as(next_completion(link.source.cq.get()), IBV_WC_WR_FLUSH_ERR));
  ASSERT_EQ(
      post(link.source, Work::of(IBV_WR_RDMA_WRITE, link.source.piece(0, 64)).to(link.target, 0)),
      0);
  EXPECT_TRUE(ends_as(next_completion(link.source.cq.get()), IBV_WC_WR_FLUSH_ERR));
}

TEST_F(DeviceFeature, ConnectsAQueuePairAgainAfterAReset) {
  Link link = make_link();
  for (End* end : {&link.source, &link.target}) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(end->queue_pair.get(), &attributes, IBV_QP_STATE), 0);
    attributes.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(ibv_modify_qp(end->queue_pair.get(), &attributes, IBV_QP_STATE), 0);
  }
  ASSERT_EQ(connect(first_, link.source.queue_pair.get(),
                    address_of(second_, link.target.queue_pair.get())),
            0);
  ASSERT_EQ(connect(second_, link.target.queue_pair.get(),
                    address_of(first_, link.source.queue_pair.get())),
            0);
  ASSERT_EQ(
      post(link.source, Work::of(IBV_WR_RDMA_WRITE, link.source.piece(0, 64)).to(link.target, 0)),
      0);
  EXPECT_TRUE(succeeds(next_completion(link.source.cq.get())));
}

}  // namespace
}  // namespace unisono::vm
