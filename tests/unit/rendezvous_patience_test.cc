// The arbiter's waiting room by itself, with a clock of the test's own: who is turned away when,
// and what happens when there are no descriptors left.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/handshake.h"
#include "base/log.h"
#include "base/unproven_peers.h"
#include "rendezvous/arbiter/strangers.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/sockets/sockets.h"
#include "rendezvous_support.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string last_line;

class StrangersPatience : public testing::Test {
 protected:
  StrangersPatience()
      : listener_(std::move(*listen_tcp("127.0.0.1", 0))), strangers_({"job", test_key()}) {
    last_line.clear();
    log::set_hook([](log::Level, std::string_view line) { last_line = line; });
  }
  ~StrangersPatience() override { log::set_hook(nullptr); }

  GuardedFd connect() {
    auto fd = connect_tcp("127.0.0.1", listener_.port, Clock::now() + kPatience);
    EXPECT_TRUE(fd.has_value()) << fd.status().message();
    return std::move(*fd);
  }
  // The arbiter's descriptor of a new stranger, and its other end.
  std::pair<int, GuardedFd> arrive() {
    GuardedFd other = connect();
    int fd = -1;
    EXPECT_TRUE(eventually([&] { return (fd = strangers_.accept(listener_, start_)) >= 0; }));
    return {fd, std::move(other)};
  }

  const TimePoint start_ = Clock::now();
  Listener listener_;
  Strangers strangers_;
};

TEST_F(StrangersPatience, GivesThePlaceOfOneThatHasNotGreetedToANewcomer) {
  auto [speaker, speaker_end] = arrive();
  Handshake handshake(test_key(), Handshake::Role::kInitiator,
                      HandshakeIdentity{"job", 1, 0, HandshakePurpose::kControl, 0});
  const std::string greeting = handshake.take_output();
  ASSERT_EQ(::send(speaker_end.get(), greeting.data(), greeting.size(), 0),
            static_cast<ssize_t>(greeting.size()));
  ASSERT_TRUE(wait_ready(speaker, false, Clock::now() + kPatience));
  EXPECT_FALSE(strangers_.read(speaker, start_).has_value());
  std::vector<GuardedFd> ends;
  std::vector<int> silent;
  while (strangers_.accepting(start_)) {
    auto [fd, end] = arrive();
    silent.push_back(fd);
    ends.push_back(std::move(end));
  }
  ASSERT_EQ(silent.size(), kStrangersMax - 1);
  const TimePoint turn_over = start_ + unproven_turn(false);
  EXPECT_EQ(strangers_.next_due(start_), turn_over);
  ASSERT_TRUE(strangers_.accepting(turn_over));
  const GuardedFd newcomer = connect();
  int held = -1;
  EXPECT_TRUE(eventually([&] { return (held = strangers_.accept(listener_, turn_over)) >= 0; }));
  EXPECT_TRUE(strangers_.holds(held));
  EXPECT_TRUE(strangers_.holds(speaker)) << "a rank that is about to prove itself";
  EXPECT_EQ(std::count_if(silent.begin(), silent.end(),
                          [&](int fd) { return fd != held && !strangers_.holds(fd); }),
            1);
  strangers_.expire(start_ + kStrangerTime);
  EXPECT_FALSE(strangers_.holds(speaker));
}

TEST_F(StrangersPatience, RefuseWhoJoinsAsAnotherRankThanItProved) {
  for (const Rank joins_as : {1, 2}) {
    auto [fd, end] = arrive();
    Handshake handshake(test_key(), Handshake::Role::kInitiator,
                        HandshakeIdentity{"job", 1, 0, HandshakePurpose::kControl, 0});
    const auto say = [&, to = end.get()](const std::string& bytes) {
      EXPECT_EQ(::send(to, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    };
    say(handshake.take_output());
    while (!handshake.done()) {
      ASSERT_TRUE(wait_ready(fd, false, Clock::now() + kPatience));
      EXPECT_FALSE(strangers_.read(fd, start_).has_value());
      ASSERT_TRUE(strangers_.holds(fd));
      ASSERT_TRUE(wait_ready(end.get(), false, Clock::now() + kPatience));
      std::byte buffer[512];
      const ssize_t got = ::recv(end.get(), buffer, sizeof buffer, 0);
      ASSERT_GT(got, 0);
      std::span<const std::byte> view(buffer, static_cast<std::size_t>(got));
      ASSERT_TRUE(handshake.consume(&view).ok());
      say(handshake.take_output());
    }
    say(encode(JoinMessage{4, test_member(joins_as)}));
    ASSERT_TRUE(wait_ready(fd, false, Clock::now() + kPatience));
    EXPECT_EQ(strangers_.read(fd, start_).has_value(), joins_as == 1);
    EXPECT_FALSE(strangers_.holds(fd));
  }
  EXPECT_THAT(last_line, HasSubstr("another rank than it proved"));
}

TEST_F(StrangersPatience, NeverTurnRankZeroAway) {
  auto ends = connected_pair();
  ASSERT_TRUE(ends.has_value());
  const int fd = strangers_.add_local(std::move(ends->first), start_);
  EXPECT_EQ(strangers_.next_due(start_), kNever);
  strangers_.expire(start_ + seconds(3600));
  EXPECT_TRUE(strangers_.holds(fd));
}

TEST_F(StrangersPatience, PauseOnceWhenThereAreNoDescriptorsLeft) {
  const GuardedFd waiting = connect();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const int refused = strangers_.accept(listener_, start_);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(refused, -1);
  EXPECT_THAT(last_line, AllOf(HasSubstr("connections wait"), HasSubstr("ulimit -n"),
                               Not(HasSubstr("refused"))));
  EXPECT_FALSE(strangers_.accepting(start_));
  const TimePoint over = strangers_.next_due(start_);
  EXPECT_GT(over, start_);
  strangers_.expire(over);
  EXPECT_TRUE(strangers_.accepting(over));
  EXPECT_EQ(strangers_.next_due(over), kNever)
      << "a pause that is over would keep the arbiter awake";
  EXPECT_TRUE(eventually([&] { return strangers_.accept(listener_, over) >= 0; }));
}

}  // namespace
}  // namespace unisono::rendezvous
