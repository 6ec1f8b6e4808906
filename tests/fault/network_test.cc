// Hosts that lose a network: two network namespaces stand for hosts, with a network for the ranks'
// meeting and the arbiter and one for data between them. Whoever lives hears which rank's links
// broke, and not that it died. Needs root and iproute2, and is skipped without.
// Nobody here is in a hurry: ranks pause between sums, and have time to start on a busy machine.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "tests/fault/role_report.h"
#include "tests/support/child_process.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kNetworkRanks = 3;  // the last one alone on the second host
constexpr Duration kNetworkPatience = std::chrono::seconds(60);
constexpr Duration kPauseOfSums = std::chrono::milliseconds(5);

// ---- Roles ---------------------------------------------------------------------------------

// A host: a network namespace that lives as long as this process.
int be_network() {
  const bool alone = ::unshare(CLONE_NEWNET) == 0;
  std::printf(alone ? "network\n" : "not allowed\n");
  std::fflush(stdout);
  while (alone) ::pause();
  return 1;
}

// Sums until it hears why that is over.
int sum_in_network() {
  const UniqueFd host(::open(std::getenv("TEST_NETWORK"), O_RDONLY | O_CLOEXEC));
  if (!host || ::setns(host.get(), CLONE_NEWNET) != 0) return 1;
  try {
    Communicator comm = init();
    std::vector<int> data(50'000, 1);
    for (bool told = false;; told = true) {
      comm.all_reduce(data, ops::sum);
      std::this_thread::sleep_for(kPauseOfSums);
      if (told) continue;
      std::printf("ready\n");
      std::fflush(stdout);
    }
  } catch (const Error& error) {
    std::printf("rank at fault: %d\n", error.rank());
    return report(error);
  }
}

const RoleEntry network_entry("be_network", &be_network);
const RoleEntry sum_entry("sum_in_network", &sum_in_network);

// ---- Hosts and their job -------------------------------------------------------------------

bool succeeds(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

class Host {
 public:
  Host() : process_("be_network", {}), is_made_(process_.prints("network", kNetworkPatience)) {}
  bool is_made() const { return is_made_; }
  pid_t pid() const { return process_.pid(); }
  std::string path() const { return "/proc/" + std::to_string(pid()) + "/ns/net"; }
  /// `ip` with these arguments, there; whether it succeeded.
  bool ip(const std::string& arguments) const {
    return succeeds("nsenter --net=" + path() + " ip " + arguments);
  }

 private:
  ChildProcess process_;
  bool is_made_;
};

// Empty: nothing.
std::string what_hosts_lack() {
  if (::geteuid() != 0) return "root";
  if (!succeeds("ip -V")) return "ip (package iproute2)";
  if (!succeeds("nsenter -V")) return "nsenter (package util-linux)";
  if (!Host().is_made()) return "leave to make a network namespace (unshare)";
  return "";
}

/// Two hosts, 10.77.0.0/24 (control) and 10.77.1.0/24 (data) between them.
struct Hosts {
  Host first, second;

  void connect() const {
    ASSERT_TRUE(first.is_made() && second.is_made());
    EXPECT_TRUE(first.ip("link set lo up") && second.ip("link set lo up"));
    const char* const names[] = {"control", "data"};
    for (int i = 0; i < 2; ++i) {
      const std::string name = names[i], network = "10.77." + std::to_string(i) + ".";
      EXPECT_TRUE(first.ip("link add " + name + " type veth peer name " + name + " netns " +
                           std::to_string(second.pid())));
      const Host* const hosts[] = {&first, &second};
      for (int host = 0; host < 2; ++host) {
        EXPECT_TRUE(
            hosts[host]->ip("addr add " + network + std::to_string(host + 1) + "/24 dev " + name));
        EXPECT_TRUE(hosts[host]->ip("link set " + name + " up"));
      }
    }
  }
};

/// What is done to the second host.
struct Loss {
  const char* name;
  std::vector<std::string> commands;
  bool keeps_control;
};

class LossJob {
 public:
  explicit LossJob(const Loss& loss) : loss_(loss) {}

  void start() {
    hosts_.connect();
    // Where a link is what breaks, no rank may be taken for silent before.
    const std::string silence = loss_.keeps_control ? "15s" : "3s";
    const std::string network = loss_.keeps_control ? "10.77.1." : "10.77.0.";
    for (int rank = 0; rank < kNetworkRanks; ++rank) {
      const bool is_alone = rank == kNetworkRanks - 1;
      ranks_.emplace_back(
          "sum_in_network",
          std::vector<std::string>{
              "TEST_NETWORK=" + (is_alone ? hosts_.second : hosts_.first).path(),
              "RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(kNetworkRanks),
              "LOCAL_RANK=" + std::to_string(is_alone ? 0 : rank),
              "LOCAL_WORLD_SIZE=" + std::to_string(is_alone ? 1 : 2),
              "UNISONO_RENDEZVOUS=tcp://10.77.0.1:4411", "UNISONO_TIMEOUT=50s",
              "UNISONO_SILENCE=" + silence, "UNISONO_JOB_KEY=a key of two hosts, known to all",
              "UNISONO_INTERFACE=" + network + (is_alone ? "2" : "1")});
    }
    for (ChildProcess& rank : ranks_) {
      EXPECT_TRUE(rank.prints("ready", kNetworkPatience)) << rank.output();
    }
  }

  void lose() const {
    for (const std::string& command : loss_.commands) {
      EXPECT_TRUE(hosts_.second.ip(command)) << command;
    }
  }

  void judge() {
    SCOPED_TRACE(loss_.name);
    for (ChildProcess& rank : ranks_) {
      EXPECT_EQ(rank.wait(kNetworkPatience), kFailed) << rank.output();
      EXPECT_THAT(rank.output(),
                  AllOf(HasSubstr("failed with rank failed"), Not(HasSubstr("died"))));
    }
    if (loss_.keeps_control) {
      expect_broken_link();
    } else {
      expect_silence();
    }
  }

 private:
  // Which end of one link it was nobody can know; but all say the same.
  void expect_broken_link() {
    for (ChildProcess& rank : ranks_) {
      EXPECT_EQ(rank.output(), ranks_[0].output());
      EXPECT_THAT(rank.output(), AllOf(HasSubstr("link"), HasSubstr("rank 2 (host")));
    }
  }
  void expect_silence() {
    for (int rank = 0; rank < kNetworkRanks; ++rank) {
      const std::string& said = ranks_[static_cast<std::size_t>(rank)].output();
      const bool is_alone = rank == kNetworkRanks - 1;
      EXPECT_THAT(said, HasSubstr(is_alone ? "rank at fault: 0" : "rank at fault: 2"));
      EXPECT_THAT(said, HasSubstr("is silent"));
    }
  }

  const Loss& loss_;
  Hosts hosts_;
  std::vector<ChildProcess> ranks_;
};

// All at once, since each waits for seconds: what is lost silently is dead after 5 s without an
// acknowledgement (StreamOptions::unacknowledged_max), a rank after UNISONO_SILENCE.
TEST(LostNetwork, IsToldToAllByTheRankThatLostItsLinks) {
  const std::string lack = what_hosts_lack();
  if (!lack.empty()) GTEST_SKIP() << "no networks of its own: needs " << lack;
  const std::string data = "10.77.1.0/24";
  const std::vector<Loss> losses = {
      {"data link down", {"link set data down"}, true},
      {"data route away",
       {"route replace unreachable " + data + " metric 0", "addr flush dev data scope link"},
       true},
      {"data dropped", {"route add blackhole 10.77.1.1/32"}, true},
      {"all links down", {"link set data down", "link set control down"}, false},
  };
  std::vector<std::unique_ptr<LossJob>> jobs;
  for (const Loss& loss : losses) jobs.push_back(std::make_unique<LossJob>(loss));
  for (const auto& job : jobs) job->start();
  for (const auto& job : jobs) job->lose();
  for (const auto& job : jobs) job->judge();
}

}  // namespace
}  // namespace unisono::test
