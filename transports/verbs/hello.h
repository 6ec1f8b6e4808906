// What two ranks tell each other over the side channel before queue pairs stand, and again whenever
// they have to be made anew: the hello of an epoch, then "ready". Little-endian, versioned, every
// length and field checked before use. Values only; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "transports/verbs/record.h"

namespace unisono::verbs {

inline constexpr std::size_t kQueuePairsMax = 16;  ///< queue pairs of one link
inline constexpr std::size_t kLentMax = 16;        ///< lent payloads of one link and direction
inline constexpr std::size_t kLinkMessageBytesMax = 4096;
inline constexpr std::size_t kFailureTextBytesMax = 512;
inline constexpr std::uint32_t kImmediatesMax = 1u << 24;
/// No position or count is above it, so sums with one that a peer named do not overflow.
inline constexpr std::uint64_t kPositionMax = std::uint64_t{1} << 62;

/// One queue pair as its peer must know it.
struct QueuePairEnd {
  std::uint8_t rail = 0;     ///< of the sender, below kRailsMax
  std::uint8_t ordinal = 0;  ///< among the sender's queue pairs on that rail; below kQueuePairsMax
  bool infiniband = false;   ///< link layer; else Ethernet
  bool needs_grh = false;    ///< it is reached with a global header alone, in its subnet too
  bool roce_v1 = false;      ///< on Ethernet; else version 2
  std::uint8_t mtu = 0;      ///< enum ibv_mtu, 1..5
  std::uint16_t lid = 0;
  std::uint16_t pkey = 0;
  std::uint8_t rd_atomic = 1;      ///< reads it answers at once, 1..255
  std::uint32_t number = 0;        ///< below 2^24
  std::uint32_t first_packet = 0;  ///< packet sequence number, below 2^24
  std::array<std::uint8_t, 16> gid{};
};

struct Hello {
  std::uint32_t epoch = 0;
  /// This rank's ring for the peer's records. All zero, as `immediates`, is allowed where there are
  /// no queue pairs.
  std::uint64_t ring_address = 0;
  std::uint32_t ring_bytes = 0;
  std::array<std::uint32_t, kRailsMax> ring_keys{};
  /// Writes that the peer may have unconsumed here, 1..kImmediatesMax.
  std::uint32_t immediates = 0;
  bool has_sums = false;       ///< UNISONO_CHECKSUM: records have, both ways
  std::uint64_t consumed = 0;  ///< of the peer's records, a position: a multiple of kLine
  std::uint64_t read = 0;      ///< of the peer's lent payloads, a count
  std::uint64_t lent = 0;      ///< by this rank so far, a count
  /// Where the payloads lent and not yet known to be read lie now: the last ones, at most kLentMax
  /// and at most `lent`.
  std::vector<Source> sources;
  /// At most kQueuePairsMax, no (rail, ordinal) twice; none: no port is left.
  std::vector<QueuePairEnd> queue_pairs;
};

enum class LinkMessageType : std::uint8_t {
  kHello = 1,
  kReady,    ///< queue pairs of this epoch stand here
  kLeaving,  ///< this rank goes, and everything up to this position has reached the peer
  kFailed,   ///< this rank gives the link up; words follow
};
struct LinkMessage {
  LinkMessageType type = LinkMessageType::kHello;
  std::uint32_t epoch = 0;     ///< kReady
  Hello hello;                 ///< kHello
  std::uint64_t position = 0;  ///< kLeaving: of the ring, a multiple of 64
  std::string text;            ///< kFailed; at most kFailureTextBytesMax
};

std::string encode(const Hello& hello);
std::string encode_ready(std::uint32_t epoch);
std::string encode_leaving(std::uint64_t position);
/// Longer text is cut.
std::string encode_failed(std::string_view text);
/// kProtocol names the field that no correct peer sends, its value and what is allowed.
Result<LinkMessage> decode_link_message(std::string_view bytes);

/// Which queue pairs belong together: those on rails of the same number; only where not one such
/// pair exists, others (rails of different number may well have no way to each other). Always of
/// one link layer, RoCE version, address family and partition, at least one of the two a full
/// member of it; in order of rail and ordinal. Both sides get the same when `lower` is the lower
/// rank's list.
struct EndPair {
  std::size_t lower = 0;   ///< index in the lower rank's list
  std::size_t higher = 0;  ///< index in the higher rank's list
};
std::vector<EndPair> pair_ends(const std::vector<QueuePairEnd>& lower,
                               const std::vector<QueuePairEnd>& higher);

}  // namespace unisono::verbs
