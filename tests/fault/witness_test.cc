// What the ranks that are left hear of a rank of which the arbiter hears nothing, where its host is
// down, and where no more is than the link between that and the arbiter's: four network namespaces
// stand for hosts at one switch, which is a fifth. Needs root and iproute2, and is skipped without.
#include <gmock/gmock.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "tests/fault/network_host.h"
#include "tests/fault/role_report.h"
#include "tests/support/watchdog.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

int sum_at_switch() {
  if (!enter_network()) return 1;
  try {
    Communicator comm = init();
    std::vector<int> data(1000, 1);
    for (bool told = false;; told = true) {
      comm.all_reduce(data, ops::sum);
      std::this_thread::sleep_for(kPauseOfSums);
      if (!told) say("ready");
    }
  } catch (const Error& error) {
    return report(error);
  }
}

const RoleEntry switch_entry("sum_at_switch", &sum_at_switch);

constexpr int kHosts = 4;
// Of which nothing is heard; rank 0 holds the arbiter.
constexpr int kVictim = 3;

std::string address_of(int host) { return "10.78.0." + std::to_string(host + 1); }

/// A rank on each of the hosts, all at one switch.
class SwitchedJob {
 public:
  /// False: there is no leave to make a switch.
  bool connect() const {
    if (!middle_.ip("link add middle type bridge") || !middle_.ip("link set middle up")) {
      return false;
    }
    for (int i = 0; i < kHosts; ++i) {
      const std::string port = "port" + std::to_string(i);
      EXPECT_TRUE(host(i).ip("link set lo up"));
      EXPECT_TRUE(host(i).ip("link add net type veth peer name " + port + " netns " +
                             std::to_string(middle_.pid())));
      EXPECT_TRUE(middle_.ip("link set " + port + " master middle"));
      EXPECT_TRUE(middle_.ip("link set " + port + " up"));
      EXPECT_TRUE(host(i).ip("addr add " + address_of(i) + "/24 dev net"));
      EXPECT_TRUE(host(i).ip("link set net up"));
    }
    return true;
  }

  void start() {
    for (int rank = 0; rank < kHosts; ++rank) {
      ranks_.emplace_back(
          "sum_at_switch",
          std::vector<std::string>{
              "TEST_NETWORK=" + host(rank).path(), "RANK=" + std::to_string(rank),
              "WORLD_SIZE=" + std::to_string(kHosts), "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
              // Of which witnesses have a twelfth to answer in.
              std::string("UNISONO_SILENCE=") + (is_sanitized() ? "12s" : "6s"),
              "UNISONO_RENDEZVOUS=tcp://" + address_of(0) + ":4411", "UNISONO_TIMEOUT=50s",
              "UNISONO_JOB_KEY=a key of four hosts, known to all",
              "UNISONO_INTERFACE=" + address_of(rank)});
    }
    for (ChildProcess& rank : ranks_) {
      EXPECT_TRUE(rank.prints("ready", kNetworkPatience)) << rank.output();
    }
  }

  /// Nothing goes between these two any more.
  void part(int one, int other) const {
    EXPECT_TRUE(host(one).ip("route add blackhole " + address_of(other) + "/32"));
    EXPECT_TRUE(host(other).ip("route add blackhole " + address_of(one) + "/32"));
  }
  void take_down(int which) const { EXPECT_TRUE(host(which).ip("link set net down")); }
  void stop(int rank) const { ranks_[static_cast<std::size_t>(rank)].kill(SIGSTOP); }

  /// What all but the victim hear, which is the same.
  std::string told() {
    for (int rank = 0; rank < kHosts; ++rank) {
      ChildProcess& process = ranks_[static_cast<std::size_t>(rank)];
      if (rank == kVictim) continue;
      EXPECT_EQ(process.wait(kNetworkPatience), kFailed) << process.output();
      EXPECT_EQ(process.output(), ranks_[0].output());
    }
    return ranks_[0].output();
  }

 private:
  const NetworkHost& host(int index) const { return hosts_[static_cast<std::size_t>(index)]; }

  NetworkHost middle_;
  std::array<NetworkHost, kHosts> hosts_;
  std::vector<ChildProcess> ranks_;
};

// All at once, since each waits for as long as UNISONO_SILENCE.
TEST(Witnesses, TellALinkThatIsDownFromAHostThatIs) {
  const std::string lack = what_hosts_lack();
  if (!lack.empty()) GTEST_SKIP() << "no networks of its own: needs " << lack;
  SwitchedJob cut, down, stopped;
  for (const SwitchedJob* job : {&cut, &down, &stopped}) {
    if (!job->connect()) GTEST_SKIP() << "no switch of its own: needs bridges of the kernel";
  }
  for (SwitchedJob* job : {&cut, &down, &stopped}) job->start();
  cut.part(0, kVictim);
  down.take_down(kVictim);
  stopped.stop(kVictim);
  const auto silent = AllOf(HasSubstr("failed with rank failed"), HasSubstr("rank 3 (host"),
                            HasSubstr("is silent"));
  const auto missed =
      AllOf(silent, HasSubstr("; nor do rank 1 on host"), HasSubstr(" and rank 2 on host"),
            HasSubstr("reach it by UDP"), Not(HasSubstr("process lives")));
  EXPECT_THAT(cut.told(), AllOf(silent, HasSubstr("; rank 1 on host"),
                                HasSubstr(" and rank 2 on host"), HasSubstr("reach it"),
                                HasSubstr("its process lives, and what it says does not get to")));
  EXPECT_THAT(down.told(), missed);
  EXPECT_THAT(stopped.told(), missed);
}

}  // namespace
}  // namespace unisono::test
