// XXH3 over headers and payloads. See frame_sums.h.
#include "transports/tcp/frame_sums.h"

#include <fmt/format.h>

// Compiled in: no other library is needed where this one runs.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace unisono::tcp {
namespace {

std::uint64_t sum_of_head(const FrameHeader& header, std::uint64_t payload, std::uint64_t number) {
  const FrameHead head{header, {0, payload}};
  return XXH3_64bits_withSeed(&head, sizeof head, number);
}

std::string call_text(const FrameHeader& header) {
  return header.frame_class == FrameClass::kPointToPoint
             ? fmt::format("a message of tag {}", header.index)
             : describe(header.record, header.sequence);
}

}  // namespace

FrameSums sums_of(const FrameHeader& header, std::span<const std::byte> payload,
                  std::uint64_t number) {
  const std::uint64_t sum = XXH3_64bits(payload.data(), payload.size());
  return {sum_of_head(header, sum, number), sum};
}

struct SumCheck::State {
  XXH3_state_t hash;
};

SumCheck::SumCheck(Rank peer) : peer_(peer), state_(std::make_unique<State>()) {}
SumCheck::~SumCheck() = default;

Status SumCheck::begin(const FrameHeader& header, const FrameSums& sums) {
  const std::uint64_t number = number_++;
  const std::uint64_t found = sum_of_head(header, sums.payload, number);
  if (found != sums.header) {
    return {ErrorCode::kCorrupted,
            fmt::format("frame {} from rank {} changed on its way: the checksum of its header is "
                        "{:016x}, and rank {} sent {:016x}; or frames before it are lost",
                        number, peer_, found, peer_, sums.header),
            peer_};
  }
  expected_ = sums.payload;
  XXH3_64bits_reset(&state_->hash);
  return {};
}

void SumCheck::add(std::span<const std::byte> piece) {
  XXH3_64bits_update(&state_->hash, piece.data(), piece.size());
}

Status SumCheck::end(const FrameHeader& header) const {
  const std::uint64_t found = XXH3_64bits_digest(&state_->hash);
  if (found == expected_) return {};
  return {ErrorCode::kCorrupted,
          fmt::format("{} bytes of {} from rank {} changed on their way: their checksum is "
                      "{:016x}, and rank {} sent {:016x}",
                      header.payload_bytes, call_text(header), peer_, found, peer_, expected_),
          peer_};
}

}  // namespace unisono::tcp
