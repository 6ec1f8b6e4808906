// Frames over byte streams: TCP between hosts, UNIX sockets where shared memory is refused. Made
// by a rank's engine and used by one thread at a time; starts no thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/handshake.h"
#include "base/result.h"
#include "transports/transport.h"

namespace unisono {

struct StreamOptions {
  enum class Family : std::uint8_t { kTcp, kUnix };
  Family family = Family::kTcp;
  Rank rank = 0;
  int size = 1;
  std::string job_id;  ///< at most 64 bytes, the same on every rank
  JobKey key;          ///< the same on every rank; both may come later by set_identity()
  /// TCP: listen on this host name or numeric address only, and offer it to peers. Empty: listen
  /// on every interface and offer all addresses of this host. The port is any that is free.
  std::string bind_address;
  /// Connections per peer that kData frames are spread over; 0: one within a host, two between
  /// hosts. The second and later ones are made after `extra_stream_after_bytes` were posted to that
  /// peer.
  int streams = 0;
  std::size_t extra_stream_after_bytes = std::size_t{4} << 20;
  /// Every frame carries sums of its header and payload; the same on every rank.
  bool checksum = false;
  /// SO_SNDBUF and SO_RCVBUF; 0 leaves sizing to the system.
  int send_buffer_bytes = 0;
  int receive_buffer_bytes = 0;
  /// TCP: a connection has ended by then of which nothing was acknowledged for so long, though what
  /// was sent again could have been; a link that does not come about for so long ends, too, or
  /// later where its peer has many addresses. 0: never.
  Duration unacknowledged_max = std::chrono::milliseconds(2790);
};

/// Listens at once, so that address() can be published. kInvalidArgument for options out of range,
/// kSystem with the system's words otherwise.
Result<std::unique_ptr<Transport>> make_stream_transport(StreamOptions options);

/// Whether this machine can listen in that family at all.
Probe probe_stream_transport(StreamOptions::Family family);

}  // namespace unisono
