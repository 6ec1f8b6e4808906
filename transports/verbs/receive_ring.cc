// See receive_ring.h.
#include "transports/verbs/receive_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/assert.h"

namespace unisono::verbs {
namespace {

// The peer may write here at any time: what is judged must be what is used, so the compiler may not
// go back to the ring for a value once it is copied.
template <typename T>
T copy_out(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return value;
}

}  // namespace

ReceiveRing::ReceiveRing(std::span<const std::byte> memory, std::optional<Rank> summed_by)
    : memory_(memory), summed_by_(summed_by) {
  UNISONO_ASSERT(memory.size() % kLine == 0 && memory.size() >= kRingBytesMin &&
                     memory.size() <= kRingBytesMax,
                 "a ring of this size is not possible");
}

Status ReceiveRing::written(std::uint32_t value) {
  // Of what is had already, or else far behind, which is what something new looks like.
  const std::uint64_t behind = ((written_ / kLine - value) & kImmediateMask) * kLine;
  const bool may_be_had = behind > 0 && behind <= std::min<std::uint64_t>(written_, memory_.size());
  if (may_be_had && written_ - behind < had_) return {};
  return written_up_to(extend(written_ / kLine, value) * kLine);
}

Status ReceiveRing::check_position(std::uint64_t position) const {
  if (may_be_written_up_to(position)) return {};
  return {ErrorCode::kProtocol,
          fmt::format("it says that {} bytes of the ring are to be read; there may be 0 to {}",
                      position - consumed_, memory_.size())};
}

Status ReceiveRing::written_up_to(std::uint64_t position) {
  UNISONO_TRY(check_position(position));
  written_ = position;
  return {};
}

Result<bool> ReceiveRing::check_head(std::size_t offset, RecordHead* head) {
  if (checked_at_ == consumed_) {
    *head = checked_;
    return true;
  }
  const FrameHeader header = head->header;
  // A header that changed looks like anything; whatever that is has a sum that must fit.
  const bool is_skip = header.reserved == static_cast<std::uint16_t>(RecordKind::kSkip) ||
                       memory_.size() - offset < sizeof(RecordHead);
  std::uint64_t sent = header.total_bytes;
  std::uint64_t found = 0;
  if (is_skip) {
    found = sum_of_skip(header, consumed_);
  } else {
    if (written_ - consumed_ < sizeof(RecordHead)) return false;
    *head = copy_out<RecordHead>(&memory_[offset]);
    head->header = header;
    sent = head->sums.header;
    found = sum_of(*head, consumed_);
  }
  if (found != sent) {
    return head_changed(*summed_by_, fmt::format("the record at position {}", consumed_), found,
                        sent);
  }
  checked_ = *head;
  checked_at_ = consumed_;
  return true;
}

Result<bool> ReceiveRing::peek(Record* record) {
  record_bytes_ = 0;
  while (consumed_ < written_) {
    // Positions are whole lines, so the header has been written where anything has.
    const std::size_t offset = consumed_ % memory_.size();
    RecordHead head;
    head.header = copy_out<FrameHeader>(&memory_[offset]);
    if (summed_by_.has_value()) {
      UNISONO_ASSIGN(const bool is_written, check_head(offset, &head));
      if (!is_written) return false;
    }
    const FrameHeader& header = head.header;
    const std::optional<std::size_t> bytes = record_bytes(header, summed_by_.has_value());
    if (!bytes.has_value() || *bytes > memory_.size() - offset) {
      return Status(
          ErrorCode::kProtocol,
          fmt::format("at byte {} of {} the ring holds a record of kind {} (frame kind "
                      "{}, class {}, {} payload bytes), which no correct peer writes",
                      offset, memory_.size(), header.reserved, static_cast<unsigned>(header.kind),
                      static_cast<unsigned>(header.frame_class), header.payload_bytes));
    }
    if (*bytes > written_ - consumed_) return false;
    const auto kind = static_cast<RecordKind>(header.reserved);
    if (kind == RecordKind::kSkip) {
      consumed_ += *bytes;
      continue;
    }
    const std::span<const std::byte> body = memory_.subspan(offset, *bytes);
    *record = {header, kind, {}, head.source, head.sums.payload};
    record->header.reserved = 0;
    if (kind == RecordKind::kWhole) {
      const std::size_t before = head_bytes(summed_by_.has_value());
      record->payload = body.subspan(before, header.payload_bytes);
    } else if (!summed_by_.has_value()) {
      record->source = copy_out<Source>(&body[sizeof header]);
    }
    record_bytes_ = *bytes;
    return true;
  }
  return false;
}

void ReceiveRing::pop() {
  UNISONO_ASSERT(record_bytes_ > 0, "pop() without a record from peek()");
  consumed_ += record_bytes_;
  if (consumed_ > written_) written_ = had_ = consumed_;
  record_bytes_ = 0;
}

}  // namespace unisono::verbs
