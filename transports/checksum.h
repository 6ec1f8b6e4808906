// The checksums that may travel with frames between hosts, where both ends were told so
// (UNISONO_CHECKSUM): XXH3 of 64 bits. A frame has two, that of its payload and that of its head:
// all that goes before the payload, the payload's sum among it, and the frame's place in its
// channel. So frames that are lost, come twice or out of order are found too.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "transports/frame.h"

namespace unisono {

struct FrameSums {
  std::uint64_t header = 0;
  std::uint64_t payload = 0;
};

std::uint64_t sum_of_payload(std::span<const std::byte> payload);
/// `head` has the payload's sum in it, and 0 in place of its own. `place`: another for each frame
/// of a channel.
std::uint64_t sum_of_head(std::span<const std::byte> head, std::uint64_t place);

/// The sum of a payload that comes in pieces.
class PayloadSum {
 public:
  PayloadSum();
  ~PayloadSum();
  PayloadSum(const PayloadSum&) = delete;
  PayloadSum& operator=(const PayloadSum&) = delete;

  void reset();
  /// In order.
  void add(std::span<const std::byte> piece);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// kCorrupted for sums that differ, with both and the peer that sent the frame. `frame`: which of
/// its frames it is, for people.
Status head_changed(Rank peer, std::string_view frame, std::uint64_t found, std::uint64_t sent);
Status payload_changed(Rank peer, const FrameHeader& header, std::uint64_t found,
                       std::uint64_t sent);

}  // namespace unisono
