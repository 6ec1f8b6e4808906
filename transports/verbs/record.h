// What travels in a ring: a frame header followed by its payload (whole), by where the payload can
// be read (lent), or by nothing (skip: the rest of the ring). Every record is a multiple of 64
// bytes and lies in one piece. Where both ends were told so it has checksums, its place being its
// position. Also the immediates.
// Values only, free of verbs headers. Nothing that a peer wrote is trusted: functions that take it
// check before they answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "transports/checksum.h"
#include "transports/frame.h"

namespace unisono::verbs {

inline constexpr int kRailsMax = 4;
inline constexpr std::size_t kLine = 64;

/// Of a partition key: its holder hears limited members, too.
inline constexpr std::uint16_t kFullMember = 0x8000;
/// A ring is a multiple of kLine between these.
inline constexpr std::size_t kRingBytesMin = 4096;
inline constexpr std::size_t kRingBytesMax = std::size_t{1} << 30;
/// Of a ring that much may be consumed before its reader says so.
constexpr std::size_t untold_bytes_max(std::size_t ring_bytes) { return ring_bytes / 8; }

/// In FrameHeader::reserved while a record is in a ring; 0 again when it leaves it. Of a skip,
/// `payload_bytes` is what follows its header, a multiple of kLine; with checksums `total_bytes` is
/// its own; the rest means nothing.
enum class RecordKind : std::uint16_t { kWhole = 1, kLent, kSkip };

/// Where a lent payload lies: its address at the sender and one key per rail of the sender.
struct Source {
  std::uint64_t address = 0;
  std::array<std::uint32_t, kRailsMax> keys{};
};

/// The first two lines of a lent record and, with checksums, of a whole one, whose source is empty.
struct RecordHead {
  FrameHeader header;
  Source source;
  FrameSums sums;  ///< with checksums
  std::array<std::byte, kLine - sizeof(Source) - sizeof(FrameSums)> unused{};
};
// Its bytes are summed, so none may be padding.
static_assert(sizeof(RecordHead) == 2 * kLine &&
              std::has_unique_object_representations_v<RecordHead>);

constexpr std::size_t round_to_lines(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}
/// Of a whole frame's record before its payload.
constexpr std::size_t head_bytes(bool has_sums) {
  return has_sums ? sizeof(RecordHead) : sizeof(FrameHeader);
}
/// Bytes in the ring of a whole frame.
constexpr std::size_t whole_bytes(std::size_t payload, bool has_sums = false) {
  return head_bytes(has_sums) + round_to_lines(payload);
}
inline constexpr std::size_t kLentBytes = sizeof(RecordHead);

/// The whole message that `piece` is the payload of a frame of: a granted message (kData) lies in
/// one stretch, so registering it once serves all its pieces. Else, and where the header's numbers
/// do not fit, the piece alone.
std::span<const std::byte> message_around(const FrameHeader& header,
                                          std::span<const std::byte> piece);

/// A record's size by its header; nothing where no correct peer writes such a one: kinds and
/// classes that do not exist, payloads above kFramePayloadMax, lent ones of no bytes.
std::optional<std::size_t> record_bytes(const FrameHeader& header, bool has_sums = false);

/// The checksum that the head of a record at `position` has, its own apart.
std::uint64_t sum_of(RecordHead head, std::uint64_t position);
std::uint64_t sum_of_skip(FrameHeader header, std::uint64_t position);

/// The 32 bits that go with an RDMA write: two say what, thirty how far, modulo 2^30.
enum class ImmediateKind : std::uint8_t {
  kWritten,   ///< the ring holds records up to this position (in lines)
  kConsumed,  ///< the writer of this side's ring may reuse it up to this position (in lines)
  kRead,      ///< that many lent payloads have been read or dropped
};
inline constexpr int kImmediateBits = 30;
inline constexpr std::uint64_t kImmediateMask = (std::uint64_t{1} << kImmediateBits) - 1;
struct Immediate {
  ImmediateKind kind = ImmediateKind::kWritten;
  std::uint32_t value = 0;
};
std::uint32_t encode(ImmediateKind kind, std::uint64_t count);
/// Nothing where the kind does not exist.
std::optional<Immediate> decode_immediate(std::uint32_t bits);
/// The smallest count that is at least `known` and of which encode() keeps `value`. A `value` from
/// before `known` yields a count far ahead, so callers bound what they accept by at most 2^29.
std::uint64_t extend(std::uint64_t known, std::uint32_t value);

}  // namespace unisono::verbs
