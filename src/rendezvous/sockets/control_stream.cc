#include "rendezvous/sockets/control_stream.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/errno_text.h"
#include "base/little_endian.h"

namespace unisono::rendezvous {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kReadBytes = 4 << 10;

std::uint32_t read_length(std::string_view bytes) {
  return static_cast<std::uint32_t>(read_little_endian(bytes.substr(0, kLengthBytes)));
}

}  // namespace

ControlStream::ControlStream(GuardedFd fd) : fd_(std::move(fd)) {}

bool ControlStream::queue(std::shared_ptr<const std::string> bytes, std::size_t backlog_bytes_max) {
  if (bytes->empty()) return true;
  if (backlog_bytes_ >= backlog_bytes_max) return false;
  backlog_bytes_ += bytes->size();
  output_.push_back(std::move(bytes));
  return true;
}

bool ControlStream::queue(std::string bytes, std::size_t backlog_bytes_max) {
  return queue(std::make_shared<const std::string>(std::move(bytes)), backlog_bytes_max);
}

Status ControlStream::flush() {
  while (!output_.empty()) {
    const std::string& front = *output_.front();
    const ssize_t count =
        ::send(fd(), front.data() + sent_, front.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      // Memory that this host lacks now says nothing of the connection.
      if (errno == ENOBUFS || errno == ENOMEM) return {};
      // What this host says of its own, as that it has timed out, the next call would not tell.
      is_unanswered_ = is_unanswered_ || (errno != EPIPE && errno != ECONNRESET);
      return {ErrorCode::kSystem, fmt::format("send: {}", errno_text(errno))};
    }
    sent_ += static_cast<std::size_t>(count);
    backlog_bytes_ -= static_cast<std::size_t>(count);
    if (sent_ < front.size()) continue;
    output_.pop_front();
    sent_ = 0;
  }
  return {};
}

bool ControlStream::receive(std::size_t bytes_max) {
  char buffer[kReadBytes];
  while (bytes_max > 0) {
    const std::size_t wanted = std::min(bytes_max, sizeof buffer);
    const ssize_t count = ::recv(fd(), buffer, wanted, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      was_reset_ = errno == ECONNRESET;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    has_ended_ = count == 0;
    if (has_ended_) return false;
    input_.drop_front(std::exchange(taken_, 0));
    input_.append({buffer, static_cast<std::size_t>(count)});
    OPENSSL_cleanse(buffer, static_cast<std::size_t>(count));
    bytes_max -= static_cast<std::size_t>(count);
    // A short read has emptied the socket; asking again would cost a system call per poll.
    if (static_cast<std::size_t>(count) < wanted) return true;
  }
  return true;
}

Result<std::optional<Message>> ControlStream::next() {
  const std::string_view bytes = input();
  if (bytes.size() < kLengthBytes) return std::optional<Message>();
  const std::uint32_t length = read_length(bytes);
  if (length == 0 || length > kMessageBytesMax) {
    return Status(ErrorCode::kProtocol,
                  fmt::format("a control message of {} bytes, allowed are 1 to {}", length,
                              kMessageBytesMax));
  }
  if (bytes.size() < kLengthBytes + length) return std::optional<Message>();
  taken_ += kLengthBytes + length;
  return std::optional<Message>(Message{static_cast<MessageType>(bytes[kLengthBytes]),
                                        bytes.substr(kLengthBytes + 1, length - 1)});
}

void ControlStream::close() {
  if (!fd_) return;
  static_cast<void>(flush());
  ::shutdown(fd(), SHUT_WR);
  // TCP answers a close over unread input with a reset, which may overtake our last words.
  receive();
  fd_.reset();
}

void ControlStream::reset() {
  const linger at_once{1, 0};
  ::setsockopt(fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  fd_.reset();
}

}  // namespace unisono::rendezvous
