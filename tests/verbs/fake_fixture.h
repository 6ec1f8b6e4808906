// One port with everything that a rank makes on it, and queue pairs between two of them: what tests
// that speak verbs themselves begin with. Owned and used by one thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/verbs/fake_fabric.h"

namespace unisono::verbs::test {

struct RigSizes {
  int cq_entries = 256;
  std::uint32_t srq_entries = 64;
  std::uint32_t requests = 64;
  std::uint32_t inline_bytes = 64;
};

inline constexpr int kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/// A device opened, with protection domain, queues and memory. Undoes all of it.
class Fixture {
 public:
  Fixture(std::shared_ptr<VerbsApi> verbs, int device, std::size_t memory_bytes,
          RigSizes sizes = {});
  ~Fixture();
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  ibv_qp* make_qp();
  void destroy_qp(ibv_qp* qp);
  /// `count` more receives; false once they are refused.
  bool post_receives(int count);
  /// Until `count` completions are there, or the test has waited for too long: then fewer.
  std::vector<ibv_wc> poll(std::size_t count);
  ibv_sge piece(std::size_t offset, std::size_t bytes) const;
  std::uint64_t address(std::size_t offset) const {
    return reinterpret_cast<std::uintptr_t>(memory.data() + offset);
  }
  /// The next event, acknowledged; -1 where there is none.
  int next_event();

  std::shared_ptr<VerbsApi> api;
  const RigSizes sizes;
  std::vector<std::byte> memory;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<ibv_qp*> qps;
};

/// What both ends have to agree on, and how patient they are.
struct Wiring {
  std::uint32_t psn = 0x123;
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint8_t rd_atomic = 4;
  std::uint8_t dest_rd_atomic = 4;
  std::uint8_t retries = 3;
  std::uint8_t rnr_retry = 6;
  unsigned access = kAllAccess;
  std::uint16_t pkey_index = 0;
};

int to_init(Fixture& fixture, ibv_qp* qp, const Wiring& wiring);
int to_receive(Fixture& fixture, ibv_qp* qp, Fixture& peer, ibv_qp* peer_qp, const Wiring& wiring);
int to_send(Fixture& fixture, ibv_qp* qp, const Wiring& wiring);
/// All three on both sides.
void connect(Fixture& a, ibv_qp* qp_a, Fixture& b, ibv_qp* qp_b, const Wiring& wiring = {});

/// A work request, signalled.
struct Request {
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  std::vector<ibv_sge> pieces;
  std::uint64_t remote = 0;
  std::uint32_t rkey = 0;
  std::uint64_t id = 0;
  std::uint32_t immediate = 0;
  unsigned flags = IBV_SEND_SIGNALED;
};
int post(Fixture& fixture, ibv_qp* qp, Request request);

}  // namespace unisono::verbs::test
