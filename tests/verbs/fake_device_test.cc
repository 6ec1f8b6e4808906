// The fake device must be trustworthy before anything is tested with it: what it shows, what it
// registers, its queues and its state machine are as strict as a real device's.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/verbs/fake_pair.h"

namespace unisono::verbs::test {
namespace {

TEST(FakeDevice, ShowsPortsWithAddressesOfBothKindsAndEmptyEntries) {
  FakeFabric fabric(seeded(fake_world(2, 3)));
  Fixture fixture(fabric.api(1), 2, 64);
  EXPECT_STREQ(fixture.api->get_device_name(fixture.context->device), "fake2");
  ibv_port_attr port{};
  ASSERT_EQ(fixture.api->query_port(fixture.context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(fixture.api->query_port(fixture.context, 2, &port), EINVAL);
  ibv_gid_entry entry{};
  ASSERT_EQ(fixture.api->query_gid_ex(fixture.context, 1, 3, &entry), 0);
  EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_EQ(std::memcmp(entry.gid.raw, ipv4_gid(10, 2, 0, 2).raw, 16), 0);
  EXPECT_EQ(fixture.api->query_gid_ex(fixture.context, 1, 4, &entry), ENODATA);
  __be16 pkey = 0;
  ASSERT_EQ(fixture.api->query_pkey(fixture.context, 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xffff);
}

TEST(FakeDevice, FreesSendQueueSlotsOnlyWhenACompletionThatCoversThemIsPolled) {
  Pair pair(fake_world(2, 1), {}, {.requests = 4});
  Request silent = pair.write(0, 8);
  silent.flags = 0;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(post(pair.a, pair.to_b, silent), 0);
  ASSERT_EQ(post(pair.a, pair.to_b, pair.write(0, 8)), 0);
  pair.fabric.wait_until_idle();
  EXPECT_EQ(post(pair.a, pair.to_b, silent), ENOMEM);
  EXPECT_EQ(pair.fabric.counters(0).overflows, 1u);
  EXPECT_EQ(pair.a.poll(1).size(), 1u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(post(pair.a, pair.to_b, silent), 0);
  EXPECT_EQ(post(pair.a, pair.to_b, silent), ENOMEM);
}

TEST(FakeDevice, WalksTheStatesOnlyInOrderAndWithEveryAttribute) {
  FakeFabric fabric(seeded(fake_world(2, 1, {.mtu = IBV_MTU_1024})));
  Fixture a(fabric.api(0), 0, 64);
  Fixture b(fabric.api(1), 0, 64);
  ibv_qp* qp = a.make_qp();
  ibv_qp* peer = b.make_qp();
  const Wiring wiring;
  EXPECT_EQ(to_receive(a, qp, b, peer, wiring), EINVAL);
  EXPECT_EQ(post(a, qp, {}), EINVAL);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  EXPECT_EQ(a.api->modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
  EXPECT_EQ(to_init(a, qp, {.pkey_index = 1}), EINVAL);
  EXPECT_EQ(to_init(a, qp, wiring), 0);
  EXPECT_EQ(to_send(a, qp, wiring), EINVAL);
  EXPECT_EQ(to_receive(a, qp, b, peer, {.mtu = IBV_MTU_2048}), EINVAL);
  EXPECT_EQ(to_receive(a, qp, b, peer, {.psn = 1 << 24}), EINVAL);
  EXPECT_EQ(to_receive(a, qp, b, peer, {.dest_rd_atomic = 17}), EINVAL);
  EXPECT_EQ(to_receive(a, qp, b, peer, wiring), 0);
  EXPECT_EQ(post(a, qp, {}), EINVAL);
  EXPECT_EQ(to_send(a, qp, {.retries = 8}), EINVAL);
  EXPECT_EQ(to_send(a, qp, wiring), 0);
  EXPECT_EQ(qp->state, IBV_QPS_RTS);
  attributes.qp_state = IBV_QPS_ERR;
  EXPECT_EQ(a.api->modify_qp(qp, &attributes, IBV_QP_STATE), 0);
  EXPECT_EQ(post(a, qp, {.id = 5}), 0);
  const auto flushed = a.poll(1);
  EXPECT_EQ(flushed.at(0).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.at(0).wr_id, 5u);
  EXPECT_FALSE(fabric.complaints().empty());
}

TEST(FakeDevice, AFullCompletionQueueDiesWithAnEvent) {
  Pair pair(fake_world(2, 1), {}, {.cq_entries = 2});
  for (int i = 0; i < 3; ++i) ASSERT_EQ(post(pair.a, pair.to_b, pair.write(0, 8)), 0);
  pair.fabric.wait_until_idle();
  EXPECT_EQ(pair.a.next_event(), IBV_EVENT_CQ_ERR);
  pair.a.poll(2);
  ASSERT_EQ(post(pair.a, pair.to_b, pair.write(0, 8)), 0);
  pair.fabric.wait_until_idle();
  ibv_wc none;
  EXPECT_EQ(pair.a.api->poll_cq(pair.a.cq, 1, &none), 0);
}

TEST(FakeDevice, TakesNoMoreReceivesThanItsQueueHolds) {
  Pair pair(fake_world(2, 1), {}, {.srq_entries = 3});
  EXPECT_TRUE(pair.b.post_receives(3));
  EXPECT_FALSE(pair.b.post_receives(1));
  EXPECT_EQ(pair.status_of(pair.announce(0, 8, 1)), IBV_WC_SUCCESS);
  EXPECT_TRUE(pair.b.post_receives(1));
}

TEST(FakeDevice, KeepsOrForgetsCompletionsOfDestroyedQueuePairsAsAsked) {
  for (const bool forget : {false, true}) {
    FakeFabricOptions options = fake_world(2, 1);
    options.forget_completions_of_destroyed = forget;
    Pair pair(options);
    ASSERT_EQ(post(pair.a, pair.to_b, pair.write(0, 8)), 0);
    pair.fabric.wait_until_idle();
    pair.a.destroy_qp(pair.to_b);
    ibv_wc found;
    EXPECT_EQ(pair.a.api->poll_cq(pair.a.cq, 1, &found), forget ? 0 : 1);
  }
}

TEST(FakeDevice, CountsWhatItDidAndWhatIsAlive) {
  FakeFabric fabric(seeded(fake_world(2, 1)));
  {
    Fixture a(fabric.api(0), 0, 4096);
    Fixture b(fabric.api(1), 0, 4096);
    ibv_qp* to_b = a.make_qp();
    connect(a, to_b, b, b.make_qp());
    for (const bool signalled : {false, true}) {
      ASSERT_EQ(post(a, to_b,
                     {.pieces = {a.piece(0, 100)},
                      .remote = b.address(0),
                      .rkey = b.mr->rkey,
                      .flags = signalled ? unsigned{IBV_SEND_SIGNALED} : 0}),
                0);
    }
    a.poll(1);
    const FakeCounters counters = fabric.counters(0);
    EXPECT_EQ(counters.posted[IBV_WR_RDMA_WRITE], 2u);
    EXPECT_EQ(counters.bytes[IBV_WR_RDMA_WRITE], 200u);
    EXPECT_EQ(counters.signalled, 1u);
    EXPECT_EQ(counters.registrations, 1u);
    EXPECT_EQ(counters.registered_bytes, 4096u);
    EXPECT_EQ(counters.live(), 6);
    EXPECT_EQ(a.api->destroy_cq(a.cq), EBUSY);
    EXPECT_EQ(a.api->destroy_srq(a.srq), EBUSY);
    EXPECT_EQ(a.api->dealloc_pd(a.pd), EBUSY);
  }
  EXPECT_EQ(fabric.counters(0).live(), 0);
  EXPECT_EQ(fabric.counters(1).live(), 0);
}

TEST(FakeDevice, RegistersOnlyMemoryThatIsThereForWhatIsAsked) {
  FakeFabric fabric(seeded(fake_world(1, 1)));
  Fixture fixture(fabric.api(0), 0, 64);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(fixture.api->reg_mr(fixture.pd, memory, page, kAllAccess), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ibv_mr* readable = fixture.api->reg_mr(fixture.pd, memory, page, IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(readable, nullptr);
  EXPECT_EQ(fixture.api->dereg_mr(readable), 0);
  // Not unmapped: another thread's memory might come to lie there.
  ASSERT_EQ(::mprotect(memory, page, PROT_NONE), 0);
  EXPECT_EQ(fixture.api->reg_mr(fixture.pd, memory, page, IBV_ACCESS_REMOTE_READ), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ::munmap(memory, page);
}

}  // namespace
}  // namespace unisono::verbs::test
