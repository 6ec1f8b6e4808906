// See send_ring.h.
#include "transports/verbs/send_ring.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/direct_memory.h"

namespace unisono::verbs {
namespace {

void write_header(std::byte* line, FrameHeader header, RecordKind kind) {
  header.reserved = static_cast<std::uint16_t>(kind);
  std::memcpy(line, &header, sizeof header);
}

void write_skip(std::byte* line, std::size_t record_bytes) {
  FrameHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(record_bytes - sizeof header);
  write_header(line, header, RecordKind::kSkip);
}

// Of the sender's own copy, which no peer can write to.
FrameHeader header_at(const std::byte* line) {
  FrameHeader header;
  std::memcpy(&header, line, sizeof header);
  return header;
}

}  // namespace

SendRing::SendRing(std::span<std::byte> memory) : memory_(memory) {
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

std::byte* SendRing::reserve(std::size_t record_bytes) {
  UNISONO_ASSERT(could_hold(memory_.size(), record_bytes), "a record that may never fit");
  if (!has_room(record_bytes)) return nullptr;
  const std::size_t skipped = skip_before(record_bytes);
  if (skipped > 0) write_skip(at(appended_), skipped);
  std::byte* const begin = at(appended_ + skipped);
  appended_ += skipped + record_bytes;
  return begin;
}

bool SendRing::append_whole(const FrameHeader& header, std::span<const std::byte> payload) {
  UNISONO_ASSERT(header.payload_bytes == payload.size() && payload.size() <= kFramePayloadMax,
                 "a frame whose payload has another size");
  std::byte* const begin = reserve(whole_bytes(payload.size()));
  if (begin == nullptr) return false;
  write_header(begin, header, RecordKind::kWhole);
  if (!payload.empty()) copy_bytes(begin + sizeof header, payload.data(), payload.size());
  return true;
}

std::optional<std::uint64_t> SendRing::append_lent(const FrameHeader& header,
                                                   const Source& source) {
  UNISONO_ASSERT(header.payload_bytes > 0 && header.payload_bytes <= kFramePayloadMax,
                 "a payload of this size cannot be lent");
  std::byte* const begin = reserve(kLentBytes);
  if (begin == nullptr) return std::nullopt;
  write_header(begin, header, RecordKind::kLent);
  std::memcpy(begin + sizeof header, &source, sizeof source);
  return appended_ - kLentBytes;
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
  std::byte* const begin = at(position);
  UNISONO_ASSERT(header_at(begin).reserved == static_cast<std::uint16_t>(RecordKind::kLent),
                 "no lent record begins here");
  std::memcpy(begin + sizeof(FrameHeader), &source, sizeof source);
}

}  // namespace unisono::verbs
