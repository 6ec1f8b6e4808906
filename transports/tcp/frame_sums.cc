// See frame_sums.h.
#include "transports/tcp/frame_sums.h"

#include <fmt/format.h>

namespace unisono::tcp {
namespace {

std::uint64_t head_sum(const FrameHeader& header, std::uint64_t payload, std::uint64_t number) {
  const FrameHead head{header, {0, payload}};
  return sum_of_head(std::as_bytes(std::span(&head, 1)), number);
}

}  // namespace

FrameSums sums_of(const FrameHeader& header, std::span<const std::byte> payload,
                  std::uint64_t number) {
  const std::uint64_t sum = sum_of_payload(payload);
  return {head_sum(header, sum, number), sum};
}

Status SumCheck::begin(const FrameHeader& header, const FrameSums& sums) {
  const std::uint64_t number = number_++;
  const std::uint64_t found = head_sum(header, sums.payload, number);
  if (found != sums.header) {
    return head_changed(peer_, fmt::format("frame {}", number), found, sums.header);
  }
  expected_ = sums.payload;
  payload_.reset();
  return {};
}

Status SumCheck::end(const FrameHeader& header) const {
  const std::uint64_t found = payload_.value();
  return found == expected_ ? Status() : payload_changed(peer_, header, found, expected_);
}

}  // namespace unisono::tcp
