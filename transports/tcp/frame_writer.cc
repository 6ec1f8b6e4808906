// Queueing and gathering. See frame_writer.h.
#include "transports/tcp/frame_writer.h"

#include "base/assert.h"

namespace unisono::tcp {

void FrameWriter::push(const FrameHeader& header, std::span<const std::byte> payload,
                       std::uint64_t token, std::size_t sent) {
  UNISONO_ASSERT(count_ < kPlaces, "who posts asks full() first");
  Pending& frame = at(count_++);
  frame = {header, payload, token, sent, !payload.empty()};
  queued_bytes_ += frame.bytes() - sent;
}

void FrameWriter::cancel(std::uint64_t token) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    Pending frame = at(i);
    if (frame.lent && frame.token == token) {
      if (frame.sent == 0) {
        queued_bytes_ -= frame.bytes();
        continue;
      }
      // Only the first frame can have begun, so one copy is enough at any time.
      copy_.assign(frame.payload.begin(), frame.payload.end());
      frame.payload = copy_;
      frame.lent = false;
    }
    at(kept++) = frame;
  }
  count_ = kept;
}

int FrameWriter::gather(std::span<iovec> out, std::size_t bytes_max) const {
  std::size_t used = 0, bytes = 0;
  for (std::size_t i = 0; i < count_ && bytes < bytes_max && used + 2 <= out.size(); ++i) {
    const Pending& frame = at(i);
    std::size_t payload_sent = 0;
    if (frame.sent < sizeof frame.header) {
      const auto* start = reinterpret_cast<const std::byte*>(&frame.header) + frame.sent;
      out[used++] = {const_cast<std::byte*>(start), sizeof frame.header - frame.sent};
      bytes += out[used - 1].iov_len;
    } else {
      payload_sent = frame.sent - sizeof frame.header;
    }
    if (payload_sent < frame.payload.size()) {
      const auto rest = frame.payload.subspan(payload_sent);
      out[used++] = {const_cast<std::byte*>(rest.data()), rest.size()};
      bytes += rest.size();
    }
  }
  return static_cast<int>(used);
}

}  // namespace unisono::tcp
