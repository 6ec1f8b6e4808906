// The stream transport beside the queue pairs: carries the messages of links, and every frame of
// peers that verbs cannot reach. Stands between it and the engine's sink. Owned by VerbsTransport,
// used by its thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transports/transport.h"
#include "transports/verbs/hello.h"

namespace unisono::verbs {

/// What happens while SideChannel::poll() runs. The owner implements it.
class SideChannelEvents {
 public:
  virtual ~SideChannelEvents() = default;
  /// Whether frames of this peer other than link messages are the engine's.
  virtual bool carries_frames(Rank peer) const = 0;
  virtual void message(Rank peer, std::string_view bytes) = 0;
  /// The peer said goodbye (ok) or its connection broke.
  virtual void side_closed(Rank peer, const Status& cause) = 0;
  /// The peer sent over the side channel what does not belong there.
  virtual void stray_frame(Rank peer) = 0;
  /// This rank had no memory for what the peer sent, or for what follows from it: it is lost.
  /// Throws nothing.
  virtual void no_memory(Rank peer) = 0;
};

class SideChannel final : private FrameSink {
 public:
  SideChannel(std::unique_ptr<Transport> transport, SideChannelEvents& events)
      : transport_(std::move(transport)), events_(events) {}

  Transport& transport() { return *transport_; }
  const Transport& transport() const { return *transport_; }
  /// Goes out in order, with poll() where it cannot at once. Throws only where it does not go out.
  void send(Rank peer, std::string message);
  bool poll(FrameSink& sink);
  /// Messages of links that have not gone whole. Frames of the engine's are not counted: only links
  /// without queue pairs have any, and ask for poll() themselves.
  bool has_messages() const { return !outgoing_.empty(); }
  bool has_unsent() const { return has_messages() || transport_->has_unsent(); }
  /// As Transport::give_up().
  void give_up(Rank peer, FrameSink& sink);
  void close(TimePoint deadline, FrameSink& sink);

 private:
  Placement place(Rank peer, const FrameHeader& header) override;
  void deliver(Rank peer, const FrameHeader& header, std::size_t offset,
               std::span<const std::byte> piece) override;
  void received(Rank peer, const FrameHeader& header) override;
  void sent(Rank peer, std::uint64_t token) override;
  void closed(Rank peer, const Status& cause) override;

  /// A message on its way out. Its address is its token.
  struct Outgoing {
    Rank peer;
    std::string bytes;
    bool posted = false;
  };
  bool post_waiting();
  template <typename Work>
  void handle(Rank peer, const Work& work);
  void take_message(Rank peer, const FrameHeader& header);

  std::unique_ptr<Transport> transport_;
  SideChannelEvents& events_;
  FrameSink* sink_ = nullptr;  ///< the engine's, while polling
  std::deque<std::unique_ptr<Outgoing>> outgoing_;
  std::map<Rank, std::vector<std::byte>> arriving_;
};

}  // namespace unisono::verbs
