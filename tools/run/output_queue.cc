#include "tools/run/output_queue.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace unisono::run {
namespace {

bool is_file(int fd) {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
}

// A second opening of the same pipe or terminal, with flags of its own. Empty where there is none:
// sockets, a terminal of another user, a pipe nobody reads. Files never block.
UniqueFd open_without_blocking(int fd) {
  if (is_file(fd)) return UniqueFd();
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

// A writable pipe takes PIPE_BUF bytes without blocking, and not more for certain.
std::size_t write_bytes_max(int fd) { return is_file(fd) ? std::size_t{1} << 20 : PIPE_BUF; }

bool is_writable(int fd) {
  pollfd polled{fd, POLLOUT, 0};
  return ::poll(&polled, 1, 0) == 1;
}

// Parts are joined up to this size to keep the number of writes small.
constexpr std::size_t kPartBytes = 64 * 1024;

}  // namespace

OutputQueue::OutputQueue() {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    own_[static_cast<std::size_t>(fd)] = open_without_blocking(fd);
    write_bytes_max_[static_cast<std::size_t>(fd)] = write_bytes_max(fd);
  }
}

void OutputQueue::push(int fd, std::string text) {
  if (text.empty() || is_closed(fd)) return;
  bytes_ += text.size();
  if (!parts_.empty() && parts_.back().fd == fd && parts_.back().text.size() < kPartBytes) {
    parts_.back().text += text;
  } else {
    parts_.push_back({fd, std::move(text)});
  }
}

int OutputQueue::stream_of(int fd) const {
  const UniqueFd& own = own_[static_cast<std::size_t>(fd)];
  return own ? own.get() : fd;
}

int OutputQueue::write_some() {
  const Part& part = parts_.front();
  const std::size_t left = part.text.size() - written_;
  const std::size_t chunk = std::min(left, write_bytes_max_[static_cast<std::size_t>(part.fd)]);
  const ssize_t bytes = ::write(stream_of(part.fd), part.text.data() + written_, chunk);
  if (bytes < 0) {
    const int error = errno;
    if (error == EINTR || error == EAGAIN) return 0;
    drop(part.fd);
    return error;
  }
  written_ += static_cast<std::size_t>(bytes);
  bytes_ -= static_cast<std::size_t>(bytes);
  if (written_ < part.text.size()) return 0;
  parts_.pop_front();
  written_ = 0;
  return 0;
}

std::size_t OutputQueue::give_up() {
  std::size_t dropped = 0;
  while (!empty()) {
    const std::size_t before = bytes_;
    if (is_writable(poll_fd())) write_some();
    if (bytes_ < before) continue;
    drop(target());
    dropped += before - bytes_;
  }
  return dropped;
}

void OutputQueue::drop(int fd) {
  closed_[static_cast<std::size_t>(fd)] = true;
  bytes_ += written_;
  written_ = 0;
  std::erase_if(parts_, [&](const Part& part) {
    if (part.fd == fd) bytes_ -= part.text.size();
    return part.fd == fd;
  });
}

}  // namespace unisono::run
