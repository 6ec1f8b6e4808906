// The unit that transports move: a 64-byte header and its payload. Host byte order;
// the handshake refuses a peer of the other one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/call_record.h"

namespace unisono {

inline constexpr std::size_t kFramePayloadMax = 256 * 1024;
/// Of a kData frame that its receiver reads where it lies, if the endpoint asks for longer ones.
inline constexpr std::size_t kLentPayloadMax = 16 * kFramePayloadMax;

enum class FrameKind : std::uint8_t {
  kEager = 1,  ///< a whole message, sent without being asked for; spends credit
  kAnnounce,   ///< a message is waiting here for a grant; spends credit for its header
  kGrant,      ///< the receiver is ready: send message (communicator, sequence, index)
  kData,    ///< a piece of a granted message: at a multiple of kFramePayloadMax and as long as one
            ///< or several times that, or the rest; each byte once, any order, any stream
  kCredit,  ///< `total_bytes` of eager credit return to the sender of (communicator)
  kProbe,   ///< "I wait in this call": carries the record and nothing else
  kWant,    ///< point-to-point, to a sender without credit: announce a message of tag `index`
  kAsk,     ///< collective, to the receiver: a grant of this message was not kept; say it again
  kOffer,   ///< collective: this message waits here for its grant; to be compared with its receive
  kLeft,    ///< the sender has closed this communicator; `index`: it counts once it has come so
            ///< often, on every stream behind what was sent there (0: once)
  kTransport,  ///< between two transports that share this one; no engine sends or expects it
};

enum class FrameClass : std::uint8_t { kCollective = 1, kPointToPoint = 2 };

struct FrameHeader {
  std::uint32_t payload_bytes = 0;  ///< that follow this header
  FrameKind kind = FrameKind::kEager;
  FrameClass frame_class = FrameClass::kCollective;
  std::uint16_t reserved = 0;
  std::uint32_t communicator = 0;
  std::uint32_t index = 0;     ///< collective: the plan's message index; point-to-point: the tag
  std::uint64_t sequence = 0;  ///< collective: operation; point-to-point: message of this channel
  /// kData: of this piece in its message. kEager: so many bytes of eager credit return with it, as
  /// with a kCredit. See kAnswer as well.
  std::uint64_t offset = 0;
  std::uint64_t total_bytes = 0;  ///< of the message
  CallRecord record;
};
static_assert(sizeof(FrameHeader) == 64 && std::is_trivially_copyable_v<FrameHeader>);

/// `offset` of a kAnnounce that answers a kWant and so spends no credit, and of a kGrant that
/// answers a kAsk.
inline constexpr std::uint64_t kAnswer = 1;

}  // namespace unisono
