#include "cuda/synchronisation/flag_page.h"

#include <atomic>
#include <cstddef>

#include "cuda/driver/memop_batch.h"
#include "cuda/kernels/device_work.h"

namespace unisono::device {
namespace {

// Far ahead of every sequence that a stream may wait for, as cyclic comparison sees it.
constexpr std::uint32_t kPoison = 1u << 30;

}  // namespace

/// The page: each word is written by one peer's stream, the abort word by the owner and the number
/// of a failed peer, from 1, by that peer's host.
struct FlagPage::Words {
  struct alignas(64) Line {
    std::uint32_t value;
  };
  Line ready[cuda::kWorkRanksMax];
  Line done[cuda::kWorkRanksMax];
  Line abort;
  Line failed;
};

Result<std::unique_ptr<FlagPage>> FlagPage::make(Device& device, int ranks, Rank rank) {
  static_assert(sizeof(Words) <= shm::kPageBytes);
  std::unique_ptr<FlagPage> flags(new FlagPage(device, ranks, rank));
  UNISONO_ASSIGN(flags->pages_, SharedPages::make(device, rank, shm::kPageBytes));
  return flags;
}

Status FlagPage::enqueue_ready(CUstream stream, std::uint32_t sequence) const {
  return exchange(stream, offsetof(Words, ready), sequence);
}

Status FlagPage::enqueue_done(CUstream stream, std::uint32_t sequence) const {
  return exchange(stream, offsetof(Words, done), sequence);
}

// One batch: writes to all peers, then waits for all of them. A write is ordered behind everything
// that the stream has done.
Status FlagPage::exchange(CUstream stream, std::size_t offset, std::uint32_t sequence) const {
  cuda::MemopBatch batch;
  const auto word_of = [&](Rank page, Rank writer) {
    return pages_->address_of(page) + offset +
           static_cast<std::size_t>(writer) * sizeof(Words::Line);
  };
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) batch.write(word_of(peer, rank_), sequence);
  }
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) batch.wait(word_of(rank_, peer), sequence);
  }
  return batch.enqueue(device_.api(), stream, "enqueueing flags on " + device_.name());
}

void FlagPage::waiting_for(std::uint32_t sequence, std::vector<Rank>* ranks) const {
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    const std::uint32_t seen =
        std::atomic_ref<std::uint32_t>(own().done[peer].value).load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(seen - sequence) < 0) ranks->push_back(peer);
  }
}

void FlagPage::warn_peers() {
  if (!pages_->is_connected()) return;
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    std::atomic_ref<std::uint32_t>(of(peer).failed.value)
        .store(static_cast<std::uint32_t>(rank_) + 1, std::memory_order_release);
  }
}

Rank FlagPage::failed_peer() const {
  return static_cast<Rank>(
             std::atomic_ref<std::uint32_t>(own().failed.value).load(std::memory_order_acquire)) -
         1;
}

void FlagPage::abort() {
  std::atomic_ref<std::uint32_t>(own().abort.value).store(1, std::memory_order_release);
  for (Rank peer = 0; peer < ranks_; ++peer) {
    for (auto* words : {own().ready, own().done}) {
      std::atomic_ref<std::uint32_t>(words[peer].value)
          .store(sequence_ + kPoison, std::memory_order_release);
    }
  }
}

const std::uint32_t* FlagPage::abort_word() const {
  return reinterpret_cast<const std::uint32_t*>(pages_->address_of(rank_) + offsetof(Words, abort));
}

}  // namespace unisono::device
