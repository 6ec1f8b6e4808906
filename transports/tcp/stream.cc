// Native send and receive. See stream.h.
#include "transports/tcp/stream.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "transports/tcp/link_frames.h"

namespace unisono::tcp {
namespace {

// Up to here header and payload are put side by side: cheaper for the kernel than two parts.
constexpr std::size_t kCopyBytesMax = 1024;
// A turn posts and sends about two large frames and receives about two. Sending and receiving by
// turns keeps what is on its way between two ranks of a host in their caches: half the time at 1
// MiB.
constexpr std::size_t kSendBytesPerTurn = 2 * kFramePayloadMax;
constexpr int kReceiveCallsPerTurn = 4;
// Within a host, where nothing is to be received, the kernel gets as much as possible at once: 16
// MiB over loopback TCP take 5.7 ms so and 8.9 frame by frame where a core is slow to write what
// another one has read, and 1 MiB 165 us and 204 where it is not (two EPYC cores, 2026-11-26).
// Between hosts what waits here may still be overtaken on another stream, and what the kernel has
// may not.
constexpr std::size_t kSendBytesAtOnce = 8 * kFramePayloadMax;
constexpr int kPartsMax = 32;
// The congestion control of what a host sends to itself, where no queue is to be kept short: BBR,
// which a host may have for all connections, would hold it to the rate that it has measured. Where
// an administrator has forbidden this one, that stays.
constexpr char kControlWithinHost[] = "reno";
// The most that the kernel has of one of several streams beyond what the other host has room for.
constexpr int kUnsentBytesMax = 128 * 1024;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

bool is_lack_of_memory(int error) { return error == ENOBUFS || error == ENOMEM; }

// What is not sent waits in the queue, which every poll tries again: no event has to say when.
bool may_be_sent_later(int error) { return would_block(error) || is_lack_of_memory(error); }

}  // namespace

void Stream::attach(Connection connection) {
  fd_ = std::move(connection.fd);
  same_host_ = connection.same_host;
  remote_ = std::move(connection.remote);
  first_bytes_ = std::move(connection.first_bytes);
  // UNIX sockets do not know the option.
  if (same_host_) {
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_CONGESTION, kControlWithinHost,
                 sizeof kControlWithinHost - 1);
  }
}

void Stream::take_from(FrameWriter* waiting) {
  if (has_queued() || !attached() || goodbye_queued_) return;
  while (!waiting->empty() && writer_.queued_bytes() < kFramePayloadMax) {
    waiting->move_first_to(&writer_);
  }
}

// Without it a slow connection takes as much as the system lets a socket buffer grow (4 MiB), and
// the end of a message waits for that. UNIX sockets do not know the option.
void Stream::keep_little_unsent() {
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytesMax, sizeof kUnsentBytesMax);
}

void Stream::cancel(std::uint64_t token) {
  if (!writer_.cancel(token)) send_error_ = ENOMEM;
}

std::ptrdiff_t Stream::send_some(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  const ssize_t sent =
      parts.size() == 1
          ? ::send(fd_.get(), parts[0].iov_base, parts[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
          : ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return sent;
  if (!may_be_sent_later(errno)) send_error_ = errno;
  return 0;
}

PostResult Stream::post(const FrameHeader& header, std::span<const std::byte> payload,
                        std::uint64_t token) {
  UNISONO_ASSERT(header.payload_bytes == payload.size() && payload.size() <= kFramePayloadMax,
                 "a frame's header and payload must agree and keep the bound");
  // The transport's next poll() reports the link closed.
  if (send_failed() || goodbye_queued_) return PostResult::kDone;
  std::size_t sent = 0;
  FrameSums sums;
  const FrameSums* given = nullptr;
  const bool others_follow =
      header.kind == FrameKind::kData && header.offset + payload.size() < header.total_bytes;
  const bool may_go = writer_.empty() && sent_this_turn_ < kSendBytesPerTurn && !others_follow;
  if (attached() && may_go) {
    if (writer_.has_sums()) {
      sums = writer_.next_sums(header, payload);
      given = &sums;
    }
    sent = send_now(header, given, payload);
    sent_this_turn_ += sent;
    if (sent == writer_.head_bytes() + payload.size() || send_failed()) return PostResult::kDone;
  } else if (writer_.full()) {
    return PostResult::kFull;
  }
  writer_.push(header, payload, token, sent, given);
  return payload.empty() ? PostResult::kDone : PostResult::kPending;
}

std::size_t Stream::send_now(const FrameHeader& header, const FrameSums* sums,
                             std::span<const std::byte> payload) {
  std::byte head[sizeof(FrameHead) + kCopyBytesMax];
  std::size_t bytes = sizeof header;
  std::memcpy(head, &header, sizeof header);
  if (sums != nullptr) {
    std::memcpy(head + bytes, sums, sizeof *sums);
    bytes += sizeof *sums;
  }
  const bool is_copied = payload.size() <= kCopyBytesMax;
  if (is_copied && !payload.empty()) std::memcpy(head + bytes, payload.data(), payload.size());
  if (is_copied) bytes += payload.size();
  const iovec parts[] = {{head, bytes}, {const_cast<std::byte*>(payload.data()), payload.size()}};
  return static_cast<std::size_t>(send_some({parts, is_copied ? 1u : 2u}));
}

bool Stream::send_queued(Rank peer, FrameSink& sink, bool takes_turns) {
  bool moved = false;
  if (has_queued() && attached() && !send_failed()) {
    iovec parts[kPartsMax];
    const bool goes_at_once = same_host_ && !takes_turns;
    const std::size_t at_once = goes_at_once ? kSendBytesAtOnce : kSendBytesPerTurn;
    const int used = writer_.gather(parts, at_once);
    const auto sent = static_cast<std::size_t>(send_some({parts, static_cast<std::size_t>(used)}));
    moved = sent > 0;
    sent_this_turn_ = sent;
    writer_.advance(sent, [&](std::uint64_t token) { sink.sent(peer, token); });
  }
  if (goodbye_queued_ && !shut_ && writer_.empty() && attached()) {
    shut_ = true;
    ::shutdown(fd_.get(), SHUT_WR);
  }
  return moved;
}

// The sender of a large frame takes the socket's lock for every piece, and so does each receive
// that finds nothing: a virtual machine's processor that loses such a lock is put to sleep
// (measured over UNIX sockets: 0.45 instead of 5 GB/s). poll() looks without the lock.
bool Stream::rest_is_awaited() const {
  if (reader_.between_frames()) return false;
  pollfd socket{fd_.get(), POLLIN, 0};
  return ::poll(&socket, 1, 0) == 0;
}

bool Stream::receive(FrameSink& sink) {
  sent_this_turn_ = 0;
  if (!attached() || finished_ || rest_is_awaited()) return false;
  bool moved = false;
  if (!first_bytes_.empty()) {
    const std::string bytes = std::exchange(first_bytes_, {});
    protocol_error_ = reader_.take(std::as_bytes(std::span(bytes)), sink);
    if (!protocol_error_) finished_ = true;
    moved = true;
  }
  for (int call = 0; call < kReceiveCallsPerTurn && !finished_; ++call) {
    std::array<iovec, 2> parts;
    const int used = reader_.areas(&parts);
    const std::size_t asked = parts[0].iov_len + (used == 2 ? parts[1].iov_len : 0);
    const ssize_t got = used == 1
                            ? ::recv(fd_.get(), parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT)
                            : ::readv(fd_.get(), parts.data(), used);
    if (got <= 0) {
      if (got == 0 || !would_block(errno)) finish(got == 0 ? 0 : errno);
      break;
    }
    moved = true;
    protocol_error_ = reader_.received(static_cast<std::size_t>(got), sink);
    if (!protocol_error_) finished_ = true;
    // Less than asked for: the socket is empty, and asking again would cost a call to hear it.
    if (static_cast<std::size_t>(got) < asked) break;
  }
  return moved;
}

void Stream::finish(int error) {
  finished_ = true;
  receive_error_ = error;
}

void Stream::say_goodbye(std::uint32_t streams) {
  if (goodbye_queued_ || !attached()) return;
  goodbye_queued_ = true;
  writer_.push(link_frame(kFrameGoodbye, streams), {}, 0);
}

bool Stream::settled() {
  if (!attached() || finished_ || send_failed()) return true;
  if (!shut_) return false;
  // A closed socket that still gets data answers with a reset and forgets what it has not sent.
  // Within one host sent is arrived; between hosts only acknowledged is. UNIX sockets do not know
  // these requests: they have handed everything over.
  int bytes = 0;
  return ::ioctl(fd_.get(), same_host_ ? SIOCOUTQNSD : SIOCOUTQ, &bytes) != 0 || bytes == 0;
}

void Stream::drop(Rank peer, FrameSink& sink) {
  writer_.drop_all([&](std::uint64_t token) { sink.sent(peer, token); });
  fd_.reset();
  finished_ = true;
}

Status Stream::failure(Rank self, Rank peer) const {
  if (!protocol_error_) {
    return {protocol_error_.code(),
            fmt::format("{} (connection to {})", protocol_error_.message(), remote_), peer};
  }
  const int error = receive_error_ != 0 ? receive_error_ : send_error_;
  if (finished_ && receive_error_ == 0) {
    return {ErrorCode::kRankFailed,
            fmt::format("rank {} ({}) closed its connection without goodbye", peer, remote_), peer};
  }
  if (is_lack_of_memory(error)) {
    return {ErrorCode::kOutOfResources,
            fmt::format("rank {} has no memory left for its connection to rank {} ({}): {}", self,
                        peer, remote_, std::strerror(error)),
            self};
  }
  return {
      ErrorCode::kRankFailed,
      fmt::format("the connection to rank {} ({}) broke: {}", peer, remote_, std::strerror(error)),
      peer};
}

}  // namespace unisono::tcp
