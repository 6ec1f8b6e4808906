#include "tools/run/rank_stream.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace unisono::run {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
// The largest pipe an ordinary user can have; more can only come from a writer that goes on.
constexpr std::size_t kDrainBytesMax = 1 << 20;

}  // namespace

void RankStream::read_some(OutputQueue& queue) {
  // The reader of our own output has gone. Ranks learn it as they would without a launcher.
  if (queue.is_closed(target_)) return pipe_.reset();
  read_once(queue);
}

void RankStream::read_available(OutputQueue& queue) {
  std::size_t total = 0;
  while (is_open() && total < kDrainBytesMax) {
    const std::size_t bytes = read_once(queue);
    if (bytes == 0) break;
    total += bytes;
  }
}

void RankStream::drain(OutputQueue& queue) {
  read_available(queue);
  if (is_open()) close(queue);
}

std::size_t RankStream::read_once(OutputQueue& queue) {
  char buffer[kReadBytes];
  const ssize_t bytes = ::read(pipe_.get(), buffer, sizeof(buffer));
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (bytes <= 0) {
    close(queue);
    return 0;
  }
  std::string lines;
  cutter_.add(std::string_view(buffer, static_cast<std::size_t>(bytes)), &lines);
  if (prompts_ && static_cast<std::size_t>(bytes) < kReadBytes) cutter_.finish(&lines);
  queue.push(target_, std::move(lines));
  return static_cast<std::size_t>(bytes);
}

void RankStream::close(OutputQueue& queue) {
  std::string last;
  cutter_.finish(&last);
  queue.push(target_, std::move(last));
  pipe_.reset();
}

}  // namespace unisono::run
