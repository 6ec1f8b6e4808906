#include "cuda/synchronisation/flag_page.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>

#include "cuda/driver/memop_batch.h"
#include "cuda/kernels/device_work.h"

namespace unisono::device {
namespace {

// Far ahead of every sequence that a stream may wait for, as cyclic comparison sees it.
constexpr std::uint32_t kPoison = 1u << 30;

void write_word(std::uint32_t& word, std::uint32_t value) {
  std::atomic_ref<std::uint32_t>(word).store(value, std::memory_order_release);
}

}  // namespace

struct alignas(64) FlagPage::Line {
  std::uint32_t value;
};

/// What one peer tells of its calls: each has the word of another one that came so long before that
/// all streams are past it.
struct alignas(64) FlagPage::Ring {
  static std::size_t index(std::uint32_t sequence) { return sequence % kCallsAheadMax; }
  bool has(std::uint32_t sequence) const {
    return cuda::has_come(values[index(sequence)], sequence);
  }
  void fill(std::uint32_t value) {
    for (std::uint32_t& each : values) write_word(each, value);
  }

  std::uint32_t values[kCallsAheadMax];
  static_assert((std::uint64_t{1} << 32) % kCallsAheadMax == 0, "numbers are cyclic");
};

/// The page: each ring is written by one peer's stream, `past` by the rank's own, the abort word by
/// the rank and the number of a failed peer, from 1, by that peer's host.
struct FlagPage::Words {
  Ring ready[cuda::kWorkRanksMax];
  Ring done[cuda::kWorkRanksMax];
  Line past;
  Line abort;
  Line failed;
};

FlagPage::FlagPage(Device& device, int ranks, Rank rank, std::span<const Rank> launchers)
    : device_(device),
      ranks_(ranks),
      rank_(rank),
      launchers_(launchers),
      launches_(is_launcher(rank)) {}

Result<std::unique_ptr<FlagPage>> FlagPage::make(Device& device, int ranks, Rank rank,
                                                 std::span<const Rank> launchers) {
  static_assert(sizeof(Words) <= kBytes);
  std::unique_ptr<FlagPage> flags(new FlagPage(device, ranks, rank, launchers));
  UNISONO_ASSIGN(flags->pages_, SharedPages::make(device, rank, kBytes));
  return flags;
}

bool FlagPage::is_launcher(Rank rank) const {
  return std::find(launchers_.begin(), launchers_.end(), rank) != launchers_.end();
}

CUdeviceptr FlagPage::word(Rank page, std::size_t rings, Rank writer,
                           std::uint32_t sequence) const {
  return pages_->address_of(page) + rings + static_cast<std::size_t>(writer) * sizeof(Ring) +
         Ring::index(sequence) * sizeof(std::uint32_t);
}

// A write is ordered behind everything that the stream has done.
Status FlagPage::enqueue(CUstream stream, const std::function<Status()>& launch) {
  const std::string what = "enqueueing flags on " + device_.name();
  constexpr std::size_t kReady = offsetof(Words, ready), kDone = offsetof(Words, done);
  const CUdeviceptr past = pages_->address_of(rank_) + offsetof(Words, past);
  cuda::MemopBatch batch;
  const std::uint32_t sequence = sequence_ + 1;
  for (const Rank launcher : launchers_) {
    if (launcher != rank_) batch.write(word(launcher, kReady, rank_, sequence), sequence);
  }
  Status launched;
  if (launches_) {
    for (Rank peer = 0; peer < ranks_; ++peer) {
      if (peer != rank_) batch.wait(word(rank_, kReady, peer, sequence), sequence);
    }
    UNISONO_TRY(batch.enqueue(device_.api(), stream, what));
    sequence_ = sequence;
    batch = {};
    launched = launch();
    for (Rank peer = 0; launched.ok() && peer < ranks_; ++peer) {
      if (peer != rank_) batch.write(word(peer, kDone, rank_, sequence), sequence);
    }
  }
  for (const Rank launcher : launchers_) {
    if (launched.ok() && launcher != rank_) {
      batch.wait(word(rank_, kDone, launcher, sequence), sequence);
    }
  }
  // It is written even where a later one of several launches has failed.
  batch.write(past, sequence);
  const Status enqueued = batch.enqueue(device_.api(), stream, what);
  if (!enqueued && launches_) {
    batch = {};
    batch.write(past, sequence);
    static_cast<void>(batch.enqueue(device_.api(), stream, what));
  }
  UNISONO_TRY(enqueued);
  sequence_ = sequence;
  return launched;
}

bool FlagPage::is_past(std::uint32_t sequence) const {
  return cuda::has_come(own().past.value, sequence);
}

void FlagPage::waiting_for(std::uint32_t sequence, std::vector<Rank>* ranks) const {
  bool all_ready = true;
  for (Rank peer = 0; launches_ && peer < ranks_; ++peer) {
    if (peer == rank_ || own().ready[peer].has(sequence)) continue;
    ranks->push_back(peer);
    all_ready = false;
  }
  const auto is_done = [&](Rank launcher) {
    return launcher == rank_ || own().done[launcher].has(sequence);
  };
  if (!all_ready || std::all_of(launchers_.begin(), launchers_.end(), is_done)) return;
  // Who has not told those that launch is not known here.
  for (Rank peer = 0; peer < ranks_; ++peer) {
    const bool may_be_late = is_launcher(peer) ? !is_done(peer) : !launches_;
    if (peer != rank_ && may_be_late) ranks->push_back(peer);
  }
}

void FlagPage::warn_peers() {
  if (!pages_->is_connected()) return;
  for (Rank peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) write_word(of(peer).failed.value, static_cast<std::uint32_t>(rank_) + 1);
  }
}

// Peers write it: a number that is no peer's tells of none.
Rank FlagPage::failed_peer() const {
  const std::uint32_t told =
      std::atomic_ref<std::uint32_t>(own().failed.value).load(std::memory_order_acquire);
  const Rank peer = told <= static_cast<std::uint32_t>(ranks_) ? static_cast<Rank>(told) - 1 : -1;
  return peer == rank_ ? -1 : peer;
}

void FlagPage::abort() {
  write_word(own().abort.value, 1);
  for (Rank peer = 0; peer < ranks_; ++peer) own().ready[peer].fill(sequence_ + kPoison);
}

void FlagPage::give_up(Rank launcher) { own().done[launcher].fill(sequence_ + kPoison); }

const std::uint32_t* FlagPage::abort_word() const {
  return reinterpret_cast<const std::uint32_t*>(pages_->address_of(rank_) + offsetof(Words, abort));
}

}  // namespace unisono::device
