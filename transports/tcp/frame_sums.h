// The checksums that may travel behind the header of every frame of a stream, where both ends were
// told so (UNISONO_CHECKSUM). That of the header covers the payload's as well and the number of the
// frame in its stream: frames that are lost, come twice or out of order are found too.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "transports/frame.h"

namespace unisono::tcp {

struct FrameSums {
  std::uint64_t header = 0;
  std::uint64_t payload = 0;
};
/// What precedes a payload on the wire; without sums the header alone.
struct FrameHead {
  FrameHeader header;
  FrameSums sums;
};
static_assert(sizeof(FrameHead) == sizeof(FrameHeader) + sizeof(FrameSums));

/// `number`: how many frames of the stream were sent before.
FrameSums sums_of(const FrameHeader& header, std::span<const std::byte> payload,
                  std::uint64_t number);

/// Judges the frames of one stream as they arrive. Errors are kCorrupted, name the peer and have
/// both sums.
class SumCheck {
 public:
  explicit SumCheck(Rank peer);
  ~SumCheck();

  /// Before anything in the header is believed.
  Status begin(const FrameHeader& header, const FrameSums& sums);
  /// The payload, in order.
  void add(std::span<const std::byte> piece);
  /// After the last piece, before anybody is told that the frame is there.
  Status end(const FrameHeader& header) const;

 private:
  struct State;

  Rank peer_;
  std::uint64_t number_ = 0;
  std::uint64_t expected_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace unisono::tcp
