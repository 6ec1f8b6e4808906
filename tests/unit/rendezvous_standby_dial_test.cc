// A rank on its way to a standby, by sockets: what tells it that nobody listens there, and what it
// only has to try again.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/grace_periods.h"
#include "base/network.h"
#include "base/process_facts.h"
#include "rendezvous/client/standby_dial.h"
#include "rendezvous_support.h"
#include "tests/support/limit.h"

namespace unisono::rendezvous {
namespace {

const TimePoint kBegin = TimePoint() + std::chrono::hours(1);
const TimePoint kNext = kBegin + StandbyAttempt::kTurnedAwayPause;

// Rank 2 of a world of three goes to rank `standby`, which is to be found at that line.
class Way {
 public:
  explicit Way(const std::string& line, Rank standby = 1) : Way(line, standby, test_member(1)) {}
  Way(const std::string& line, Rank standby, const Member& member) {
    for (Rank rank = 0; rank < world_.size; ++rank) {
      world_.members.push_back(test_member(rank));
      world_.members.back().pid_namespace = member.pid_namespace;
    }
    Member& its = world_.members[static_cast<std::size_t>(standby)];
    its.pid = member.pid;
    its.addresses = line + "\n";
    dial_.emplace(world_, standby, RejoinMessage{world_.job_id, world_.rank, {}, {}, {}, {}},
                  kBegin);
  }
  DialOutcome at(TimePoint now) { return dial_->advance(now); }
  // The kernel may take a moment to refuse a connection.
  DialOutcome end_at(TimePoint now) {
    DialOutcome outcome = DialOutcome::kPending;
    EXPECT_TRUE(eventually([&] { return (outcome = at(now)) != DialOutcome::kPending; }));
    return outcome;
  }

 private:
  World world_{2, 3, "a job", test_key(), {}};
  std::optional<StandbyDial> dial_;
};

bool is_called(const Listener& listener) {
  return wait_ready(listener.fd.get(), false, Clock::now() + kPatience);
}

// As where many ranks lose the arbiter at once, and net.core.somaxconn is small.
TEST(StandbyDial, WaitsForAPlaceInTheQueue) {
  const std::string name = random_socket_name();
  sockaddr_un address;
  const auto bytes = unix_address(name, &address);
  ASSERT_TRUE(bytes.has_value());
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  ListeningSocket listening;
  ASSERT_EQ(listen_at(at, *bytes, {.backlog = 0}, &listening), 0);
  UniqueFd first(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(first.get(), at, *bytes), 0);
  Way way("standby-unix " + name);
  ASSERT_EQ(way.at(kBegin), DialOutcome::kPending);
  const UniqueFd accepted(::accept(listening.fd.get(), nullptr, nullptr));
  EXPECT_EQ(way.at(kNext), DialOutcome::kPending);
  EXPECT_TRUE(wait_ready(listening.fd.get(), false, Clock::now() + kPatience));
}

TEST(StandbyDial, WaitsForADescriptor) {
  const std::string name = random_socket_name();
  const auto listener = listen_unix(name);
  ASSERT_TRUE(listener.has_value());
  Way way("standby-unix " + name);
  {
    const test::Limit none(RLIMIT_NOFILE, 0);
    ASSERT_EQ(way.at(kBegin), DialOutcome::kPending);
  }
  EXPECT_EQ(way.at(kNext), DialOutcome::kPending);
  EXPECT_TRUE(is_called(*listener));
}

// Then the next standby has its turn, and this one another.
TEST(StandbyDial, WaitsForNoDescriptorForLongerThanForAnAnswer) {
  const std::string name = random_socket_name();
  const auto listener = listen_unix(name);
  ASSERT_TRUE(listener.has_value());
  for (const Rank standby : {1, 2}) {
    Way way("standby-unix " + name, standby);
    const test::Limit none(RLIMIT_NOFILE, 0);
    EXPECT_EQ(way.at(kBegin), DialOutcome::kPending);
    EXPECT_EQ(way.at(kBegin + grace::kStandbyAnswer), DialOutcome::kFailed) << "to " << standby;
  }
}

// No TCP connection leads to a group of hosts: the kernel knows no way there.
TEST(StandbyDial, WaitsForANetwork) {
  Way way("standby-tcp 4711 224.0.0.1");
  EXPECT_EQ(way.at(kBegin), DialOutcome::kPending);
  EXPECT_EQ(way.at(kNext), DialOutcome::kPending);
  EXPECT_EQ(way.at(kBegin + grace::kStandbyAnswer), DialOutcome::kFailed);
}

TEST(StandbyDial, TriesTheNextAddressAtOnceWhereThereIsNoWayToOne) {
  const auto listener = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.has_value());
  Way way("standby-tcp " + std::to_string(listener->port) + " 224.0.0.1 127.0.0.1");
  EXPECT_EQ(way.at(kBegin), DialOutcome::kPending);
  EXPECT_TRUE(is_called(*listener));
}

TEST(StandbyDial, EndsWhereNobodyListens) {
  auto listener = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.has_value());
  const std::string port = std::to_string(listener->port);
  *listener = Listener();
  EXPECT_EQ(Way("standby-tcp " + port + " 127.0.0.1 127.0.0.1").end_at(kBegin),
            DialOutcome::kAbsent);
  EXPECT_EQ(Way("standby-unix " + random_socket_name()).end_at(kBegin), DialOutcome::kAbsent);
}

// It may have had no thread for its arbiter: to pass for dead it has to be.
TEST(StandbyDial, EndsWhereNobodyListensOnceTheProcessHasEnded) {
  const std::string line = "standby-unix " + random_socket_name();
  Member member = test_member(1);
  member.pid_namespace = pid_namespace();
  if (member.pid_namespace == 0) GTEST_SKIP() << "/proc does not show this process";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(1);
  }
  member.pid = child;
  Way way(line, 1, member);
  EXPECT_EQ(way.at(kBegin), DialOutcome::kPending);
  EXPECT_EQ(Way(line, 2, member).at(kBegin), DialOutcome::kPending);
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(way.at(kNext), DialOutcome::kAbsent) << "nobody has collected it";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(Way(line, 1, member).at(kBegin), DialOutcome::kAbsent);
}

}  // namespace
}  // namespace unisono::rendezvous
