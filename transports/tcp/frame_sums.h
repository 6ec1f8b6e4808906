// The checksums behind the header of every frame of a stream, where both ends were told so. The
// place of a frame is its number in its stream.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/result.h"
#include "transports/checksum.h"
#include "transports/frame.h"

namespace unisono::tcp {

/// What precedes a payload on the wire; without sums the header alone.
struct FrameHead {
  FrameHeader header;
  FrameSums sums;
};
// Its bytes are summed, so none may be padding.
static_assert(sizeof(FrameHead) == sizeof(FrameHeader) + sizeof(FrameSums) &&
              std::has_unique_object_representations_v<FrameHead>);

/// `number`: how many frames of the stream were sent before.
FrameSums sums_of(const FrameHeader& header, std::span<const std::byte> payload,
                  std::uint64_t number);

/// Judges the frames of one stream as they arrive. Errors are kCorrupted, name the peer and have
/// both sums.
class SumCheck {
 public:
  explicit SumCheck(Rank peer) : peer_(peer) {}

  /// Before anything in the header is believed.
  Status begin(const FrameHeader& header, const FrameSums& sums);
  /// The payload, in order.
  void add(std::span<const std::byte> piece) { payload_.add(piece); }
  /// After the last piece, before anybody is told that the frame is there.
  Status end(const FrameHeader& header) const;

 private:
  Rank peer_;
  std::uint64_t number_ = 0;
  std::uint64_t expected_ = 0;
  PayloadSum payload_;
};

}  // namespace unisono::tcp
