// See send_ring.h.
#include "transports/verbs/send_ring.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/direct_memory.h"

namespace unisono::verbs {
namespace {

FrameHeader header_of(FrameHeader header, RecordKind kind) {
  header.reserved = static_cast<std::uint16_t>(kind);
  return header;
}

}  // namespace

SendRing::SendRing(std::span<std::byte> memory, bool has_sums)
    : memory_(memory), has_sums_(has_sums) {
  UNISONO_ASSERT(memory.size() % kLine == 0 && memory.size() >= kRingBytesMin &&
                     memory.size() <= kRingBytesMax,
                 "a ring of this size is not possible");
}

bool SendRing::has_room(std::size_t record_bytes) const {
  return appended_ - consumed_ + skip_before(record_bytes) + record_bytes <= memory_.size();
}

// Records never cross the ring's end, so the receiver and its device see each in one piece.
std::size_t SendRing::skip_before(std::size_t record_bytes) const {
  const std::size_t until_end = memory_.size() - appended_ % memory_.size();
  return record_bytes > until_end ? until_end : 0;
}

void SendRing::write_skip(std::size_t record_bytes) {
  FrameHeader header = header_of({}, RecordKind::kSkip);
  header.payload_bytes = static_cast<std::uint32_t>(record_bytes - sizeof header);
  if (has_sums_) header.total_bytes = sum_of_skip(header, appended_);
  std::memcpy(at(appended_), &header, sizeof header);
}

std::byte* SendRing::reserve(std::size_t record_bytes) {
  UNISONO_ASSERT(could_hold(memory_.size(), record_bytes), "a record that may never fit");
  if (!has_room(record_bytes)) return nullptr;
  const std::size_t skipped = skip_before(record_bytes);
  if (skipped > 0) write_skip(skipped);
  std::byte* const begin = at(appended_ + skipped);
  appended_ += skipped + record_bytes;
  return begin;
}

bool SendRing::append_whole(const FrameHeader& header, std::span<const std::byte> payload) {
  UNISONO_ASSERT(header.payload_bytes == payload.size() && payload.size() <= kFramePayloadMax,
                 "a frame whose payload has another size");
  const std::size_t bytes = whole_bytes(payload.size(), has_sums_);
  std::byte* const begin = reserve(bytes);
  if (begin == nullptr) return false;
  const FrameHeader whole = header_of(header, RecordKind::kWhole);
  if (has_sums_) {
    write_head(appended_ - bytes, {whole, {}, {0, sum_of_payload(payload)}});
  } else {
    std::memcpy(begin, &whole, sizeof whole);
  }
  if (!payload.empty()) copy_bytes(begin + head_bytes(has_sums_), payload.data(), payload.size());
  return true;
}

void SendRing::write_head(std::uint64_t position, RecordHead head) {
  if (has_sums_) head.sums.header = sum_of(head, position);
  std::memcpy(at(position), &head, sizeof head);
}

std::optional<std::uint64_t> SendRing::append_lent(const FrameHeader& header, const Source& source,
                                                   std::uint64_t payload_sum) {
  UNISONO_ASSERT(header.payload_bytes > 0 && header.payload_bytes <= kFramePayloadMax,
                 "a payload of this size cannot be lent");
  if (reserve(kLentBytes) == nullptr) return std::nullopt;
  const std::uint64_t position = appended_ - kLentBytes;
  write_head(position, {header_of(header, RecordKind::kLent), source, {0, payload_sum}});
  return position;
}

SendRing::Piece SendRing::next_piece(std::size_t bytes_max) const {
  UNISONO_ASSERT(bytes_max >= kLine, "a piece holds a line at least");
  Piece piece;
  piece.offset = posted_ % memory_.size();
  // A piece that wraps would be two writes.
  piece.bytes = std::min({static_cast<std::size_t>(appended_ - posted_),
                          memory_.size() - piece.offset, bytes_max / kLine * kLine});
  piece.end = posted_ + piece.bytes;
  return piece;
}

bool SendRing::consumed(std::uint64_t position) {
  if (position % kLine != 0 || position < consumed_ || position > posted_) return false;
  consumed_ = position;
  return true;
}

bool SendRing::rewind(std::uint64_t position) {
  if (!consumed(position)) return false;
  posted_ = position;
  return true;
}

void SendRing::move_source(std::uint64_t position, const Source& source) {
  if (position < consumed_) return;
  UNISONO_ASSERT(position < appended_ && position % kLine == 0, "no record begins here");
  // It is read from this end's own copy, which no peer can write to.
  RecordHead head;
  std::memcpy(&head, at(position), sizeof head);
  UNISONO_ASSERT(head.header.reserved == static_cast<std::uint16_t>(RecordKind::kLent),
                 "no lent record begins here");
  head.source = source;
  write_head(position, head);
}

}  // namespace unisono::verbs
