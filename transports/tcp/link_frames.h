// The frames that the two ends of a link exchange for themselves: a header without payload, of
// kinds that FrameKind does not use. They never reach the engine.
#pragma once

#include <cstdint>

#include "transports/frame.h"

namespace unisono::tcp {

/// First bytes of the acceptor after the handshake: the connection is in use.
inline constexpr auto kFrameAdmitted = static_cast<FrameKind>(0xfe);
/// Instead of it, before closing: `index` is an Admission that says why not.
inline constexpr auto kFrameRefused = static_cast<FrameKind>(0xfd);
/// Last frame of a stream: `index` is the number of streams that end with one.
inline constexpr auto kFrameGoodbye = static_cast<FrameKind>(0xff);

/// What becomes of an authenticated incoming connection.
enum class Admission : std::uint32_t {
  kAdmitted = 0,
  kCrossing = 1,  ///< both ranks dialled; the lower rank's connection is kept
  kTaken = 2,     ///< this stream stands already
  kEnded = 3,     ///< the link to that rank has ended here
  kUnwanted = 4,  ///< no such stream
};

inline FrameHeader link_frame(FrameKind kind, std::uint32_t index) {
  FrameHeader header;
  header.kind = kind;
  header.index = index;
  return header;
}

}  // namespace unisono::tcp
