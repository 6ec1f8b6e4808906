// One connected socket of a link: non-blocking send and receive on the native descriptor, with the
// writer and reader that belong to it. Owned by a PeerLink. The hot path of this transport: no
// allocation, no log, no lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/unique_fd.h"
#include "transports/tcp/ack_watch.h"
#include "transports/tcp/frame_reader.h"
#include "transports/tcp/frame_writer.h"

namespace unisono::tcp {

/// A connection that both sides have authenticated and admitted.
struct Connection {
  UniqueFd fd;
  Rank peer = -1;
  std::uint16_t stream = 0;
  bool same_host = false;
  std::string remote;       ///< for messages: "127.0.0.1:4411"
  std::string first_bytes;  ///< of the frames: came in one piece with the handshake
};

class Stream {
 public:
  Stream(Rank peer, FrameReader::Carries carries, bool has_sums)
      : reader_(peer, carries, has_sums), writer_(has_sums) {}

  /// Before this, frames queue up.
  void attach(Connection connection);
  bool attached() const { return static_cast<bool>(fd_); }
  bool same_host() const { return same_host_; }
  const std::string& remote() const { return remote_; }

  /// Sends at once what the kernel takes if nothing waits and no other piece of the message
  /// follows; queues the rest.
  PostResult post(const FrameHeader& header, std::span<const std::byte> payload,
                  std::uint64_t token);
  void cancel(std::uint64_t token);
  void abandon(const std::byte* begin, std::size_t bytes) { reader_.abandon(begin, bytes); }
  bool has_queued() const { return !writer_.empty(); }
  bool is_full() const { return writer_.full(); }
  /// If nothing waits here takes frames until there are kFramePayloadMax bytes.
  void take_from(FrameWriter* waiting);
  /// Has the kernel take no more than it can soon send, so that what is left can go by another
  /// stream.
  void keep_little_unsent();
  std::uint64_t received_data_bytes() const { return reader_.data_bytes(); }

  /// Each moves a bounded amount, so that one busy stream starves no other. True: bytes moved.
  /// `takes_turns`: the link has something to receive as well.
  bool send_queued(Rank peer, FrameSink& sink, bool takes_turns);
  bool receive(FrameSink& sink);

  /// Queues the last frame; nothing may be posted after it.
  void say_goodbye(std::uint32_t streams);
  /// After say_goodbye(): everything has left this host, so closing the socket loses nothing.
  bool settled();
  /// Hands back every lent payload and closes the socket.
  void drop(Rank peer, FrameSink& sink);

  /// The peer's goodbye has arrived here, and how many streams end with one.
  bool said_goodbye() const { return reader_.ended(); }
  std::uint32_t goodbye_streams() const { return reader_.ended_streams(); }
  /// Nothing more can be received: end of stream, error or violated protocol.
  bool finished() const { return finished_; }
  /// Sending has failed; what had arrived before may still be received.
  bool send_failed() const { return send_error_ != 0; }
  /// The connection stands, and nothing that was sent has been acknowledged for `patience`.
  bool is_dead(TimePoint now, Duration patience) {
    return attached() && !finished_ && acknowledgements_.is_dead(fd_.get(), now, patience);
  }
  /// How long that is so, of one that is dead.
  Duration unacknowledged(TimePoint now) const { return acknowledgements_.unacknowledged(now); }
  /// Why, once finished() without goodbye or after a failed send. Never ok.
  Status failure(Rank self, Rank peer) const;

 private:
  std::size_t send_now(const FrameHeader& header, const FrameSums* sums,
                       std::span<const std::byte> payload);
  bool rest_is_awaited() const;
  std::ptrdiff_t send_some(std::span<const iovec> parts);
  void finish(int error);

  UniqueFd fd_;
  std::string remote_;
  std::string first_bytes_;
  AckWatch acknowledgements_;
  FrameReader reader_;
  FrameWriter writer_;
  std::size_t sent_this_turn_ = 0;
  bool same_host_ = false;
  bool finished_ = false;
  bool shut_ = false;  // after goodbye: the sending direction is closed
  bool goodbye_queued_ = false;
  int receive_error_ = 0;  // 0 with finished_: end of stream
  int send_error_ = 0;
  Status protocol_error_;
};

}  // namespace unisono::tcp
