// Where the payloads of small calls of two members lie in which only one gives: around the group's
// rotation, from call to call, and not in cells. Who writes a line that the reader has just read
// fetches it from that one's cache; a line that has left that cache since comes sooner
// (README.md has figures). Each place lies before the last one: a reader's processor fetches
// what lies behind what it reads, and would take it from under the next call's writer (broadcast of
// 8 KiB 1.2 us, not 0.6).
//
// Both members go on by as much in each such call, so both know the place without being told; the
// cell tells only whether its owner used it, which trials decide (access_trials.h calls it the
// window), and whether there is memory. What three calls in a row leave does not overlap,
// which is enough for the reason that shared_cells.h gives. (More members would have to share it,
// and those that disagree about the root write into the same place.)
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <span>

#include "native/shared_cells.h"
#include "transports/shm/segment_group.h"

namespace unisono::native {

class PayloadRotation {
 public:
  explicit PayloadRotation(shm::SegmentGroup& group)
      : group_(group), memory_(group.payload_rotation()) {}

  /// Goes on to the place of a call of at most `bytes`, which fit a cell.
  void next(std::size_t bytes) {
    const std::size_t room = shm::round_up(bytes, shm::kLineBytes);
    if (room > offset_) offset_ = memory_.size();
    offset_ -= room;
  }
  /// Where the call's payload lies, if its owner tells so.
  std::byte* place() const { return memory_.data() + offset_; }
  /// Tells in this rank's cell whether it does.
  static void tell(shm::CellLine& own, bool does) { own.payload[0] = std::byte{does}; }
  /// What the owner of `line` tells.
  static bool told(const shm::CellLine& line) { return line.payload[0] != std::byte{0}; }
  /// Whether there is memory. Both ranks ask before such a call, so that neither meets new pages.
  bool has_memory() { return group_.has_payload_rotation(); }

 private:
  static_assert(shm::kCachedRotationMin >= 4 * shm::kCellPayloadBytes);
  static_assert(shm::kCachedRotationMin % shm::kLineBytes == 0);
  shm::SegmentGroup& group_;
  std::span<std::byte> memory_;
  std::size_t offset_ = 0;  // of this call's place
};

}  // namespace unisono::native
