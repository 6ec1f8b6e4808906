// See side_channel.h.
#include "transports/verbs/side_channel.h"

#include <algorithm>
#include <new>
#include <utility>

namespace unisono::verbs {

void SideChannel::send(Rank peer, std::string message) {
  outgoing_.push_back(std::make_unique<Outgoing>(Outgoing{peer, std::move(message)}));
  try {
    post_waiting();
  } catch (const std::bad_alloc&) {
    // A later poll posts it.
  }
}

// Messages to one peer keep their order; another peer's do not wait for them.
bool SideChannel::post_waiting() {
  bool moved = false;
  std::vector<Rank> full;
  for (std::size_t i = 0; i < outgoing_.size();) {
    Outgoing& message = *outgoing_[i];
    if (message.posted || std::find(full.begin(), full.end(), message.peer) != full.end()) {
      ++i;
      continue;
    }
    FrameHeader header;
    header.kind = FrameKind::kTransport;
    header.payload_bytes = static_cast<std::uint32_t>(message.bytes.size());
    header.total_bytes = message.bytes.size();
    const PostResult result = transport_->endpoint(message.peer)
                                  .post_send(header, std::as_bytes(std::span(message.bytes)),
                                             reinterpret_cast<std::uint64_t>(&message));
    if (result == PostResult::kFull) {
      full.push_back(message.peer);
      ++i;
      continue;
    }
    moved = true;
    message.posted = true;
    if (result == PostResult::kDone) {
      outgoing_.erase(outgoing_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return moved;
}

bool SideChannel::poll(FrameSink& sink) {
  bool moved = !outgoing_.empty() && post_waiting();
  sink_ = &sink;
  moved |= transport_->poll(*this);
  return moved;
}

void SideChannel::give_up(Rank peer, FrameSink& sink) {
  sink_ = &sink;
  transport_->give_up(peer, *this);
  std::erase_if(outgoing_, [&](const auto& message) { return message->peer == peer; });
}

void SideChannel::close(TimePoint deadline, FrameSink& sink) {
  sink_ = &sink;
  transport_->close(deadline, *this);
}

// The transport beside is in the midst of its work here, which nothing may end.
template <typename Work>
void SideChannel::handle(Rank peer, const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    events_.no_memory(peer);
  }
}

Placement SideChannel::place(Rank peer, const FrameHeader& header) {
  if (header.kind != FrameKind::kTransport) {
    if (events_.carries_frames(peer)) return sink_->place(peer, header);
    return {};
  }
  if (header.payload_bytes > kLinkMessageBytesMax) return {};
  Placement placement;
  handle(peer, [&] {
    std::vector<std::byte> memory(header.payload_bytes);
    const auto kept = arriving_.insert_or_assign(peer, std::move(memory)).first;
    placement = {Placement::Kind::kInto, kept->second.data()};
  });
  return placement;
}

void SideChannel::deliver(Rank peer, const FrameHeader& header, std::size_t offset,
                          std::span<const std::byte> piece) {
  sink_->deliver(peer, header, offset, piece);
}

void SideChannel::received(Rank peer, const FrameHeader& header) {
  if (header.kind != FrameKind::kTransport && events_.carries_frames(peer)) {
    return sink_->received(peer, header);
  }
  handle(peer, [&] { take_message(peer, header); });
}

void SideChannel::take_message(Rank peer, const FrameHeader& header) {
  if (header.kind != FrameKind::kTransport || header.payload_bytes > kLinkMessageBytesMax) {
    return events_.stray_frame(peer);
  }
  const auto arrived = arriving_.extract(peer);
  if (arrived.empty()) return;  // there was no memory for it
  const std::vector<std::byte>& bytes = arrived.mapped();
  events_.message(peer, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void SideChannel::sent(Rank peer, std::uint64_t token) {
  const auto own = std::find_if(outgoing_.begin(), outgoing_.end(), [&](const auto& message) {
    return reinterpret_cast<std::uint64_t>(message.get()) == token;
  });
  if (own == outgoing_.end()) return sink_->sent(peer, token);
  outgoing_.erase(own);
}

void SideChannel::closed(Rank peer, const Status& cause) {
  std::erase_if(outgoing_, [&](const auto& message) { return message->peer == peer; });
  if (events_.carries_frames(peer)) return sink_->closed(peer, cause);
  handle(peer, [&] { events_.side_closed(peer, cause); });
}

}  // namespace unisono::verbs
