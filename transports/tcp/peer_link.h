// Everything between this rank and one peer: its streams, which of them a frame takes, and when the
// link counts as standing, leaving or ended. Owned by StreamTransport, used by its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "transports/tcp/link_frames.h"
#include "transports/tcp/stream.h"
#include "transports/transport.h"

namespace unisono::tcp {

enum class LinkState : std::uint8_t {
  kIdle,      ///< nobody has asked for it
  kDialling,  ///< this rank dials; frames queue
  kStanding,  ///< stream 0 is attached
  kLeaving,   ///< goodbye is queued or sent; still receiving
  kEnded,     ///< reported closed, or left
};
enum class LinkEvent : std::uint8_t { kWanted, kAttached, kLeave, kEnd };

/// The one place that says what follows what. An event that changes nothing leaves the state.
LinkState next_state(LinkState state, LinkEvent event);

class PeerLink final : public Endpoint {
 public:
  /// `has_sums`: of every frame, as the peer does.
  PeerLink(Rank self, Rank peer, bool has_sums = false);

  PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                       std::uint64_t token) override;
  void cancel(std::uint64_t token) override;
  void abandon(const std::byte* begin, std::size_t bytes) override;

  Rank peer() const { return peer_; }
  LinkState state() const { return state_; }
  void wanted() { state_ = next_state(state_, LinkEvent::kWanted); }

  /// Whether an incoming connection that the peer has authenticated is taken. `own_dial_connected`:
  /// this rank's own dial for the same stream has reached somebody.
  Admission admit(std::uint16_t stream, bool own_dial_connected) const;
  /// Makes what one more stream takes: before anybody admits its connection, since attach() needs
  /// memory no more.
  void prepare_stream();
  /// It does not come about.
  void spare_stream();
  /// Frames posted so far go out with the next progress().
  void attach(Connection connection);

  /// kData bytes posted so far: what decides about further streams.
  std::uint64_t data_bytes() const { return data_bytes_; }
  /// The highest number of streams for which one more has been dialled.
  std::size_t extra_dialled() const { return extra_dialled_; }
  void set_extra_dialled(std::size_t standing) { extra_dialled_ = standing; }
  std::size_t stream_count() const { return streams_.size(); }
  Stream& stream(std::size_t index) { return *streams_[index]; }

  /// Sends and receives on every stream; reports the end of the link. True: something moved.
  bool progress(FrameSink& sink);
  bool send_queued(FrameSink& sink);
  bool has_queued() const;
  /// Of some stream: check_end() has an end to report.
  bool send_failed() const;
  /// Ends the link when one of its connections is dead (Stream::is_dead).
  void look_for_silence(TimePoint now, Duration patience, FrameSink& sink);
  /// After streams were served one by one: reports the end of the link if it has come.
  void check_end(FrameSink& sink);
  /// Ends the link for this cause and reports it.
  void end(const Status& cause, FrameSink& sink);

  /// Says goodbye behind everything queued.
  void leave();
  /// Nothing of this rank is still on its way to the peer.
  bool settled();
  /// Ends the link without a report to the engine, payloads handed back: this rank leaves.
  void drop(FrameSink& sink);

 private:
  PostResult post_shared(const FrameHeader& header, std::span<const std::byte> payload,
                         std::uint64_t token);
  PostResult post_on_all(FrameHeader header);
  bool has_shared() const { return shared_ && !shared_->empty(); }
  bool send_on(Stream& stream, FrameSink& sink);
  void say_goodbye();
  bool awaits_data() const;
  bool goodbye_complete() const;
  void drain(FrameSink& sink);

  Rank self_;
  Rank peer_;
  bool has_sums_;
  LinkState state_ = LinkState::kIdle;
  std::vector<std::unique_ptr<Stream>> streams_;
  /// kData frames, for the stream that has room first; made with the second stream.
  std::unique_ptr<FrameWriter> shared_;
  std::unique_ptr<Stream> next_stream_;       // prepared
  std::unique_ptr<FrameWriter> next_shared_;  // for the second stream
  std::size_t turn_ = 0;
  std::size_t extra_dialled_ = 0;
  std::uint64_t data_bytes_ = 0;
  std::uint64_t granted_bytes_ = 0;  // that the peer was asked for
};

}  // namespace unisono::tcp
