// See record.h.
#include "transports/verbs/record.h"

namespace unisono::verbs {
namespace {

bool is_frame(const FrameHeader& header) {
  return header.kind >= FrameKind::kEager && header.kind <= FrameKind::kLeft &&
         (header.frame_class == FrameClass::kCollective ||
          header.frame_class == FrameClass::kPointToPoint);
}

}  // namespace

std::span<const std::byte> message_around(const FrameHeader& header,
                                          std::span<const std::byte> piece) {
  if (header.kind != FrameKind::kData || header.offset > header.total_bytes ||
      piece.size() > header.total_bytes - header.offset) {
    return piece;
  }
  return {piece.data() - header.offset, header.total_bytes};
}

std::optional<std::size_t> record_bytes(const FrameHeader& header, bool has_sums) {
  if (header.payload_bytes > kFramePayloadMax) return std::nullopt;
  switch (static_cast<RecordKind>(header.reserved)) {
    case RecordKind::kWhole:
      if (!is_frame(header)) return std::nullopt;
      return whole_bytes(header.payload_bytes, has_sums);
    case RecordKind::kLent:
      if (!is_frame(header) || header.payload_bytes == 0) return std::nullopt;
      return kLentBytes;
    case RecordKind::kSkip:
      if (header.payload_bytes % kLine != 0) return std::nullopt;
      return whole_bytes(header.payload_bytes);
  }
  return std::nullopt;
}

std::uint64_t sum_of(RecordHead head, std::uint64_t position) {
  head.sums.header = 0;
  return sum_of_head(std::as_bytes(std::span(&head, 1)), position);
}

std::uint64_t sum_of_skip(FrameHeader header, std::uint64_t position) {
  static_assert(std::has_unique_object_representations_v<FrameHeader>);
  header.total_bytes = 0;
  return sum_of_head(std::as_bytes(std::span(&header, 1)), position);
}

std::uint32_t encode(ImmediateKind kind, std::uint64_t count) {
  return static_cast<std::uint32_t>(kind) << kImmediateBits |
         static_cast<std::uint32_t>(count & kImmediateMask);
}

std::optional<Immediate> decode_immediate(std::uint32_t bits) {
  const std::uint32_t kind = bits >> kImmediateBits;
  if (kind > static_cast<std::uint32_t>(ImmediateKind::kRead)) return std::nullopt;
  return Immediate{static_cast<ImmediateKind>(kind),
                   static_cast<std::uint32_t>(bits & kImmediateMask)};
}

std::uint64_t extend(std::uint64_t known, std::uint32_t value) {
  // The way from `known` to the count, modulo 2^30.
  return known + ((value - known) & kImmediateMask);
}

}  // namespace unisono::verbs
