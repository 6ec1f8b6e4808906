// What waits to be written to the launcher's own stdout and stderr. One queue for both, because
// they are often the same terminal, where a line must not be cut by another. Never blocks: a
// stopped terminal or a slow reader must not keep the launcher from forwarding a signal. Where the
// system allows it a stream is opened anew for that, because the flags of the inherited one are
// shared with the shell.
// Bounded by its user: nobody reads from ranks while full(). One thread.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <string>

#include "base/unique_fd.h"

namespace unisono::run {

class OutputQueue {
 public:
  OutputQueue();

  void push(int fd, std::string text);

  bool empty() const { return parts_.empty(); }
  bool full() const { return bytes_ >= kBytesMax; }
  std::size_t bytes() const { return bytes_; }
  /// The descriptor to poll for POLLOUT, when not empty.
  int poll_fd() const { return stream_of(parts_.front().fd); }
  /// Which of our streams, 1 or 2, is written next, when not empty.
  int target() const { return parts_.front().fd; }
  /// Call when poll_fd() is writable. Returns 0, or the errno that closed target().
  int write_some();
  /// Writes what the streams take now and drops the rest; returns the number of bytes dropped.
  std::size_t give_up();
  /// Nobody reads this stream any more; what is pushed for it is dropped.
  bool is_closed(int fd) const { return closed_[static_cast<std::size_t>(fd)]; }

 private:
  static constexpr std::size_t kBytesMax = 1 << 20;
  struct Part {
    int fd;
    std::string text;
  };
  int stream_of(int fd) const;
  void drop(int fd);

  std::deque<Part> parts_;
  std::size_t written_ = 0;  ///< of the first part
  std::size_t bytes_ = 0;
  std::array<UniqueFd, 3> own_;                   ///< by descriptor; empty: the inherited one
  std::array<std::size_t, 3> write_bytes_max_{};  ///< by descriptor
  std::array<bool, 3> closed_{};
};

}  // namespace unisono::run
