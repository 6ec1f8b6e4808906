// Plain verbs calls, checked.
#include "tests/verbs/fake_fixture.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace unisono::verbs::test {
namespace {

constexpr std::chrono::seconds kPatience{20};
/// The IPv4 address as RoCE v2 in the fake's table; InfiniBand has one GID.
constexpr std::uint32_t kIpv4Index = 3;

ibv_gid_entry chosen_gid(Fixture& fixture) {
  ibv_gid_entry entry{};
  if (fixture.api->query_gid_ex(fixture.context, 1, kIpv4Index, &entry) != 0) {
    EXPECT_EQ(fixture.api->query_gid_ex(fixture.context, 1, 0, &entry), 0);
  }
  return entry;
}

}  // namespace

Fixture::Fixture(std::shared_ptr<VerbsApi> verbs, int device, std::size_t memory_bytes,
                 RigSizes wanted)
    : api(std::move(verbs)), sizes(wanted), memory(memory_bytes) {
  int count = 0;
  ibv_device** list = api->get_device_list(&count);
  EXPECT_LT(device, count);
  context = api->open_device(list[device]);
  api->free_device_list(list);
  fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
  pd = api->alloc_pd(context);
  cq = api->create_cq(context, sizes.cq_entries);
  ibv_srq_init_attr srq_attributes{};
  srq_attributes.attr.max_wr = sizes.srq_entries;
  srq_attributes.attr.max_sge = 1;
  srq = api->create_srq(pd, &srq_attributes);
  mr = api->reg_mr(pd, memory.data(), memory.size(), kAllAccess);
  EXPECT_TRUE(pd && cq && srq && mr);
}

Fixture::~Fixture() {
  while (!qps.empty()) destroy_qp(qps.back());
  EXPECT_EQ(api->destroy_srq(srq), 0);
  EXPECT_EQ(api->destroy_cq(cq), 0);
  if (mr != nullptr) {
    EXPECT_EQ(api->dereg_mr(mr), 0);
  }
  EXPECT_EQ(api->dealloc_pd(pd), 0);
  EXPECT_EQ(api->close_device(context), 0);
}

ibv_qp* Fixture::make_qp() {
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.srq = srq;
  attributes.cap.max_send_wr = sizes.requests;
  attributes.cap.max_send_sge = 4;
  attributes.cap.max_inline_data = sizes.inline_bytes;
  qps.push_back(api->create_qp(pd, &attributes));
  EXPECT_NE(qps.back(), nullptr);
  return qps.back();
}

void Fixture::destroy_qp(ibv_qp* qp) {
  EXPECT_EQ(api->destroy_qp(qp), 0);
  std::erase(qps, qp);
}

bool Fixture::post_receives(int count) {
  for (int i = 0; i < count; ++i) {
    ibv_recv_wr request{};
    ibv_recv_wr* bad = nullptr;
    if (api->post_srq_recv(srq, &request, &bad) != 0) return false;
  }
  return true;
}

std::vector<ibv_wc> Fixture::poll(std::size_t count) {
  std::vector<ibv_wc> found(count);
  std::size_t have = 0;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (have < count && std::chrono::steady_clock::now() < deadline) {
    const int got = api->poll_cq(cq, static_cast<int>(count - have), found.data() + have);
    if (got < 0) break;
    have += static_cast<std::size_t>(got);
    if (got == 0) std::this_thread::yield();
  }
  EXPECT_EQ(have, count) << "completions that came";
  found.resize(have);
  return found;
}

ibv_sge Fixture::piece(std::size_t offset, std::size_t bytes) const {
  return {address(offset), static_cast<std::uint32_t>(bytes), mr->lkey};
}

int Fixture::next_event() {
  ibv_async_event event{};
  if (api->get_async_event(context, &event) != 0) return -1;
  api->ack_async_event(&event);
  return event.event_type;
}

int to_init(Fixture& fixture, ibv_qp* qp, const Wiring& wiring) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = wiring.pkey_index;
  attributes.port_num = 1;
  attributes.qp_access_flags = wiring.access;
  return fixture.api->modify_qp(
      qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int to_receive(Fixture& fixture, ibv_qp* qp, Fixture& peer, ibv_qp* peer_qp, const Wiring& wiring) {
  ibv_port_attr port{};
  EXPECT_EQ(peer.api->query_port(peer.context, 1, &port), 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = wiring.mtu;
  attributes.dest_qp_num = peer_qp->qp_num;
  attributes.rq_psn = wiring.psn;
  attributes.max_dest_rd_atomic = wiring.dest_rd_atomic;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.dlid = port.lid;
  attributes.ah_attr.grh.hop_limit = 64;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(chosen_gid(fixture).gid_index);
  attributes.ah_attr.grh.dgid = chosen_gid(peer).gid;
  return fixture.api->modify_qp(qp, &attributes,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                    IBV_QP_MIN_RNR_TIMER);
}

int to_send(Fixture& fixture, ibv_qp* qp, const Wiring& wiring) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = wiring.retries;
  attributes.rnr_retry = wiring.rnr_retry;
  attributes.sq_psn = wiring.psn;
  attributes.max_rd_atomic = wiring.rd_atomic;
  return fixture.api->modify_qp(qp, &attributes,
                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void connect(Fixture& a, ibv_qp* qp_a, Fixture& b, ibv_qp* qp_b, const Wiring& wiring) {
  EXPECT_EQ(to_init(a, qp_a, wiring), 0);
  EXPECT_EQ(to_init(b, qp_b, wiring), 0);
  EXPECT_EQ(to_receive(a, qp_a, b, qp_b, wiring), 0);
  EXPECT_EQ(to_receive(b, qp_b, a, qp_a, wiring), 0);
  EXPECT_EQ(to_send(a, qp_a, wiring), 0);
  EXPECT_EQ(to_send(b, qp_b, wiring), 0);
}

int post(Fixture& fixture, ibv_qp* qp, Request request) {
  ibv_send_wr work{};
  work.wr_id = request.id;
  work.opcode = request.opcode;
  work.send_flags = request.flags;
  work.sg_list = request.pieces.data();
  work.num_sge = static_cast<int>(request.pieces.size());
  work.imm_data = request.immediate;
  work.wr.rdma.remote_addr = request.remote;
  work.wr.rdma.rkey = request.rkey;
  ibv_send_wr* bad = nullptr;
  return fixture.api->post_send(qp, &work, &bad);
}

}  // namespace unisono::verbs::test
