// What waits to be written to the launcher's own stdout and stderr. One queue for both, because
// they are often the same terminal, where a line must not be cut by another. Never blocks: a
// stopped terminal or a slow reader must not keep the launcher from forwarding a signal.
// Bounded by its user: nobody reads from ranks while full(). One thread.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <string>

namespace unisono::run {

class OutputQueue {
 public:
  OutputQueue();

  void push(int fd, std::string text);

  bool empty() const { return parts_.empty(); }
  bool full() const { return bytes_ >= kBytesMax; }
  /// The descriptor to poll for POLLOUT, when not empty.
  int fd() const { return parts_.front().fd; }
  /// Call when fd() is writable.
  void write_some();
  /// Nobody reads this stream any more; what is pushed for it is dropped.
  bool is_closed(int fd) const { return closed_[static_cast<std::size_t>(fd)]; }

 private:
  static constexpr std::size_t kBytesMax = 1 << 20;
  struct Part {
    int fd;
    std::string text;
  };
  void drop(int fd);

  std::deque<Part> parts_;
  std::size_t written_ = 0;  ///< of the first part
  std::size_t bytes_ = 0;
  std::array<std::size_t, 3> write_bytes_max_{};  ///< by descriptor
  std::array<bool, 3> closed_{};
};

}  // namespace unisono::run
