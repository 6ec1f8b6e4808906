// What a work request may touch, checked against regions, protection domains and rights, and the
// moving itself. Runs on the core's thread, under the lock but for the copies.
#include <algorithm>
#include <cstring>

#include "tests/verbs/fake_core.h"

namespace unisono::verbs::fake {
namespace {

/// Cuts are at multiples of this, but for the last one.
constexpr std::size_t kGrain = 64;

bool contains(const Region& region, std::uint64_t address, std::uint64_t bytes) {
  return address >= region.first && bytes <= region.length &&
         address - region.first <= region.length - bytes;
}

bool sees(const Qp& qp, const Qp& peer, std::string* why) {
  const ibv_qp_attr& mine = qp.attributes;
  const ibv_qp_attr& theirs = peer.attributes;
  if (peer.now != IBV_QPS_RTR && peer.now != IBV_QPS_RTS) {
    *why = "the peer's queue pair is not ready to receive";
  } else if (theirs.dest_qp_num != qp.qp_num || peer.peer_device != qp.owner) {
    *why = "the peer's queue pair is connected to another one";
  } else if (mine.sq_psn != theirs.rq_psn) {
    *why = "sq_psn " + std::to_string(mine.sq_psn) + ", the peer expects " +
           std::to_string(theirs.rq_psn);
  } else if (mine.path_mtu != theirs.path_mtu) {
    *why = "path_mtu " + std::to_string(mine.path_mtu) + ", the peer's is " +
           std::to_string(theirs.path_mtu);
  } else {
    const auto my_key = qp.owner->options.pkeys[mine.pkey_index];
    const auto their_key = peer.owner->options.pkeys[theirs.pkey_index];
    const bool both_limited = ((my_key | their_key) & 0x8000) == 0;
    if ((my_key & 0x7fff) == (their_key & 0x7fff) && !both_limited) return true;
    *why =
        "partition key " + std::to_string(my_key) + ", the peer's is " + std::to_string(their_key);
  }
  return false;
}

}  // namespace

Qp* Core::reach(Qp& qp) {
  const Device& from = *qp.owner;
  const Device& to = *qp.peer_device;
  std::string why;
  const auto found = by_number_.find(qp.attributes.dest_qp_num);
  const bool dark = host(from).unplugged || host(to).unplugged || !from.up || !to.up || to.broken;
  if (dark) return nullptr;
  if (found == by_number_.end() || found->second->owner != qp.peer_device) {
    why = "the port has no queue pair " + std::to_string(qp.attributes.dest_qp_num);
  } else if (sees(qp, *found->second, &why)) {
    return found->second;
  }
  if (!qp.complained) refuse(0, from, "queue pair " + std::to_string(qp.qp_num) + ": " + why);
  qp.complained = true;
  return nullptr;
}

Region* Core::find_local(const Qp& qp, const ibv_sge& sge, bool written) {
  const auto found = by_lkey_.find(sge.lkey);
  if (found == by_lkey_.end()) return nullptr;
  Region* region = found->second;
  const bool may = !written || (region->access & IBV_ACCESS_LOCAL_WRITE) != 0;
  return may && region->pd == qp.pd && contains(*region, sge.addr, sge.length) ? region : nullptr;
}

Region* Core::find_remote(const Work& work, const Qp& peer) {
  const auto found = by_rkey_.find(work.rkey);
  if (found == by_rkey_.end()) return nullptr;
  Region* region = found->second;
  const int right = work.is_read() ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  const bool may = (region->access & right) != 0 && region->pd == peer.pd;
  return may && contains(*region, work.remote, work.bytes) ? region : nullptr;
}

ibv_wc_status Core::check_local(const Qp& qp, const Work& work) {
  if (work.bytes > qp.owner->options.message_bytes_max) return IBV_WC_LOC_LEN_ERR;
  if (work.is_read() && qp.attributes.max_rd_atomic == 0) return IBV_WC_LOC_QP_OP_ERR;
  if (work.is_inline) return IBV_WC_SUCCESS;
  for (const ibv_sge& sge : work.sges) {
    if (sge.length > 0 && find_local(qp, sge, work.is_read()) == nullptr)
      return IBV_WC_LOC_PROT_ERR;
  }
  return IBV_WC_SUCCESS;
}

ibv_wc_status Core::check_remote(const Qp& qp, const Work& work, const Qp& peer) {
  const unsigned right = work.is_read() ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  if ((peer.attributes.qp_access_flags & right) == 0) return IBV_WC_REM_INV_REQ_ERR;
  if (work.is_read()) {
    const auto end = qp.works.begin() + static_cast<std::ptrdiff_t>(qp.begun);
    const auto reads = std::count_if(
        qp.works.begin(), end, [](const auto& other) { return other->is_read() && !other->done; });
    if (reads > peer.attributes.max_dest_rd_atomic) return IBV_WC_REM_INV_REQ_ERR;
  }
  if (work.bytes > peer.owner->options.message_bytes_max) return IBV_WC_REM_INV_REQ_ERR;
  return work.bytes == 0 || find_remote(work, peer) != nullptr ? IBV_WC_SUCCESS
                                                               : IBV_WC_REM_ACCESS_ERR;
}

void Core::cut(Work& work) {
  const auto bytes = static_cast<std::size_t>(work.bytes);
  std::size_t piece_max = std::max(options_.piece_bytes_max, kGrain);
  // Small messages mostly in one piece: as fast as that, and still never to be relied upon.
  if (bytes <= piece_max && bytes > 2 * kGrain && below(4) == 0) piece_max = bytes / 2;
  for (std::size_t offset = 0; offset < bytes;) {
    const std::size_t spread = below(piece_max / kGrain / 4 + 1) * kGrain;
    const std::size_t piece = std::max(kGrain, (piece_max - spread) / kGrain * kGrain);
    work.pieces.push_back({offset, std::min(piece, bytes - offset)});
    offset += work.pieces.back().bytes;
  }
  std::shuffle(work.pieces.begin(), work.pieces.end(), random_);
}

void Core::tamper(Device& device, Work& work) {
  if (!device.tampering || device.tampering->opcode != work.opcode) return;
  const FakeTampering how = *device.tampering;
  if (work.bytes <= how.at) return;
  if (how.how == FakeTampering::How::kRepeat) {
    std::vector<std::byte>& first = device.first_message;
    if (first.empty()) {
      first.resize(static_cast<std::size_t>(work.bytes));
      work.kept = &first;
      return;
    }
    if (first.size() != work.bytes) return;
    work.other = &first;
  } else if (how.how == FakeTampering::How::kFlip) {
    work.flipped = how.at;
  } else {
    const auto left = static_cast<std::size_t>(how.at);
    std::erase_if(work.pieces, [left](const Piece& piece) { return piece.offset >= left; });
    for (Piece& piece : work.pieces) piece.bytes = std::min(piece.bytes, left - piece.offset);
  }
  device.tampering.reset();
}

/// False: memory has gone since the request began.
bool Core::lay_out(const Qp& qp, Work& work, Piece piece, Region* remote) {
  stretches_.clear();
  std::byte* far = remote->memory + (work.remote - remote->first) + piece.offset;
  if (work.is_inline) {
    stretches_.push_back({far, work.payload.data() + piece.offset, piece.bytes, nullptr});
    return true;
  }
  std::size_t before = 0;
  for (const ibv_sge& sge : work.sges) {
    const std::size_t begin = std::max(before, piece.offset);
    const std::size_t end = std::min(before + sge.length, piece.offset + piece.bytes);
    if (begin < end) {
      Region* local = find_local(qp, sge, work.is_read());
      if (local == nullptr) return false;
      std::byte* near = local->memory + (sge.addr - local->first) + (begin - before);
      std::byte* there = far + (begin - piece.offset);
      if (work.is_read()) {
        stretches_.push_back({near, there, end - begin, local});
      } else {
        stretches_.push_back({there, near, end - begin, local});
      }
    }
    before += sge.length;
  }
  return true;
}

void Core::move(Qp& qp, Qp& peer, const Work& work, Region* remote,
                std::unique_lock<std::mutex>& lock) {
  moving_ = true;
  std::size_t offset = work.pieces.back().offset;
  lock.unlock();
  {
    const Shown shown(options_.exact_order);
    for (const Stretch& stretch : stretches_) {
      const std::byte* source = work.other ? work.other->data() + offset : stretch.source;
      std::memcpy(stretch.target, source, stretch.bytes);
      if (work.kept) std::memcpy(work.kept->data() + offset, source, stretch.bytes);
      if (work.flipped && *work.flipped - offset < stretch.bytes) {
        stretch.target[*work.flipped - offset] ^= std::byte{1};
      }
      offset += stretch.bytes;
      if (stretch.local != nullptr) order_release(stretch.local);
    }
    order_release(remote);
    order_release(&moved_);
    order_release(&qp.touched);
    order_release(&peer.touched);
  }
  lock.lock();
  moving_ = false;
  changed();
}

}  // namespace unisono::verbs::fake
