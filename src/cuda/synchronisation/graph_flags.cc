#include "cuda/synchronisation/graph_flags.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "cuda/driver/memop_batch.h"

namespace unisono::device {
namespace {

// Words of 256 calls of 16 ranks, or 2048 of two.
constexpr std::size_t kChunkBytes = 64 << 10;

constexpr std::uint32_t kAway = 0;
constexpr std::uint32_t kHere = 1;

// What a rank's stream says of itself in its own word of the first exchange: for the host.
enum Stage : std::uint32_t { kResting, kWaitsForReady, kMoves, kWaitsForDone };

}  // namespace

/// As one number of 64 bits: at least 1 when the peer is here, or when the owner waits no more.
struct GraphFlags::Word {
  std::uint32_t value;
  std::uint32_t poison;
};
static_assert(std::endian::native == std::endian::little);

GraphFlags::GraphFlags(Device& device, int ranks, Rank rank)
    : device_(device),
      ranks_(ranks),
      rank_(rank),
      calls_per_chunk_(kChunkBytes / (2 * sizeof(Word) * static_cast<std::size_t>(ranks))) {}

Result<PageTicket> GraphFlags::offer() {
  const std::size_t chunk = calls_ / calls_per_chunk_;
  if (chunk == chunks_.size()) {
    UNISONO_ASSIGN(auto made, SharedPages::make(device_, rank_, kChunkBytes));
    chunks_.push_back(std::move(made));
  }
  return chunks_[chunk]->is_connected() ? PageTicket{} : chunks_[chunk]->ticket();
}

Result<bool> GraphFlags::connect(std::span<const PageTicket> tickets) {
  return chunks_[calls_ / calls_per_chunk_]->connect(tickets);
}

std::size_t GraphFlags::index(std::uint64_t call, Exchange exchange, Rank writer) const {
  const auto ranks = static_cast<std::size_t>(ranks_);
  return (call % calls_per_chunk_ * 2 + static_cast<std::size_t>(exchange)) * ranks +
         static_cast<std::size_t>(writer);
}

CUdeviceptr GraphFlags::address(Rank owner, std::uint64_t call, Exchange exchange,
                                Rank writer) const {
  return chunks_[call / calls_per_chunk_]->address_of(owner) +
         index(call, exchange, writer) * sizeof(Word);
}

std::uint32_t GraphFlags::own(std::uint64_t call, Exchange exchange, Rank writer) const {
  auto* const words = reinterpret_cast<Word*>(chunks_[call / calls_per_chunk_]->own());
  return std::atomic_ref<std::uint32_t>(words[index(call, exchange, writer)].value)
      .load(std::memory_order_acquire);
}

Status GraphFlags::enqueue_ready(CUstream stream, std::uint64_t call) const {
  return enqueue(stream, call, Exchange::kReady);
}

Status GraphFlags::enqueue_done(CUstream stream, std::uint64_t call) const {
  return enqueue(stream, call, Exchange::kDone);
}

// One batch. The words are back at rest before this rank tells of its next step: a peer that has
// seen that may write them again.
Status GraphFlags::enqueue(CUstream stream, std::uint64_t call, Exchange exchange) const {
  cuda::MemopBatch batch;
  const CUdeviceptr stage = address(rank_, call, Exchange::kReady, rank_);
  const bool is_first = exchange == Exchange::kReady;
  batch.write(stage, is_first ? kWaitsForReady : kWaitsForDone);
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) batch.write(address(peer, call, exchange, rank_), kHere);
  }
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) batch.wait_wide(address(rank_, call, exchange, peer), kHere);
  }
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) batch.write(address(rank_, call, exchange, peer), kAway);
  }
  batch.write(stage, is_first ? kMoves : kResting);
  return batch.enqueue(device_.api(), stream, "capturing flags on " + device_.name());
}

void GraphFlags::waiting_for(std::vector<Rank>* ranks) const {
  for (std::uint64_t call = 0; call < calls_; ++call) {
    const std::uint32_t stage = own(call, Exchange::kReady, rank_);
    if (stage != kWaitsForReady && stage != kWaitsForDone) continue;
    const Exchange exchange = stage == kWaitsForReady ? Exchange::kReady : Exchange::kDone;
    for (Rank peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_ || own(call, exchange, peer) != kAway) continue;
      if (std::find(ranks->begin(), ranks->end(), peer) == ranks->end()) ranks->push_back(peer);
    }
  }
}

bool GraphFlags::is_idle() const {
  for (std::uint64_t call = 0; call < calls_; ++call) {
    if (own(call, Exchange::kReady, rank_) != kResting) return false;
  }
  return true;
}

void GraphFlags::abort() {
  for (const auto& chunk : chunks_) {
    auto* const words = reinterpret_cast<Word*>(chunk->own());
    for (std::size_t i = 0; i < kChunkBytes / sizeof(Word); ++i) {
      std::atomic_ref<std::uint32_t>(words[i].poison).store(1, std::memory_order_release);
    }
  }
}

}  // namespace unisono::device
