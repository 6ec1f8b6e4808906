// The arbiter's waiting room by itself, with a clock of the test's own: who is turned away when,
// and what happens when there are no descriptors left.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/log.h"
#include "rendezvous/strangers.h"
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
      : listener_(std::move(*listen_tcp("127.0.0.1", 0))), strangers_("job", test_key()) {
    last_line.clear();
    log::set_hook([](log::Level, std::string_view line) { last_line = line; });
  }
  ~StrangersPatience() override { log::set_hook(nullptr); }

  UniqueFd connect() {
    auto fd = connect_tcp("127.0.0.1", listener_.port, Clock::now() + kPatience);
    EXPECT_TRUE(fd.has_value()) << fd.status().message();
    return std::move(*fd);
  }
  // The arbiter's descriptor of a new stranger, and its other end.
  std::pair<int, UniqueFd> arrive() {
    UniqueFd other = connect();
    int fd = -1;
    EXPECT_TRUE(eventually([&] { return (fd = strangers_.accept(listener_, start_)) >= 0; }));
    return {fd, std::move(other)};
  }

  const TimePoint start_ = Clock::now();
  Listener listener_;
  Strangers strangers_;
};

TEST_F(StrangersPatience, HurriesOnlyThoseWhoHaveSaidNothing) {
  auto [speaker, speaker_end] = arrive();
  ASSERT_EQ(::send(speaker_end.get(), "unis", 4, 0), 4);
  ASSERT_TRUE(wait_ready(speaker, false, Clock::now() + kPatience));
  EXPECT_FALSE(strangers_.read(speaker, start_).has_value());
  std::vector<UniqueFd> ends;
  std::vector<int> silent;
  while (strangers_.accepting(start_)) {
    auto [fd, end] = arrive();
    silent.push_back(fd);
    ends.push_back(std::move(end));
  }
  ASSERT_EQ(silent.size(), kStrangersMax - 1);
  EXPECT_EQ(strangers_.next_due(), start_ + milliseconds(100));
  strangers_.expire(start_ + milliseconds(100));
  EXPECT_TRUE(strangers_.holds(speaker)) << "a rank that is about to prove itself";
  for (const int fd : silent) EXPECT_FALSE(strangers_.holds(fd));
  strangers_.expire(start_ + kStrangerTime);
  EXPECT_FALSE(strangers_.holds(speaker));
}

TEST_F(StrangersPatience, NeverTurnRankZeroAway) {
  auto ends = connected_pair();
  ASSERT_TRUE(ends.has_value());
  const int fd = strangers_.add_local(std::move(ends->first), start_);
  EXPECT_EQ(strangers_.next_due(), kNever);
  strangers_.expire(start_ + seconds(3600));
  EXPECT_TRUE(strangers_.holds(fd));
}

TEST_F(StrangersPatience, PauseOnceWhenThereAreNoDescriptorsLeft) {
  const UniqueFd waiting = connect();
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
  const TimePoint over = strangers_.next_due();
  EXPECT_GT(over, start_);
  strangers_.expire(over);
  EXPECT_TRUE(strangers_.accepting(over));
  EXPECT_EQ(strangers_.next_due(), kNever) << "a pause that is over would keep the arbiter awake";
  EXPECT_TRUE(eventually([&] { return strangers_.accept(listener_, over) >= 0; }));
}

}  // namespace
}  // namespace unisono::rendezvous
