// Queueing and gathering. See frame_writer.h.
#include "transports/tcp/frame_writer.h"

#include <new>
#include <utility>

#include "base/assert.h"

namespace unisono::tcp {

void FrameWriter::push(const FrameHeader& header, std::span<const std::byte> payload,
                       std::uint64_t token, std::size_t sent, const FrameSums* sums) {
  UNISONO_ASSERT(count_ < kPlaces, "who posts asks full() first");
  Pending& frame = at(count_++);
  frame.head.header = header;
  if (sums != nullptr) frame.head.sums = *sums;
  frame.payload = payload;
  frame.token = token;
  frame.sent = sent;
  frame.lent = !payload.empty();
  frame.summed = sums != nullptr;
  queued_bytes_ += bytes_of(frame) - sent;
}

void FrameWriter::move_first_to(FrameWriter* to) {
  UNISONO_ASSERT(count_ > 0 && at(0).sent == 0 && !at(0).summed && at(0).copy.empty(),
                 "a frame that has not begun moves");
  const Pending& frame = at(0);
  to->push(frame.head.header, frame.payload, frame.token);
  queued_bytes_ -= bytes_of(frame);
  first_ = (first_ + 1) % kPlaces;
  --count_;
}

bool FrameWriter::take_copy(Pending* frame) {
  frame->lent = false;
  try {
    frame->copy.assign(frame->payload.begin(), frame->payload.end());
  } catch (const std::bad_alloc&) {
    frame->payload = {};
    return false;
  }
  frame->payload = frame->copy;
  return true;
}

bool FrameWriter::cancel(std::uint64_t token) {
  bool are_copied = true;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    Pending& frame = at(i);
    // Fewer frames may go before it now.
    if (frame.summed && frame.sent == 0) {
      frame.summed = false;
      --number_;
    }
    if (frame.lent && frame.token == token) {
      if (frame.sent == 0 && frame.head.header.kind != FrameKind::kEager) {
        queued_bytes_ -= bytes_of(frame);
        continue;
      }
      are_copied = take_copy(&frame) && are_copied;
    }
    if (kept != i) at(kept) = std::move(frame);
    ++kept;
  }
  count_ = kept;
  return are_copied;
}

// Sums as late as can be: the payload is read once more right after.
void FrameWriter::sum_up(Pending* frame) {
  if (frame->summed) return;
  frame->summed = true;
  frame->head.sums = next_sums(frame->head.header, frame->payload);
}

int FrameWriter::gather(std::span<iovec> out, std::size_t bytes_max) {
  std::size_t used = 0, bytes = 0;
  for (std::size_t i = 0; i < count_ && bytes < bytes_max && used + 2 <= out.size(); ++i) {
    Pending& frame = at(i);
    if (has_sums()) sum_up(&frame);
    std::size_t payload_sent = 0;
    if (frame.sent < head_bytes_) {
      out[used++] = {reinterpret_cast<std::byte*>(&frame.head) + frame.sent,
                     head_bytes_ - frame.sent};
      bytes += out[used - 1].iov_len;
    } else {
      payload_sent = frame.sent - head_bytes_;
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
