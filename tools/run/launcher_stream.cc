#include "tools/run/launcher_stream.h"

#include <sys/socket.h>

namespace unisono::run {

pollfd LauncherStream::awaited() const {
  const int events = stream_.has_output() ? POLLIN | POLLOUT : POLLIN;
  return {stream_.fd(), static_cast<short>(events), 0};
}

bool LauncherStream::send(std::string bytes) {
  const bool is_queued = stream_.queue(std::move(bytes), kUnreadBytesMax);
  if (!is_queued) ::shutdown(stream_.fd(), SHUT_RDWR);
  static_cast<void>(stream_.flush());
  return is_queued;
}

bool LauncherStream::receive() {
  if (stream_.has_output()) static_cast<void>(stream_.flush());
  return stream_.receive();
}

Status LauncherStream::loss() const {
  return {ErrorCode::kRankFailed, stream_.has_ended() ? "its connection was closed"
                                                      : "nothing is heard of its machine any more"};
}

}  // namespace unisono::run
