// XXH3 over heads and payloads. See checksum.h.
#include "transports/checksum.h"

#include <fmt/format.h>

// Compiled in: no other library is needed where this one runs.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace unisono {
namespace {

std::string call_text(const FrameHeader& header) {
  return header.frame_class == FrameClass::kPointToPoint
             ? fmt::format("a message of tag {}", header.index)
             : describe(header.record, header.sequence);
}

}  // namespace

std::uint64_t sum_of_payload(std::span<const std::byte> payload) {
  return XXH3_64bits(payload.data(), payload.size());
}

std::uint64_t sum_of_head(std::span<const std::byte> head, std::uint64_t place) {
  return XXH3_64bits_withSeed(head.data(), head.size(), place);
}

struct PayloadSum::State {
  XXH3_state_t hash;
};

PayloadSum::PayloadSum() : state_(std::make_unique<State>()) { reset(); }
PayloadSum::~PayloadSum() = default;

void PayloadSum::reset() { XXH3_64bits_reset(&state_->hash); }

void PayloadSum::add(std::span<const std::byte> piece) {
  XXH3_64bits_update(&state_->hash, piece.data(), piece.size());
}

std::uint64_t PayloadSum::value() const { return XXH3_64bits_digest(&state_->hash); }

Status head_changed(Rank peer, std::string_view frame, std::uint64_t found, std::uint64_t sent) {
  return {ErrorCode::kCorrupted,
          fmt::format("{} from rank {} changed on its way: the checksum of its header is {:016x}, "
                      "and rank {} sent {:016x}; or frames before it are lost",
                      frame, peer, found, peer, sent),
          peer};
}

Status payload_changed(Rank peer, const FrameHeader& header, std::uint64_t found,
                       std::uint64_t sent) {
  return {ErrorCode::kCorrupted,
          fmt::format("{} bytes of {} from rank {} changed on their way: their checksum is "
                      "{:016x}, and rank {} sent {:016x}",
                      header.payload_bytes, call_text(header), peer, found, peer, sent),
          peer};
}

}  // namespace unisono
