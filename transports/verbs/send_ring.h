// The sender's copy of the ring at one peer: records are appended here and written to the same
// place there. A record stays until the peer has consumed it, so that everything unconsumed can be
// written again over another queue pair. Positions are bytes since the link's beginning. Owned by a
// Link, used by its thread; knows no verbs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transports/frame.h"
#include "transports/verbs/record.h"

namespace unisono::verbs {

class SendRing {
 public:
  /// A multiple of kLine, at least kRingBytesMin; lent by the owner for this ring's life, who has
  /// cleared it: gaps behind payloads are written to the peer too. `has_sums`: records have
  /// checksums.
  explicit SendRing(std::span<std::byte> memory, bool has_sums = false);

  /// Whether a record of that size fits now.
  bool has_room(std::size_t record_bytes) const;
  /// Whether a record of that size (record.h) always fits once the ring is empty, behind a skip if
  /// need be, though its reader has not said yet how far that is so. Only such records may be
  /// appended.
  static bool could_hold(std::size_t ring_bytes, std::size_t record_bytes) {
    return record_bytes <= (ring_bytes - untold_bytes_max(ring_bytes)) / 2;
  }
  /// `header.payload_bytes` is the payload's size. False, and nothing changed: no room now.
  bool append_whole(const FrameHeader& header, std::span<const std::byte> payload);
  /// Where the record begins; nothing, and nothing changed, where there is no room now. The payload
  /// has at least one byte. `payload_sum`: with checksums, that of the payload.
  std::optional<std::uint64_t> append_lent(const FrameHeader& header, const Source& source,
                                           std::uint64_t payload_sum = 0);

  /// What is to be written next: up to the ring's end and at most `bytes_max`, which holds a line
  /// at least. It may end in the middle of a record.
  struct Piece {
    std::size_t offset = 0;  ///< in the ring
    std::size_t bytes = 0;   ///< 0: nothing
    std::uint64_t end = 0;   ///< position behind it
  };
  Piece next_piece(std::size_t bytes_max) const;
  void posted(const Piece& piece) { posted_ = piece.end; }

  /// The peer has consumed everything before `position`. False, and nothing changed, where that
  /// cannot be.
  bool consumed(std::uint64_t position);
  /// After queue pairs were lost: everything from `consumed` on is to be written again. False, and
  /// nothing changed, where that cannot be.
  bool rewind(std::uint64_t consumed);

  /// The payload of the lent record at `position` lies elsewhere now; it counts from the next time
  /// the record is written. Nothing happens where the peer has consumed the record.
  void move_source(std::uint64_t position, const Source& source);

  std::uint64_t appended() const { return appended_; }
  std::uint64_t posted() const { return posted_; }
  std::uint64_t consumed() const { return consumed_; }
  /// Whether any part of the record at `position` was posted since the last rewind.
  bool is_posted(std::uint64_t position) const { return position < posted_; }
  std::span<std::byte> memory() const { return memory_; }

 private:
  std::size_t skip_before(std::size_t record_bytes) const;
  void write_skip(std::size_t record_bytes);
  /// Null: no room now. Writes the skip that is needed in front.
  std::byte* reserve(std::size_t record_bytes);
  void write_head(std::uint64_t position, RecordHead head);
  std::byte* at(std::uint64_t position) const { return &memory_[position % memory_.size()]; }

  std::span<std::byte> memory_;
  bool has_sums_;
  std::uint64_t appended_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t consumed_ = 0;
};

}  // namespace unisono::verbs
