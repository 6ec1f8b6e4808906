// See handshake_session.h.
#include "transports/tcp/handshake_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/socket_base.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/network.h"
#include "transports/frame.h"

namespace unisono::tcp {
namespace {

// The kernel may give a connection up too where its owner does so sooner than this.
constexpr std::chrono::seconds kBoundedPatienceMax{10};
// With less the kernel would have sent again too early or too late, beginning after 200 ms. Its
// attempts after two, four and eight times the first pause are at 0.21, 0.42 and 0.84 of it, and
// AckWatch wants one in the last third.
constexpr std::chrono::milliseconds kHastenedPatienceMax{1900};
constexpr double kFirstAttemptOfPatience = 0.105;

bool is_of_this_host(const boost::system::error_code& error) {
  return error == boost::asio::error::timed_out || error == boost::asio::error::host_unreachable ||
         error == boost::asio::error::network_unreachable ||
         error == boost::asio::error::network_down;
}

Target name_of_end(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  Target out;
  out.bytes = sizeof out.address;
  if (ask(fd, reinterpret_cast<sockaddr*>(&out.address), &out.bytes) != 0) out.bytes = 0;
  return out;
}

}  // namespace

HandshakeSession::HandshakeSession(Socket socket, const JobKey& key, Handshake::Role role,
                                   HandshakeIdentity identity, Done done)
    : socket_(std::move(socket)),
      role_(role),
      handshake_(key, role, std::move(identity)),
      done_(std::move(done)),
      remote_(name_of_end(socket_.native_handle(), &::getpeername)),
      local_(name_of_end(socket_.native_handle(), &::getsockname)) {}

void HandshakeSession::start() {
  if (send(handshake_.take_output())) read();
}

void HandshakeSession::cancel() {
  done_ = nullptr;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void HandshakeSession::reset() {
  boost::system::error_code ignored;
  socket_.set_option(boost::asio::socket_base::linger(true, 0), ignored);
  cancel();
}

bool HandshakeSession::answer(const std::string& bytes) {
  if (send_now(socket_.native_handle(), bytes.data(), bytes.size())) return true;
  reset();
  return false;
}

UniqueFd HandshakeSession::release() {
  boost::system::error_code error;
  UniqueFd fd(socket_.release(error));
  if (error) return UniqueFd();
  const int flags = ::fcntl(fd.get(), F_GETFL);
  ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK);
  return fd;
}

void HandshakeSession::read() {
  socket_.async_read_some(
      boost::asio::buffer(buffer_),
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t bytes) {
        if (!self->done_) return;
        if (error) {
          self->hung_up_ = true;
          self->was_reset_ = error == boost::asio::error::connection_reset;
          self->was_cut_ = is_of_this_host(error);
          return self->finish({ErrorCode::kRankFailed,
                               "the other end hung up during the handshake: " + error.message()});
        }
        self->on_read(bytes);
      });
}

void HandshakeSession::on_read(std::size_t bytes) {
  bytes_received_ += bytes;
  std::span<const std::byte> view(buffer_.data(), bytes);
  const Status consumed = handshake_.consume(&view);
  rest_.append(reinterpret_cast<const char*>(view.data()), view.size());
  const bool accepts = role_ == Handshake::Role::kAcceptor;
  if (!consumed) {
    // A hello may be left that tells the other side why.
    const std::string reason = handshake_.take_output();
    if (!reason.empty()) send_now(socket_.native_handle(), reason.data(), reason.size());
    return finish(consumed);
  }
  if (handshake_.done() && (accepts || rest_.size() >= sizeof(FrameHeader))) return finish({});
  if (!handshake_.done()) {
    const std::string output = handshake_.take_output();
    if (!send(output)) return;
    // The peer may take the connection from now on, and asks for what it sends.
    if (!accepts && !output.empty() && !std::exchange(proof_sent_, true)) {
      set_probing(socket_.native_handle(), Probing::kLate);
    }
  }
  read();
}

bool HandshakeSession::send(const std::string& bytes) {
  if (bytes.empty() || send_now(socket_.native_handle(), bytes.data(), bytes.size())) return true;
  hung_up_ = true;
  finish({ErrorCode::kRankFailed,
          fmt::format("the other end hung up during the handshake: {}", std::strerror(errno))});
  return false;
}

void HandshakeSession::finish(const Status& status) {
  // The owner may let go of this session while it is told.
  if (const Done done = std::exchange(done_, nullptr)) done(status);
}

void prepare_socket(int fd, const StreamOptions& options) {
  const int one = 1;
  // These fail on UNIX sockets, which have neither delay nor wire.
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  // Where its pauses are bounded the kernel itself gives up after some 14 s.
  const Duration patience = options.unacknowledged_max;
  if (patience > Duration::zero() && patience < kBoundedPatienceMax) bound_retransmission_pause(fd);
  if (patience > Duration::zero() && patience < kHastenedPatienceMax) {
    hasten_retransmission(fd,
                          std::chrono::duration_cast<Duration>(patience * kFirstAttemptOfPatience));
  }
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  set_probing(fd, Probing::kLate);
  if (const int sent = options.send_buffer_bytes; sent > 0) {
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sent, sizeof sent);
  }
  if (const int received = options.receive_buffer_bytes; received > 0) {
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &received, sizeof received);
  }
}

// A connection may be idle for hours: beside RDMA, or while ranks compute.
void set_probing(int fd, Probing when) {
  const bool is_soon = when == Probing::kSoon;
  const int idle_s = is_soon ? 1 : 60, interval_s = is_soon ? 1 : 10, probes = is_soon ? 1 : 6;
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

Status adopt(UniqueFd fd, int family, Socket* socket) {
  boost::system::error_code error;
  socket->assign(Protocol(family, 0), fd.get(), error);
  if (error) return {ErrorCode::kSystem, error.message()};
  static_cast<void>(fd.release());
  return {};
}

bool send_now(int fd, const void* data, std::size_t bytes) {
  return ::send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

}  // namespace unisono::tcp
