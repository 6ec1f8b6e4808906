// The feature probe's part on data: writes, reads, immediates and atomics bring the right bytes.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "tests/vm/feature_probe.h"

namespace unisono::vm {
namespace {

TEST_F(DeviceFeature, Writes) {
  Link link = make_link();
  fill(link.source);
  ASSERT_EQ(post(link.source,
                 Work::of(IBV_WR_RDMA_WRITE, link.source.piece(0, kMegabyte)).to(link.target, 0)),
            0);
  EXPECT_TRUE(succeeds(next_completion(link.source.cq.get())));
  EXPECT_TRUE(same(link.source, 0, link.target, 0, kMegabyte));
}

TEST_F(DeviceFeature, WritesEightMegabytesInOneMessage) {
  Link link = make_link();
  fill(link.source);
  ASSERT_GE(link.source.device->port.max_msg_sz, 8 * kMegabyte);
  ASSERT_EQ(
      post(link.source,
           Work::of(IBV_WR_RDMA_WRITE, link.source.piece(0, 8 * kMegabyte)).to(link.target, 0)),
      0);
  EXPECT_TRUE(succeeds(next_completion(link.source.cq.get())));
  EXPECT_TRUE(same(link.source, 0, link.target, 0, 8 * kMegabyte));
}

TEST_F(DeviceFeature, Reads) {
  Link link = make_link();
  fill(link.source);
  ASSERT_EQ(post(link.target,
                 Work::of(IBV_WR_RDMA_READ, link.target.piece(0, kMegabyte)).to(link.source, 4096)),
            0);
  EXPECT_TRUE(succeeds(next_completion(link.target.cq.get())));
  EXPECT_TRUE(same(link.source, 4096, link.target, 0, kMegabyte));
}

TEST_F(DeviceFeature, WritesWithImmediateAtAnyOffset) {
  constexpr std::uint32_t kBytes = 100'001;
  Link link = make_link();
  fill(link.source);
  ASSERT_EQ(post_receive(link.target, 42), 0);
  ASSERT_EQ(post(link.source, Work::of(IBV_WR_RDMA_WRITE_WITH_IMM, link.source.piece(5, kBytes))
                                  .to(link.target, 3)
                                  .immediate(0x12345678)),
            0);
  const ibv_wc received = next_completion(link.target.cq.get());
  ASSERT_TRUE(succeeds(received));
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.imm_data, 0x12345678u);
  EXPECT_EQ(received.wr_id, 42u);
  EXPECT_EQ(received.byte_len, kBytes);
  EXPECT_TRUE(same(link.source, 5, link.target, 3, kBytes));
}

TEST_F(DeviceFeature, WritesAnImmediateAlone) {
  Link link = make_link();
  ASSERT_EQ(post_receive(link.target, 43), 0);
  ASSERT_EQ(post(link.source, Work::of(IBV_WR_RDMA_WRITE_WITH_IMM, {}).immediate(99)), 0);
  const ibv_wc received = next_completion(link.target.cq.get());
  ASSERT_TRUE(succeeds(received));
  EXPECT_EQ(received.imm_data, 99u);
  EXPECT_EQ(received.byte_len, 0u);
}

TEST_F(DeviceFeature, LeavesAnInlineBufferFreeOncePosted) {
  Link link = make_link({.inline_bytes = 64});
  std::array<std::uint8_t, 64> bytes;
  bytes.fill(0x5a);
  const ibv_sge unregistered{
      .addr = reinterpret_cast<std::uint64_t>(bytes.data()), .length = 64, .lkey = 0};
  ASSERT_EQ(post_receive(link.target, 1, 4096, 4096), 0);
  ASSERT_EQ(post(link.source,
                 Work::of(IBV_WR_SEND, unregistered).with(IBV_SEND_SIGNALED | IBV_SEND_INLINE)),
            0);
  ASSERT_EQ(post(link.source, Work::of(IBV_WR_RDMA_WRITE, unregistered)
                                  .to(link.target, 0)
                                  .with(IBV_SEND_SIGNALED | IBV_SEND_INLINE)),
            0);
  bytes.fill(0);
  EXPECT_TRUE(succeeds(next_completion(link.target.cq.get())));
  EXPECT_TRUE(succeeds(next_completion(link.source.cq.get())));
  EXPECT_TRUE(succeeds(next_completion(link.source.cq.get())));
  bytes.fill(0x5a);
  EXPECT_EQ(std::memcmp(link.target.at(4096), bytes.data(), bytes.size()), 0);
  EXPECT_EQ(std::memcmp(link.target.at(0), bytes.data(), bytes.size()), 0);
}

TEST_F(DeviceFeature, GathersOnePieceAfterAnother) {
  Link link = make_link();
  fill(link.source);
  std::array<ibv_sge, 3> pieces{link.source.piece(0, 1000), link.source.piece(5000, 2000),
                                link.source.piece(9999, 3)};
  Work work = Work::of(IBV_WR_RDMA_WRITE, {}).to(link.target, 0);
  work.request.sg_list = pieces.data();
  work.request.num_sge = 3;
  ASSERT_EQ(post(link.source, work), 0);
  EXPECT_TRUE(succeeds(next_completion(link.source.cq.get())));
  EXPECT_TRUE(same(link.source, 0, link.target, 0, 1000));
  EXPECT_TRUE(same(link.source, 5000, link.target, 1000, 2000));
  EXPECT_TRUE(same(link.source, 9999, link.target, 3000, 3));
}

TEST_F(DeviceFeature, DoesAtomics) {
  Link link = make_link();
  auto* remote = reinterpret_cast<std::uint64_t*>(link.target.at(0));
  const auto* before = reinterpret_cast<const std::uint64_t*>(link.source.at(0));
  *remote = 5;
  Work add = Work::of(IBV_WR_ATOMIC_FETCH_AND_ADD, link.source.piece(0, 8));
  add.request.wr.atomic = {.remote_addr = reinterpret_cast<std::uint64_t>(remote),
                           .compare_add = 3,
                           .swap = 0,
                           .rkey = link.target.region->rkey};
  ASSERT_EQ(post(link.source, add), 0);
  ASSERT_TRUE(succeeds(next_completion(link.source.cq.get())));
  EXPECT_EQ(*remote, 8u);
  EXPECT_EQ(*before, 5u);
  Work swap = add;
  swap.request.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  swap.request.sg_list = nullptr;
  swap.request.wr.atomic.compare_add = 8;
  swap.request.wr.atomic.swap = 77;
  ASSERT_EQ(post(link.source, swap), 0);
  ASSERT_TRUE(succeeds(next_completion(link.source.cq.get())));
  EXPECT_EQ(*remote, 77u);
  EXPECT_EQ(*before, 8u);
}

TEST_F(DeviceFeature, HasWrittenBeforeALaterImmediateArrives) {
  constexpr std::uint32_t kBytes = 65536;
  Link link = make_link();
  for (int round = 1; round <= 50; ++round) {
    std::memset(link.source.at(0), round, kBytes);
    ASSERT_EQ(post_receive(link.target, 0), 0);
    ASSERT_EQ(
        post(link.source,
             Work::of(IBV_WR_RDMA_WRITE, link.source.piece(0, kBytes)).to(link.target, 0).with(0)),
        0);
    ASSERT_EQ(post(link.source, Work::of(IBV_WR_RDMA_WRITE_WITH_IMM, {}).immediate(7)), 0);
    ASSERT_TRUE(succeeds(next_completion(link.target.cq.get())));
    ASSERT_TRUE(same(link.source, 0, link.target, 0, kBytes)) << "round " << round;
    ASSERT_TRUE(succeeds(next_completion(link.source.cq.get())));
  }
}

TEST(DevicesOfOneMachine, ReachEachOther) {
  const std::vector<std::string> names = device_names();
  for (const std::string& from : names) {
    for (const std::string& to : names) {
      SCOPED_TRACE(from + " to " + to);
      Device source = open_device(from);
      Device target = open_device(to);
      Link link(source, target);
      fill(link.source);
      ASSERT_EQ(
          post(link.source,
               Work::of(IBV_WR_RDMA_WRITE, link.source.piece(0, kMegabyte)).to(link.target, 0)),
          0);
      EXPECT_TRUE(succeeds(next_completion(link.source.cq.get())));
      EXPECT_TRUE(same(link.source, 0, link.target, 0, kMegabyte));
    }
  }
}

}  // namespace
}  // namespace unisono::vm
