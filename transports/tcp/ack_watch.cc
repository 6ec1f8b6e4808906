#include "transports/tcp/ack_watch.h"

#include <linux/tcp.h>  // that of the C library does not know of windows
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace unisono::tcp {
namespace {

using std::chrono::milliseconds;

// After a longer pause, or half of the patience, nobody knows what happened in it.
constexpr milliseconds kLookEveryMax{500};
constexpr milliseconds kLookEvery{100}, kLookEveryMin{4};
constexpr int kLooksOfPatience = 100;
// An answer takes a round trip, and so much more at most; of a short patience that part.
constexpr milliseconds kAnswersWithin{50};
constexpr int kAnswersOfPatience = 16;
// Less than the pause between two repeats (bound_retransmission_pause()).
constexpr milliseconds kAnswersMax{700};
// A host answers probes of its window every half a second at most (tcp_invalid_ratelimit): of two
// that follow each other, one.
constexpr unsigned kProbesUnanswered = 2;

// What has no way out of this host is not sent, and probed for some time later.
std::optional<AckFacts> facts_of(int fd) {
  int unacknowledged = 0;  // what was not sent as well
  if (::ioctl(fd, TIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0) return std::nullopt;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return std::nullopt;
  return AckFacts{.repeats = static_cast<unsigned>(info.tcpi_retransmits) + info.tcpi_probes,
                  .is_window_closed = info.tcpi_snd_wnd == 0,  // unknown before Linux 5.4
                  .last_ack = milliseconds(info.tcpi_last_ack_recv),
                  .round_trip = std::chrono::microseconds(info.tcpi_rtt)};
}

}  // namespace

Duration AckWatch::look_every(Duration patience) {
  return std::clamp<Duration>(patience / kLooksOfPatience, kLookEveryMin, kLookEvery);
}

bool AckWatch::is_dead(int fd, TimePoint now, Duration patience) {
  return judge(facts_of(fd), now, patience);
}

bool AckWatch::judge(const std::optional<AckFacts>& facts, TimePoint now, Duration patience) {
  const Duration pause = std::min<Duration>(kLookEveryMax, patience / 2);
  const bool paused = looked_ == TimePoint::min() || now - looked_ > pause;
  looked_ = now;
  if (!facts) {
    since_ = kNever;
    return false;
  }
  since_ = paused || since_ == kNever ? now : std::max(since_, now - facts->last_ack);
  if (std::exchange(repeats_, facts->repeats) != facts->repeats) repeated_ = now;
  const unsigned wanted = facts->is_window_closed ? kProbesUnanswered : 1;
  const bool was_repeated = repeats_ >= wanted && repeated_ >= since_ + patience * 2 / 3;
  const Duration within = std::min<Duration>(kAnswersWithin, patience / kAnswersOfPatience);
  const Duration answer = std::min<Duration>(within + facts->round_trip, kAnswersMax);
  // The first look at what is under way was a pause late at most, as the next one may be, and a
  // repeat just now may be answered yet.
  const Duration enough = patience - within - 2 * look_every(patience);
  return was_repeated && now - repeated_ >= answer && now - since_ >= enough;
}

}  // namespace unisono::tcp
