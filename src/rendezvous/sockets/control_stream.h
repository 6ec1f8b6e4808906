// One control connection: whole messages over a non-blocking stream socket. Rank and arbiter use
// the same one. Input is bounded by one message plus one read; output waits in a queue until the
// socket takes it. A frame may be shared by many connections (the world table of 4096 ranks).
//
// Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/secret_text.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/sockets/fork_guard.h"

namespace unisono::rendezvous {

class ControlStream {
 public:
  /// `fd` is connected, non-blocking and close-on-exec.
  explicit ControlStream(GuardedFd fd);

  int fd() const { return fd_.get(); }

  /// Appends to the output queue. False, and nothing queued, where the other side has not read
  /// `backlog_bytes_max` bytes already.
  bool queue(std::shared_ptr<const std::string> bytes, std::size_t backlog_bytes_max = kNoLimit);
  bool queue(std::string bytes, std::size_t backlog_bytes_max = kNoLimit);
  /// Gives the socket what it takes now. An error means that the connection is gone.
  Status flush();
  bool has_output() const { return !output_.empty(); }

  /// Reads what has arrived, at most `bytes_max`. False: the connection is closed or broken and
  /// everything it brought is in the input.
  bool receive(std::size_t bytes_max = kMessageBytesMax);
  /// The next whole message; its body is valid until the next call of this object. kProtocol when
  /// the length is out of bounds.
  Result<std::optional<Message>> next();
  /// What has arrived and was not taken by next(), for a handshake that goes before messages.
  std::string_view input() const { return input_.view().substr(taken_); }
  void drop_input(std::size_t bytes) { taken_ += bytes; }

  /// The other side has ended the connection by reset(), or died, rather than by close().
  bool was_reset() const { return was_reset_; }
  /// receive() is over by the word of the other side's kernel; else nobody answered there.
  bool has_ended() const { return (has_ended_ || was_reset_) && !is_unanswered_; }

  /// Sends what the socket takes, says that nothing follows and closes.
  void close();
  /// Ends the connection without a word.
  void reset();

 private:
  static constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);

  GuardedFd fd_;
  SecretText input_;       // the arbiter hands out the key
  std::size_t taken_ = 0;  // bytes of input_ that next() has given out
  std::deque<std::shared_ptr<const std::string>> output_;
  std::size_t sent_ = 0;  // bytes of output_.front() that the socket has taken
  std::size_t backlog_bytes_ = 0;
  bool was_reset_ = false;
  bool has_ended_ = false;
  bool is_unanswered_ = false;
};

}  // namespace unisono::rendezvous
