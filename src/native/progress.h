// How far the members of a group are in a large call: four counters each (filled, combined,
// reduced, drained of shm::Counters), written by their owner and cached by the readers, so that
// most questions need no shared line. A counter holds (number of the large call << kChunkBits) +
// chunks done, so it only grows, and ranks need not agree on how many chunks a call had.
//
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <vector>

#include "native/transfer.h"
#include "transports/shm/segment_group.h"

namespace unisono::native {

inline constexpr int kChunkBits = 26;
inline constexpr std::uint64_t kChunksMax = (std::uint64_t{1} << kChunkBits) - 1;

class Progress {
 public:
  explicit Progress(shm::SegmentGroup& group)
      : group_(group), seen_(static_cast<std::size_t>(group.size())) {}

  /// Goes on to the next large call.
  void next() { base_ += std::uint64_t{1} << kChunkBits; }
  /// The number of this one, the same at all members.
  std::uint64_t call() const { return base_ >> kChunkBits; }
  bool is_odd_call() const { return call() % 2 != 0; }

  // What this rank has done: `chunks` of this call. Release: the data come first.
  void filled(std::uint64_t chunks) { store(own().filled, chunks); }
  void combined(std::uint64_t chunks) { store(own().combined, chunks); }
  void reduced(std::uint64_t chunks) { store(own().reduced, chunks); }
  void drained(std::uint64_t chunks) { store(own().drained, chunks); }
  /// It reads nothing more in this call.
  void finished() { store(own().drained, std::uint64_t{1} << kChunkBits); }

  // What a member has done, by acquire: pairs with the stores above.
  bool has_filled(int member, std::uint64_t chunks) {
    return reached(seen(member).filled, group_.counters(member).filled, base_ + chunks);
  }
  bool has_combined(int member, std::uint64_t chunks) {
    return reached(seen(member).combined, group_.counters(member).combined, base_ + chunks);
  }
  bool has_reduced(int member, std::uint64_t chunks) {
    return reached(seen(member).reduced, group_.counters(member).reduced, base_ + chunks);
  }
  bool has_drained(int member, std::uint64_t chunks) {
    return reached(seen(member).drained, group_.counters(member).drained, base_ + chunks);
  }
  bool has_finished(int member) { return has_drained(member, std::uint64_t{1} << kChunkBits); }
  /// `member`'s cell was published after its first chunk.
  void saw_first_chunk(int member) {
    seen(member).filled = std::max(seen(member).filled, base_ + 1);
  }

  /// True when nobody reads any more what this rank's slot for `chunk` held before. For the first
  /// chunks that is what an earlier call left there, for its readers.
  bool slot_is_free(std::uint64_t chunk, MemberRange readers);
  /// True when it is not free because of `member`.
  bool holds_slot(int member, std::uint64_t chunk, MemberRange readers);

 private:
  struct Seen {
    std::uint64_t filled = 0, combined = 0, reduced = 0, drained = 0;
  };
  Seen& seen(int member) { return seen_[static_cast<std::size_t>(member)]; }
  shm::Counters& own() { return group_.counters(group_.self()); }
  void store(shm::CounterLine& line, std::uint64_t chunks) {
    line.value.store(base_ + chunks, std::memory_order_release);
  }
  static bool reached(std::uint64_t& seen, shm::CounterLine& line, std::uint64_t wanted) {
    if (seen >= wanted) return true;
    seen = line.value.load(std::memory_order_acquire);
    return seen >= wanted;
  }

  shm::SegmentGroup& group_;
  // Before the first call, so that the first starts at zero, where everyone's counters are.
  std::uint64_t base_ = 0 - (std::uint64_t{1} << kChunkBits);
  std::vector<Seen> seen_;
};

inline std::uint64_t chunks_of(std::size_t bytes, std::size_t unit) {
  return bytes / unit + (bytes % unit != 0 ? 1 : 0);
}

}  // namespace unisono::native
