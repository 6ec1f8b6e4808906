#include "tools/run/output_queue.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace unisono::run {
namespace {

// A writable pipe takes PIPE_BUF bytes without blocking, and not more for certain. Making the
// descriptor non-blocking instead would change it for the shell that shares it. Files never block.
std::size_t write_bytes_max(int fd) {
  struct stat facts {};
  const bool file = ::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
  return file ? std::size_t{1} << 20 : PIPE_BUF;
}

// Parts are joined up to this size to keep the number of writes small.
constexpr std::size_t kPartBytes = 64 * 1024;

}  // namespace

OutputQueue::OutputQueue() {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
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

void OutputQueue::write_some() {
  const Part& part = parts_.front();
  const std::size_t left = part.text.size() - written_;
  const std::size_t chunk = std::min(left, write_bytes_max_[static_cast<std::size_t>(part.fd)]);
  const ssize_t bytes = ::write(part.fd, part.text.data() + written_, chunk);
  if (bytes < 0) {
    if (errno != EINTR && errno != EAGAIN) drop(part.fd);
    return;
  }
  written_ += static_cast<std::size_t>(bytes);
  bytes_ -= static_cast<std::size_t>(bytes);
  if (written_ < part.text.size()) return;
  parts_.pop_front();
  written_ = 0;
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
