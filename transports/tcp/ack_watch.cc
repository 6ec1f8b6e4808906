#include "transports/tcp/ack_watch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace unisono::tcp {
namespace {

using std::chrono::milliseconds;

// After a longer pause nobody knows what happened in it.
constexpr milliseconds kLookEveryMax{500};
// An answer takes a round trip, and so much more at most.
constexpr milliseconds kAnswersWithin{100};
// Less than the pause between two repeats (bound_retransmission_pause()).
constexpr milliseconds kAnswersMax{700};

}  // namespace

bool AckWatch::is_dead(int fd, TimePoint now, Duration patience) {
  const bool paused = looked_ == TimePoint::min() || now - looked_ > kLookEveryMax;
  looked_ = now;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  // What has no way out of this host at all is probed for, as is a window that is closed.
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
      (info.tcpi_unacked == 0 && info.tcpi_probes == 0)) {
    since_ = kNever;
    return false;
  }
  const TimePoint heard = now - milliseconds(info.tcpi_last_ack_recv);
  since_ = paused || since_ == kNever ? now : std::max(since_, heard);
  const unsigned repeats = info.tcpi_retransmits + info.tcpi_probes;
  if (std::exchange(repeats_, repeats) != repeats) repeated_ = now;
  const Duration answer =
      std::min<Duration>(kAnswersWithin + std::chrono::microseconds(info.tcpi_rtt), kAnswersMax);
  const bool was_tried = repeats_ > 0 && repeated_ >= since_ + patience * 3 / 4;
  return was_tried && now - repeated_ >= answer && now - since_ >= patience;
}

}  // namespace unisono::tcp
