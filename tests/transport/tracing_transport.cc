// Counting around another transport. Owned by one rank's engine, on its thread.
#include "tests/transport/tracing_transport.h"

#include <optional>
#include <utility>

namespace unisono {

class TracingTransport::TracedEndpoint final : public Endpoint {
 public:
  TracedEndpoint(TracingTransport& owner, Rank peer, PeerTraffic& traffic, Endpoint& inner)
      : owner_(owner), peer_(peer), traffic_(traffic), inner_(inner) {}

  std::size_t frame_bytes(const FrameHeader& header, std::span<const std::byte> rest) override {
    return inner_.frame_bytes(header, rest);
  }

  PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                       std::uint64_t token) override {
    const PostResult result = inner_.post_send(header, payload, token);
    if (result == PostResult::kFull) {
      ++traffic_.posts_refused;
      owner_.tell({TraceEvent::Kind::kRefused, peer_, &header, token});
      return result;
    }
    ++traffic_.frames_posted;
    traffic_.bytes_posted += payload.size();
    if (result == PostResult::kPending) ++traffic_.posts_pending;
    owner_.tell({TraceEvent::Kind::kPosted, peer_, &header, token});
    return result;
  }

  void cancel(std::uint64_t token) override {
    ++traffic_.cancelled;
    inner_.cancel(token);
  }

  void abandon(const std::byte* begin, std::size_t bytes) override { inner_.abandon(begin, bytes); }

 private:
  TracingTransport& owner_;
  Rank peer_;
  PeerTraffic& traffic_;
  Endpoint& inner_;
};

struct TracingTransport::Peer {
  PeerTraffic traffic;
  std::optional<TracedEndpoint> endpoint;
};

class TracingTransport::TracedSink final : public FrameSink {
 public:
  TracedSink(TracingTransport& owner, FrameSink& sink) : owner_(owner), sink_(sink) {}

  Placement place(Rank peer, const FrameHeader& header) override {
    return sink_.place(peer, header);
  }
  void deliver(Rank peer, const FrameHeader& header, std::size_t offset,
               std::span<const std::byte> piece) override {
    ++owner_.peer_state(peer).traffic.pieces_delivered;
    sink_.deliver(peer, header, offset, piece);
  }
  void received(Rank peer, const FrameHeader& header) override {
    PeerTraffic& traffic = owner_.peer_state(peer).traffic;
    ++traffic.frames_received;
    traffic.bytes_received += header.payload_bytes;
    owner_.tell({TraceEvent::Kind::kReceived, peer, &header, 0});
    sink_.received(peer, header);
  }
  void sent(Rank peer, std::uint64_t token) override {
    ++owner_.peer_state(peer).traffic.tokens_returned;
    owner_.tell({TraceEvent::Kind::kSent, peer, nullptr, token});
    sink_.sent(peer, token);
  }
  void closed(Rank peer, const Status& cause) override {
    owner_.peer_state(peer).traffic.closed = true;
    owner_.tell({TraceEvent::Kind::kClosed, peer, nullptr, 0});
    sink_.closed(peer, cause);
  }

 private:
  TracingTransport& owner_;
  FrameSink& sink_;
};

TracingTransport::TracingTransport(std::unique_ptr<Transport> inner, Callback callback)
    : inner_(std::move(inner)),
      callback_(std::move(callback)),
      name_("tracing(" + std::string(inner_->name()) + ")") {}

TracingTransport::~TracingTransport() = default;

TracingTransport::Peer& TracingTransport::peer_state(Rank peer) {
  std::unique_ptr<Peer>& state = peers_[peer];
  if (!state) state = std::make_unique<Peer>();
  return *state;
}

Endpoint& TracingTransport::endpoint(Rank peer) {
  Endpoint& inner = inner_->endpoint(peer);
  Peer& state = peer_state(peer);
  if (!state.endpoint) state.endpoint.emplace(*this, peer, state.traffic, inner);
  return *state.endpoint;
}

bool TracingTransport::poll(FrameSink& sink) {
  TracedSink traced(*this, sink);
  return inner_->poll(traced);
}

void TracingTransport::close(TimePoint deadline, FrameSink& sink) {
  TracedSink traced(*this, sink);
  inner_->close(deadline, traced);
}

PeerTraffic TracingTransport::traffic(Rank peer) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? PeerTraffic() : found->second->traffic;
}

}  // namespace unisono
