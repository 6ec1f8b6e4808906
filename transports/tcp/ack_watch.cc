#include "transports/tcp/ack_watch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>

namespace unisono::tcp {
namespace {

using std::chrono::milliseconds;

// After a longer pause nobody knows what happened in it.
constexpr milliseconds kLookEveryMax{500};

}  // namespace

bool AckWatch::is_dead(int fd, TimePoint now, Duration patience) {
  const bool paused = looked_ == TimePoint::min() || now - looked_ > kLookEveryMax;
  looked_ = now;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 || info.tcpi_unacked == 0) {
    since_ = kNever;
    return false;
  }
  const TimePoint heard = now - milliseconds(info.tcpi_last_ack_recv);
  since_ = paused || since_ == kNever ? now : std::max(since_, heard);
  return now - since_ >= patience;
}

}  // namespace unisono::tcp
