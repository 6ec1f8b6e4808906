// How the streams of ranks in different processes wait for each other: host memory of every rank
// and communicator into which its peers' streams write that they are ready, and those that launch
// that they are done. A rank's stream waits for words of its own, so the rank alone can end every
// wait of its own. No peer undoes that: calls that may be in streams at the same time have words of
// their own, so a late write touches that of its call alone. The rank's own stream
// writes there, too, which calls it is past: a word costs less than an event, for which processes
// that share a GPU would take turns on it. For calls that are enqueued one by one; those of graphs
// have words of their own (graph_flags.h).
//
// No kernel spins: a stream that waits gives its GPU away (ranks of several processes take turns on
// one). NCCL's copy-engine collectives synchronise alike.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cuda/synchronisation/shared_pages.h"

namespace unisono::device {

class FlagPage {
 public:
  static constexpr std::size_t kBytes = 3 * shm::kPageBytes;  ///< of one rank

  /// This rank's page, offered to peers. `launchers`: the ranks that launch, which outlive it.
  static Result<std::unique_ptr<FlagPage>> make(Device& device, int ranks, Rank rank,
                                                std::span<const Rank> launchers);

  SharedPages& pages() { return *pages_; }

  /// Enqueues the next call on `stream`, which comes behind the one before, and is at most the
  /// kCallsAheadMax-th that the streams are not past: tells those that launch that this rank is
  /// ready; a rank that launches waits until all are, and for what `launch` enqueues, tells all
  /// that it is done; then waits for all that launch.
  Status enqueue(CUstream stream, const std::function<Status()>& launch);
  /// Of the call that was enqueued last.
  std::uint32_t sequence() const { return sequence_; }
  /// The stream is past that call.
  bool is_past(std::uint32_t sequence) const;
  /// Peers whose words the stream waits for in that call.
  void waiting_for(std::uint32_t sequence, std::vector<Rank>* ranks) const;

  /// Before abort(), of a rank that has failed: its streams will tell the peers that they are done,
  /// and they may not be.
  void warn_peers();
  /// A peer that has done so; -1: none. Any thread.
  Rank failed_peer() const;
  /// Kernels of this rank that have not begun do nothing from now on, and its streams wait for no
  /// peer to be ready. They still wait for those that launch, whose kernels may be in this rank's
  /// buffers.
  void abort();
  /// Its streams do not wait for what this rank launches, either.
  void give_up(Rank launcher);
  const std::uint32_t* abort_word() const;

 private:
  struct Line;
  struct Ring;
  struct Words;

  FlagPage(Device& device, int ranks, Rank rank, std::span<const Rank> launchers);
  bool is_launcher(Rank rank) const;
  /// As the device sees it, in the page of a rank: the call's word in `writer`'s ring of those that
  /// begin at `rings`.
  CUdeviceptr word(Rank page, std::size_t rings, Rank writer, std::uint32_t sequence) const;
  Words& of(Rank rank) const { return *reinterpret_cast<Words*>(pages_->of(rank)); }
  Words& own() const { return *reinterpret_cast<Words*>(pages_->own()); }

  Device& device_;
  const int ranks_;
  const Rank rank_;
  const std::span<const Rank> launchers_;
  const bool launches_;
  std::unique_ptr<SharedPages> pages_;
  std::uint32_t sequence_ = 0;
};

}  // namespace unisono::device
