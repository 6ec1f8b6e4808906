#include "transports/tcp/ack_watch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace unisono::tcp {
namespace {

using std::chrono::milliseconds;

// After a longer pause nobody knows what happened in it.
constexpr milliseconds kLookEveryMax{500};
constexpr milliseconds kLookEvery{100};
constexpr int kLooksOfPatience = 100;
// An answer takes a round trip, and so much more at most; of a short patience that part.
constexpr milliseconds kAnswersWithin{50};
constexpr int kAnswersOfPatience = 16;
// Less than the pause between two repeats (bound_retransmission_pause()).
constexpr milliseconds kAnswersMax{700};
// Two repeats and their answers take up to so long where the kernel begins with 200 ms
// (hasten_retransmission()).
constexpr milliseconds kTwoRepeatsTake{1000};

// Of what was written.
bool has_unsent(int fd) {
  int bytes = 0;
  return ::ioctl(fd, TIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace

Duration AckWatch::look_every(Duration patience) {
  return std::min<Duration>(kLookEvery, patience / kLooksOfPatience);
}

bool AckWatch::is_dead(int fd, TimePoint now, Duration patience) {
  const bool paused = looked_ == TimePoint::min() || now - looked_ > kLookEveryMax;
  looked_ = now;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  // What has no way out of this host at all is probed for, as is a window that is closed, but not
  // at once.
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
      (info.tcpi_unacked == 0 && info.tcpi_probes == 0 && !has_unsent(fd))) {
    since_ = kNever;
    return false;
  }
  const TimePoint heard = now - milliseconds(info.tcpi_last_ack_recv);
  since_ = paused || since_ == kNever ? now : std::max(since_, heard);
  const unsigned repeats = info.tcpi_retransmits + info.tcpi_probes;
  if (std::exchange(repeats_, repeats) != repeats) repeated_ = now;
  const unsigned repeats_wanted = patience < kTwoRepeatsTake ? 1 : 2;
  // Those before the last acknowledgement may count yet, or one that was answered, of a window.
  const bool was_repeated = repeats_ >= repeats_wanted && repeated_ >= since_ + patience / 4;
  const Duration within = std::min<Duration>(kAnswersWithin, patience / kAnswersOfPatience);
  const Duration answer =
      std::min<Duration>(within + std::chrono::microseconds(info.tcpi_rtt), kAnswersMax);
  // The first look at what is under way was a pause late at most, as the next one may be, and a
  // repeat just now may be answered yet.
  const Duration enough = patience - within - 2 * look_every(patience);
  return was_repeated && now - repeated_ >= answer && now - since_ >= enough;
}

}  // namespace unisono::tcp
