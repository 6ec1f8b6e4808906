// Two connected queue pairs in one process, with memory at either end: what the feature probe tries
// each verb on. One thread.
#pragma once

#include <chrono>
#include <cstring>
#include <memory>

#include "tests/vm/device.h"

namespace unisono::vm {

inline constexpr std::size_t kLinkBytes = 16 << 20;

/// Queue pair, its completions and its memory. Members close in reverse order.
struct End {
  Device* device = nullptr;
  std::unique_ptr<Memory> memory;
  Owned<ibv_mr> region;
  Owned<ibv_comp_channel> channel;
  Owned<ibv_cq> cq;
  Owned<ibv_qp> queue_pair;

  std::byte* at(std::size_t offset) const { return memory->data() + offset; }

  /// A piece of this end's memory, as the local side of a work request.
  ibv_sge piece(std::size_t offset, std::uint32_t bytes) const {
    return {
        .addr = reinterpret_cast<std::uint64_t>(at(offset)), .length = bytes, .lkey = region->lkey};
  }
};

struct LinkOptions {
  Retries retries{};
  std::uint32_t inline_bytes = 0;
  bool events = false;                 ///< completion channels
  ibv_srq* shared_receives = nullptr;  ///< of the target
};

class Link {
 public:
  Link(Device& source_device, Device& target_device, const LinkOptions& options = {});

  End source;
  End target;
};

/// One send-queue entry under construction: signalled, with the remote side at `offset` of
/// `target`.
struct Work {
  ibv_send_wr request{};
  ibv_sge piece{};

  static Work of(ibv_wr_opcode opcode, const ibv_sge& local);
  Work& to(const End& target, std::size_t offset);
  Work& with(unsigned flags);
  Work& immediate(std::uint32_t value);
};

/// 0 or errno.
int post(const End& end, Work work);
int post_receive(const End& end, std::uint64_t id, std::size_t offset = 0, std::uint32_t bytes = 0);
int post_receive(ibv_srq* srq, const End& end, std::uint64_t id, std::size_t offset,
                 std::uint32_t bytes);

/// The next completion; its status is IBV_WC_GENERAL_ERR and its wr_id ~0 if none came in time.
ibv_wc next_completion(ibv_cq* cq, std::chrono::milliseconds limit = std::chrono::seconds(30));

}  // namespace unisono::vm
