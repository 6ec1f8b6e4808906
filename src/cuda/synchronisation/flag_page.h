// How the streams of ranks in different processes wait for each other: a page of host memory per
// rank and communicator into which its peers' streams write that they are ready, and done. The
// owner's stream waits for words of its own page, so the owner alone can end every wait of its own.
// For calls that are enqueued one by one; those of graphs have words of their own (graph_flags.h).
//
// No kernel spins: a stream that waits gives its GPU away (ranks of several processes take turns on
// one). NCCL's copy-engine collectives synchronise alike.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/synchronisation/shared_pages.h"

namespace unisono::device {

class FlagPage {
 public:
  /// This rank's page, offered to peers.
  static Result<std::unique_ptr<FlagPage>> make(Device& device, int ranks, Rank rank);

  SharedPages& pages() { return *pages_; }

  /// Of the next collective.
  std::uint32_t next_sequence() { return ++sequence_; }
  /// Enqueues on `stream`: tell all peers that this rank has come so far, wait for all of them.
  Status enqueue_ready(CUstream stream, std::uint32_t sequence) const;
  Status enqueue_done(CUstream stream, std::uint32_t sequence) const;
  /// Peers that have not told that they are done with `sequence`.
  void waiting_for(std::uint32_t sequence, std::vector<Rank>* ranks) const;

  /// Before abort(), of a rank that has failed: its streams will tell the peers that they are done,
  /// and they may not be.
  void warn_peers();
  /// A peer that has done so; -1: none. Any thread.
  Rank failed_peer() const;
  /// Kernels of this rank that have not begun do nothing from now on, and its streams wait no
  /// more.
  void abort();
  const std::uint32_t* abort_word() const;

 private:
  struct Words;

  FlagPage(Device& device, int ranks, Rank rank) : device_(device), ranks_(ranks), rank_(rank) {}
  Status exchange(CUstream stream, std::size_t offset, std::uint32_t sequence) const;
  Words& of(Rank rank) const { return *reinterpret_cast<Words*>(pages_->of(rank)); }
  Words& own() const { return *reinterpret_cast<Words*>(pages_->own()); }

  Device& device_;
  const int ranks_;
  const Rank rank_;
  std::unique_ptr<SharedPages> pages_;
  std::uint32_t sequence_ = 0;
};

}  // namespace unisono::device
