// The fake's verbs objects: the library's own structures with what the device behind them knows.
// Owned by their user through create and destroy calls; touched under the core's lock only.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "tests/verbs/fake_fabric.h"

namespace unisono::verbs::fake {

using Time = std::chrono::steady_clock::time_point;

struct Context;

struct Device : ibv_device {
  int host = 0;
  int index = 0;
  FakeDeviceOptions options;
  std::uint16_t lid = 0;  ///< 0 on Ethernet
  bool up = true;
  bool broken = false;
  std::optional<ibv_wc_status> next_status;
  bool lose_completion = false;
  std::optional<FakeTampering> tampering;  ///< still to come
  std::vector<std::byte> first_message;    ///< of the two that kRepeat takes
  std::vector<Context*> contexts;
};

struct Context : ibv_context {
  Device* owner = nullptr;
  int users = 0;  ///< objects made with it
  std::deque<ibv_async_event> events;
};

struct Pd : ibv_pd {
  int users = 0;
};

struct Region : ibv_mr {
  Device* owner = nullptr;
  std::byte* memory = nullptr;  ///< what the device touches
  std::uint64_t first = 0;      ///< the address that keys are used with
  int access = 0;
  bool mapped = false;            ///< of a dmabuf: `memory` is a mapping to be undone
  std::size_t mapped_before = 0;  // bytes of its first page
};

struct Entry {
  ibv_wc completion{};
  bool of_request = false;     ///< else of a receive
  std::uint64_t sequence = 0;  ///< of the request
};

struct Cq : ibv_cq {
  std::vector<Entry> ring;
  std::size_t first = 0;
  std::size_t count = 0;
  bool dead = false;
  int users = 0;
};

struct Receive {
  std::uint64_t id = 0;
};

struct Srq : ibv_srq {
  std::deque<Receive> receives;
  std::size_t entries_max = 0;
  int sges_max = 0;
  int users = 0;
};

struct Piece {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// One work request on its way.
struct Work {
  std::uint64_t id = 0;
  std::uint64_t sequence = 0;
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  bool signalled = false;
  bool fenced = false;
  bool is_inline = false;
  __be32 immediate = 0;
  std::vector<ibv_sge> sges;
  std::vector<std::byte> payload;  ///< of an inline one
  std::uint64_t bytes = 0;
  std::uint64_t remote = 0;
  std::uint32_t rkey = 0;
  std::vector<Piece> pieces;                      ///< still to be moved, last one first
  std::optional<std::uint64_t> flipped;           ///< a byte that lands with another bit
  std::vector<std::byte>* kept = nullptr;         ///< where what is moved is copied to as well
  const std::vector<std::byte>* other = nullptr;  ///< what is moved instead
  bool done = false;
  bool refused = false;  ///< by the peer, whose queue pair then breaks as well
  ibv_wc_status status = IBV_WC_SUCCESS;

  bool is_read() const { return opcode == IBV_WR_RDMA_READ; }
  bool has_immediate() const { return opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }
};

struct Qp : ibv_qp {
  Device* owner = nullptr;
  ibv_qp_state now = IBV_QPS_RESET;  ///< ibv_qp::state is what its user last asked for
  ibv_qp_cap cap{};
  bool signal_all = false;
  ibv_qp_attr attributes{};
  Device* peer_device = nullptr;  ///< whom the address vector leads to

  std::deque<std::unique_ptr<Work>> works;  ///< not retired, in order
  std::size_t begun = 0;                    ///< how many of them, from the front
  bool failing = false;                     ///< one of them failed: begin no more
  std::uint64_t posted = 0;
  std::uint64_t freed = 0;  ///< sequence below which send queue slots are free again

  bool active = false;  ///< on the core's list
  bool complained = false;
  int tries = 0;
  int rnr_tries = 0;
  bool awaits_receive = false;
  Time not_before{};
  std::uint64_t not_before_turn = 0;
  char touched = 0;  ///< order: what the device did for it happens before the end of destroy_qp

  Cq& requests() { return *static_cast<Cq*>(send_cq); }
  Cq& receives() { return *static_cast<Cq*>(recv_cq); }
};

}  // namespace unisono::verbs::fake
