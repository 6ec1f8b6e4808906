// A transport that counts what another one moves, per peer, and may tell a callback of each frame.
// For tests and for looking at a run; it changes nothing of what the inner transport does.
//
// Thread rule: that of Transport; the counters are read on the same thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace unisono {

struct TraceEvent {
  enum class Kind : std::uint8_t { kPosted, kRefused, kSent, kReceived, kClosed };
  Kind kind = Kind::kPosted;
  Rank peer = -1;
  const FrameHeader* header = nullptr;  ///< of kPosted, kRefused and kReceived; else null
  std::uint64_t token = 0;              ///< of kPosted, kRefused and kSent
};

struct PeerTraffic {
  std::uint64_t frames_posted = 0;  ///< taken, whether captured or pending
  std::uint64_t bytes_posted = 0;   ///< payload of those
  std::uint64_t posts_pending = 0;  ///< of the frames posted, answered kPending
  std::uint64_t posts_refused = 0;  ///< answered kFull
  std::uint64_t tokens_returned = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t pieces_delivered = 0;
  bool closed = false;
};

class TracingTransport final : public Transport {
 public:
  using Callback = std::function<void(const TraceEvent&)>;

  explicit TracingTransport(std::unique_ptr<Transport> inner, Callback callback = nullptr);
  ~TracingTransport() override;

  std::string_view name() const override { return name_; }
  EndpointTraits traits() const override { return inner_->traits(); }
  EndpointTraits traits_to(Rank peer) const override { return inner_->traits_to(peer); }
  std::string address() const override { return inner_->address(); }
  Status set_peers(std::vector<std::string> addresses) override {
    return inner_->set_peers(std::move(addresses));
  }
  Endpoint& endpoint(Rank peer) override;
  bool poll(FrameSink& sink) override;
  bool has_unsent() const override { return inner_->has_unsent(); }
  void give_up(Rank peer, FrameSink& sink) override { inner_->give_up(peer, sink); }
  void close(TimePoint deadline, FrameSink& sink) override;

  /// All zero for a peer that has not been heard of.
  PeerTraffic traffic(Rank peer) const;

 private:
  class TracedEndpoint;
  class TracedSink;
  struct Peer;

  Peer& peer_state(Rank peer);
  void tell(const TraceEvent& event) const {
    if (callback_) callback_(event);
  }

  std::unique_ptr<Transport> inner_;
  Callback callback_;
  std::string name_;
  std::map<Rank, std::unique_ptr<Peer>> peers_;
};

}  // namespace unisono
