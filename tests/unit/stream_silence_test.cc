// Connections over which nothing goes any more though both ends live: a network of the test's own
// is shut down under them.
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "base/unique_fd.h"
#include "stream_fixture.h"

namespace unisono::test {
namespace {

using Family = StreamOptions::Family;

constexpr int kNotAllowed = 77;

bool set_loopback(bool up) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return false;
  request.ifr_flags =
      static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  return ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

/// Runs `body` in a process with a loopback device of its own; its exit status.
int in_network_of_its_own(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool alone = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    if (!alone || !set_loopback(true)) ::_exit(kNotAllowed);
    body();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Two ranks that have met, of which rank 0 takes a connection for dead after `patience`.
struct Pair : Job {
  explicit Pair(std::chrono::milliseconds patience)
      : Job(2, Family::kTcp,
            [patience](StreamOptions* options) { options->unacknowledged_max = patience; }) {
    post(0, 1, frame_of(0, 0), {}, 0);
    EXPECT_TRUE(until([&] { return sinks[1]->frames.size() == 1; }));
  }
  bool is_lost() const { return sinks[0]->closed_causes.count(1) == 1; }
};

void lose_the_network() {
  Pair pair(std::chrono::milliseconds(400));
  ASSERT_TRUE(set_loopback(false));
  pair.post(0, 1, frame_of(1, 64), pattern(64, 1), 1);
  ASSERT_TRUE(pair.until([&] { return pair.is_lost(); }));
  const Status cause = pair.sinks[0]->closed_causes[1];
  EXPECT_EQ(cause.code(), ErrorCode::kRankFailed);
  EXPECT_EQ(cause.rank(), 1);
  EXPECT_NE(cause.message().find("acknowledged nothing for"), std::string::npos) << cause.message();
}

// A link that was never there.
struct Strangers : Job {
  explicit Strangers(std::chrono::milliseconds patience)
      : Job(2, Family::kTcp,
            [patience](StreamOptions* options) { options->unacknowledged_max = patience; }) {}
};

void have_none_from_the_start() {
  const auto payload = pattern(64, 1);  // outlives the link
  Strangers pair(std::chrono::milliseconds(400));
  ASSERT_TRUE(set_loopback(false));
  pair.post(0, 1, frame_of(1, 64), payload, 1);
  ASSERT_TRUE(pair.until([&] { return pair.sinks[0]->closed_causes.count(1) == 1; }));
  const Status cause = pair.sinks[0]->closed_causes[1];
  EXPECT_EQ(cause.code(), ErrorCode::kRankFailed);
  EXPECT_EQ(cause.rank(), 1);
  EXPECT_EQ(cause.message().find("cannot connect to rank 1 at 127.0.0.1:"), 0U) << cause.message();
}

// Rank 1 computes, so that its kernel alone has let rank 0 in.
void lose_it_before_the_peer_looks() {
  const auto payload = pattern(64, 1);  // outlives the link
  Strangers pair(std::chrono::milliseconds(400));
  pair.post(0, 1, frame_of(1, 64), payload, 1);
  const auto poll_rank_0_until = [&](TimePoint end) {
    RecordingSink& sink = *pair.sinks[0];
    while (Clock::now() < end && sink.closed_causes.empty()) pair.transports[0]->poll(sink);
  };
  poll_rank_0_until(Clock::now() + std::chrono::milliseconds(100));
  ASSERT_TRUE(set_loopback(false));
  poll_rank_0_until(Clock::now() + std::chrono::seconds(10));
  EXPECT_NE(pair.sinks[0]->closed_causes[1].message().find("cannot connect to rank 1"),
            std::string::npos);
}

void get_it_late() {
  const auto payload = pattern(64, 1);  // outlives the link
  Strangers pair(std::chrono::milliseconds(2000));
  ASSERT_TRUE(set_loopback(false));
  pair.post(0, 1, frame_of(1, 64), payload, 1);
  const TimePoint back = Clock::now() + std::chrono::milliseconds(1200);
  ASSERT_TRUE(pair.until([&] { return Clock::now() > back; }));
  ASSERT_TRUE(set_loopback(true));
  ASSERT_TRUE(pair.until([&] { return pair.sinks[1]->frames.size() == 1; }));
  EXPECT_TRUE(pair.sinks[0]->closed_causes.empty());
}

// What the kernel sends again is answered once the network is back, if that was before the end.
void lose_it_for_most_of_the_patience() {
  Pair pair(
      std::chrono::duration_cast<std::chrono::milliseconds>(StreamOptions().unacknowledged_max));
  ASSERT_TRUE(set_loopback(false));
  pair.post(0, 1, frame_of(1, 64), pattern(64, 1), 1);
  const TimePoint back = Clock::now() + std::chrono::milliseconds(2000);
  ASSERT_TRUE(pair.until([&] { return Clock::now() > back; }));
  ASSERT_TRUE(set_loopback(true));
  ASSERT_TRUE(pair.until([&] { return pair.is_lost() || pair.sinks[1]->frames.size() == 2; }));
  EXPECT_FALSE(pair.is_lost());
}

void never_end_without_patience() {
  Pair pair(std::chrono::milliseconds(0));
  ASSERT_TRUE(set_loopback(false));
  pair.post(0, 1, frame_of(1, 64), pattern(64, 1), 1);
  const TimePoint end = Clock::now() + std::chrono::milliseconds(900);
  ASSERT_TRUE(pair.until([&] { return Clock::now() > end; }));
  EXPECT_FALSE(pair.is_lost());
}

// Nothing is under way, or what is arrives in time: that is no silence.
void lose_it_for_a_moment() {
  // Longer than any of the pauses, retransmission included, and shorter than all together.
  Pair pair(std::chrono::milliseconds(2000));
  for (std::size_t frame = 1; frame <= 5; ++frame) {
    ASSERT_TRUE(set_loopback(false));
    pair.post(0, 1, frame_of(frame, 64), pattern(64, 1), frame);
    const TimePoint back = Clock::now() + std::chrono::milliseconds(300);
    ASSERT_TRUE(pair.until([&] { return Clock::now() > back; }));
    ASSERT_TRUE(set_loopback(true));
    ASSERT_TRUE(pair.until([&] { return pair.sinks[1]->frames.size() == frame + 1; }));
  }
  EXPECT_FALSE(pair.is_lost());
}

void be_quiet_without_a_network() {
  Pair pair(std::chrono::milliseconds(50));
  // The acknowledgement of the greeting may still be under way.
  const TimePoint settled = Clock::now() + std::chrono::milliseconds(200);
  ASSERT_TRUE(pair.until([&] { return Clock::now() > settled; }));
  ASSERT_TRUE(set_loopback(false));
  const TimePoint end = Clock::now() + std::chrono::milliseconds(500);
  ASSERT_TRUE(pair.until([&] { return Clock::now() > end; }));
  EXPECT_FALSE(pair.is_lost());
}

// It takes what fits the windows and acknowledges it.
void send_without_reader(std::chrono::milliseconds patience) {
  Pair pair(patience);
  const auto payload = pattern(kFramePayloadMax, 1);
  std::uint64_t sequence = 1;
  Transport& sender = *pair.transports[0];
  while (sender.endpoint(1).post_send(frame_of(sequence, payload.size()), payload, sequence) !=
         PostResult::kFull) {
    ++sequence;
  }
  const TimePoint end = Clock::now() + std::chrono::seconds(2);
  while (Clock::now() < end) sender.poll(*pair.sinks[0]);
  EXPECT_FALSE(pair.is_lost());
}
void send_to_a_peer_that_reads_nothing() { send_without_reader(std::chrono::milliseconds(100)); }
void send_long_to_a_peer_that_reads_nothing() {
  send_without_reader(std::chrono::milliseconds(930));
}

class Silence : public testing::TestWithParam<std::pair<const char*, void (*)()>> {};

TEST_P(Silence, IsToldFromQuietAndFromSlowness) {
  const int status = in_network_of_its_own(GetParam().second);
  if (status == kNotAllowed) GTEST_SKIP() << "this user may make no network namespace";
  EXPECT_EQ(status, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, Silence,
    testing::Values(std::pair{"LoseTheNetwork", &lose_the_network},
                    std::pair{"HaveNoneFromTheStart", &have_none_from_the_start},
                    std::pair{"LoseItBeforeThePeerLooks", &lose_it_before_the_peer_looks},
                    std::pair{"GetItLate", &get_it_late},
                    std::pair{"LoseItForAMoment", &lose_it_for_a_moment},
                    std::pair{"LoseItForMostOfThePatience", &lose_it_for_most_of_the_patience},
                    std::pair{"NeverEndWithoutPatience", &never_end_without_patience},
                    std::pair{"BeQuietWithoutANetwork", &be_quiet_without_a_network},
                    std::pair{"SendToAPeerThatReadsNothing", &send_to_a_peer_that_reads_nothing},
                    std::pair{"SendLongToAPeerThatReadsNothing",
                              &send_long_to_a_peer_that_reads_nothing}),
    [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace unisono::test
