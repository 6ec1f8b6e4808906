// One connection while it is authenticated, over Asio. Included by connector.cc and dial.* only.
// Shared by its owner and its Asio handlers, which may run once more after the owner has let go;
// hence shared_ptr.
#pragma once

#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/handshake.h"
#include "base/unique_fd.h"
#include "transports/tcp/peer_address.h"
#include "transports/tcp/stream_transport.h"

namespace unisono::tcp {

using Protocol = boost::asio::generic::stream_protocol;
using Socket = Protocol::socket;

class HandshakeSession : public std::enable_shared_from_this<HandshakeSession> {
 public:
  /// Told once: ok when the handshake is done and, for an initiator, the acceptor's first frame has
  /// come too. Not told after cancel().
  using Done = std::function<void(const Status&)>;

  HandshakeSession(Socket socket, const JobKey& key, Handshake::Role role,
                   HandshakeIdentity identity, Done done);

  void start();
  /// Closes the socket. Safe at any time, also from within Done.
  void cancel();
  /// The same, but the peer sees a reset instead of an end.
  void reset();

  const Handshake& handshake() const { return handshake_; }
  bool silent() const { return bytes_received_ == 0; }
  /// The peer has been sent everything it needs to judge this rank's key.
  bool proof_sent() const { return proof_sent_; }
  /// When the session failed: the peer closed or reset instead of answering.
  bool hung_up() const { return hung_up_; }
  /// When it hung up: by reset(), which says nothing of this rank's key.
  bool was_reset() const { return was_reset_; }
  /// When it hung up: that is what this host says, to which nothing comes from there.
  bool was_cut() const { return was_cut_; }
  const Target& remote() const { return remote_; }
  const Target& local() const { return local_; }

  /// After Done(ok): what is still to be sent, what has come beyond the handshake, the socket.
  std::string take_output() { return handshake_.take_output(); }
  std::string take_rest() { return std::move(rest_); }
  /// Sends the peer's answer. False: it could not be sent, and the peer sees a reset, which says
  /// nothing of its proof.
  bool answer(const std::string& bytes);
  UniqueFd release();

 private:
  void read();
  void on_read(std::size_t bytes);
  bool send(const std::string& bytes);
  void finish(const Status& status);

  Socket socket_;
  Handshake::Role role_;
  Handshake handshake_;
  Done done_;
  Target remote_;
  Target local_;
  std::array<std::byte, kHandshakeBytesMax> buffer_;
  std::string rest_;
  std::size_t bytes_received_ = 0;
  bool proof_sent_ = false;
  bool hung_up_ = false;
  bool was_reset_ = false;
  bool was_cut_ = false;
};

/// Without Nagle's delay; sizes where they are not 0.
void prepare_socket(int fd, const StreamOptions& options);
/// A connection that is idle: whether the other host still answers is asked after a second, or
/// after a minute, as prepare_socket() has it.
enum class Probing : std::uint8_t { kSoon, kLate };
void set_probing(int fd, Probing when);
/// Makes `fd` the socket. Asio's own calls would create it open to whatever program another thread
/// starts at that moment.
Status adopt(UniqueFd fd, int family, Socket* socket);
/// Sends all or answers false: for the few bytes of a handshake, which every socket has room for.
bool send_now(int fd, const void* data, std::size_t bytes);

}  // namespace unisono::tcp
