// How the streams of ranks in different processes wait for each other in replays of CUDA graphs: as
// in flag_page.h, but with constants, because a graph says the same at every replay. Every captured
// call has words of its own on every rank, 0 while nobody is in the call. A peer's stream writes 1
// into its word, the owner's stream waits for it and puts it back to 0, and between its two
// exchanges nobody is ahead of anybody (README.md has the argument).
//
// The words are 64 bits wide: streams write the lower half, the owner's host the upper one, once
// and for good. So a communicator that has failed has ended every wait of every replay to come.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/synchronisation/shared_pages.h"

namespace unisono::device {

class GraphFlags {
 public:
  GraphFlags(Device& device, int ranks, Rank rank);

  /// Where this rank's words for the next call are handed out; id 0: the peers have them. Calls
  /// have their numbers in the order in which take() is called, the same on all ranks.
  Result<PageTicket> offer();
  /// Before take(), as SharedPages::connect(). `tickets`: what the ranks offered for the next call.
  Result<bool> connect(std::span<const PageTicket> tickets);
  bool is_connected() const { return chunks_[calls_ / calls_per_chunk_]->is_connected(); }
  /// The next call's number.
  std::uint64_t take() { return calls_++; }

  /// Captures on `stream`: tell all peers that this rank has come so far, wait for all of them.
  Status enqueue_ready(CUstream stream, std::uint64_t call) const;
  Status enqueue_done(CUstream stream, std::uint64_t call) const;

  /// Peers that replays wait for right now, in any order.
  void waiting_for(std::vector<Rank>* ranks) const;
  /// No replay is in one of the calls, as far as streams have told.
  bool is_idle() const;
  /// Replays wait no more, now and later.
  void abort();

 private:
  enum class Exchange : std::uint8_t { kReady, kDone };
  struct Word;

  std::size_t index(std::uint64_t call, Exchange exchange, Rank writer) const;
  CUdeviceptr address(Rank owner, std::uint64_t call, Exchange exchange, Rank writer) const;
  std::uint32_t own(std::uint64_t call, Exchange exchange, Rank writer) const;
  Status enqueue(CUstream stream, std::uint64_t call, Exchange exchange) const;

  Device& device_;
  const int ranks_;
  const Rank rank_;
  const std::uint64_t calls_per_chunk_;
  std::vector<std::unique_ptr<SharedPages>> chunks_;
  std::uint64_t calls_ = 0;
};

}  // namespace unisono::device
