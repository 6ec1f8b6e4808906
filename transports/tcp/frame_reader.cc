// Parsing and placing. See frame_reader.h.
#include "transports/tcp/frame_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>

#include "base/assert.h"
#include "transports/tcp/link_frames.h"

namespace unisono::tcp {
namespace {

Status check(Rank peer, const FrameHeader& header) {
  const auto kind = static_cast<unsigned>(header.kind);
  const auto frame_class = static_cast<unsigned>(header.frame_class);
  if (header.payload_bytes > kFramePayloadMax) {
    return {ErrorCode::kProtocol,
            fmt::format("rank {} announced a frame of {} bytes; at most {} are allowed", peer,
                        header.payload_bytes, kFramePayloadMax),
            peer};
  }
  if (kind < static_cast<unsigned>(FrameKind::kEager) ||
      kind > static_cast<unsigned>(FrameKind::kTransport) || frame_class < 1 || frame_class > 2) {
    return {ErrorCode::kProtocol,
            fmt::format("rank {} sent a frame of unknown kind {} and class {}", peer, kind,
                        frame_class),
            peer};
  }
  if (header.reserved != 0) {
    return {ErrorCode::kProtocol,
            fmt::format("rank {} sent a frame whose reserved field is {}", peer, header.reserved),
            peer};
  }
  return {};
}

}  // namespace

void FrameReader::FreeAligned::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{kAlignment});
}

FrameReader::FrameReader(Rank peer, Carries carries, bool has_sums)
    : peer_(peer),
      carries_(carries),
      head_bytes_(has_sums ? sizeof(FrameHead) : sizeof(FrameHeader)),
      sums_(has_sums ? std::make_unique<SumCheck>(peer) : nullptr),
      staging_(
          static_cast<std::byte*>(::operator new[](kStagingBytes, std::align_val_t{kAlignment}))) {}

int FrameReader::areas(std::array<iovec, 2>* out) {
  if (in_payload_ && placement_.kind == Placement::Kind::kInto) {
    // parse() has emptied staging into the target before it asks for more.
    (*out)[0] = {placement_.target + payload_done_, payload_rest()};
    (*out)[1] = {staging_.get(), kBehindPayload};
    return 2;
  }
  std::size_t wanted = kSmallBytes;
  if (in_payload_) wanted = payload_rest() - (end_ - begin_) + kBehindPayload;
  (*out)[0] = {staging_.get() + end_, std::min(wanted, kStagingBytes - end_)};
  return 1;
}

Status FrameReader::received(std::size_t bytes, FrameSink& sink) {
  if (in_payload_ && placement_.kind == Placement::Kind::kInto) {
    const std::size_t direct = std::min(bytes, payload_rest());
    note_payload(placement_.target + payload_done_, direct);
    payload_done_ += direct;
    bytes -= direct;
  }
  end_ += bytes;
  return parse(sink);
}

Status FrameReader::take(std::span<const std::byte> bytes, FrameSink& sink) {
  while (!bytes.empty()) {
    std::array<iovec, 2> areas_out;
    areas(&areas_out);
    const std::size_t piece = std::min(bytes.size(), areas_out[0].iov_len);
    std::memcpy(areas_out[0].iov_base, bytes.data(), piece);
    bytes = bytes.subspan(piece);
    UNISONO_TRY(received(piece, sink));
  }
  return {};
}

void FrameReader::abandon(const std::byte* begin, std::size_t bytes) {
  if (!in_payload_ || placement_.kind != Placement::Kind::kInto) return;
  const std::less<const std::byte*> before;
  if (before(placement_.target, begin) || !before(placement_.target, begin + bytes)) return;
  placement_ = {};
}

Status FrameReader::parse(FrameSink& sink) {
  while (true) {
    if (in_payload_) {
      take_payload(sink);
      if (payload_rest() > 0) break;
      if (sums_) UNISONO_TRY(sums_->end(header_));
      in_payload_ = false;
      sink.received(peer_, header_);
    }
    if (end_ - begin_ < head_bytes_) break;
    UNISONO_TRY(begin_frame(sink));
  }
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (!in_payload_ && begin_ > 0) {
    // A cut header moves to the front, so that its payload will be aligned.
    std::memmove(staging_.get(), staging_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return {};
}

Status FrameReader::begin_frame(FrameSink& sink) {
  if (ended_) {
    return {ErrorCode::kProtocol, fmt::format("rank {} sent frames after its goodbye", peer_),
            peer_};
  }
  std::memcpy(&header_, staging_.get() + begin_, sizeof header_);
  if (sums_) {
    FrameSums sums;
    std::memcpy(&sums, staging_.get() + begin_ + sizeof header_, sizeof sums);
    UNISONO_TRY(sums_->begin(header_, sums));
  }
  begin_ += head_bytes_;
  payload_done_ = 0;
  if (header_.kind == kFrameGoodbye) return on_link_frame();
  UNISONO_TRY(check(peer_, header_));
  const bool is_end_of_data = header_.kind == FrameKind::kLeft && header_.payload_bytes == 0;
  if (carries_ == Carries::kDataOnly && header_.kind != FrameKind::kData && !is_end_of_data) {
    return {ErrorCode::kProtocol,
            fmt::format("rank {} sent a frame of kind {} on a stream behind the first, where only "
                        "pieces of granted messages may travel",
                        peer_, static_cast<unsigned>(header_.kind)),
            peer_};
  }
  if (header_.kind == FrameKind::kData) data_bytes_ += header_.payload_bytes;
  placement_ = sink.place(peer_, header_);
  UNISONO_ASSERT(placement_.kind != Placement::Kind::kInto || placement_.target != nullptr ||
                     header_.payload_bytes == 0,
                 "kInto needs a target");
  in_payload_ = true;
  if (placement_.kind == Placement::Kind::kDeliver) align_payload();
  return {};
}

void FrameReader::note_payload(const std::byte* begin, std::size_t bytes) {
  if (sums_) sums_->add({begin, bytes});
}

Status FrameReader::on_link_frame() {
  if (header_.payload_bytes != 0) {
    return {ErrorCode::kProtocol, fmt::format("rank {} sent a goodbye with payload", peer_), peer_};
  }
  ended_ = true;
  ended_streams_ = header_.index;
  return {};
}

// Frames behind one whose size is no multiple of the alignment would be handed over unaligned.
// Room in front is certain: this frame's header lay there.
void FrameReader::align_payload() {
  const std::size_t aligned = begin_ / kAlignment * kAlignment;
  if (aligned == begin_) return;
  std::memmove(staging_.get() + aligned, staging_.get() + begin_, end_ - begin_);
  end_ -= begin_ - aligned;
  begin_ = aligned;
}

void FrameReader::take_payload(FrameSink& sink) {
  const std::size_t available = std::min(end_ - begin_, payload_rest());
  switch (placement_.kind) {
    case Placement::Kind::kInto:
      if (available > 0) {
        std::memcpy(placement_.target + payload_done_, staging_.get() + begin_, available);
      }
      break;
    case Placement::Kind::kDeliver:
      return deliver_staged(available, sink);
    case Placement::Kind::kDiscard:
      break;
  }
  note_payload(staging_.get() + begin_, available);
  begin_ += available;
  payload_done_ += available;
}

void FrameReader::deliver_staged(std::size_t available, FrameSink& sink) {
  // All but the last piece are whole lines: the next one then starts at a multiple too.
  std::size_t piece = available;
  if (piece < payload_rest()) piece = piece / kAlignment * kAlignment;
  if (piece > 0) {
    note_payload(staging_.get() + begin_, piece);
    sink.deliver(peer_, header_, payload_done_, {staging_.get() + begin_, piece});
    begin_ += piece;
    payload_done_ += piece;
  }
  if (payload_rest() == 0 || begin_ == 0) return;
  // What is left is less than a line; it moves to the front, aligned and with room behind it.
  std::memmove(staging_.get(), staging_.get() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
}

}  // namespace unisono::tcp
