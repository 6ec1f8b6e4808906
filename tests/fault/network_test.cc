// Hosts that lose a network: two network namespaces stand for hosts, with a network for the ranks'
// meeting and the arbiter and one for data between them. Whoever lives hears which rank's links
// broke, and not that it died. Needs root and iproute2, and is skipped without.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "tests/fault/network_host.h"
#include "tests/fault/role_report.h"
#include "tests/support/child_process.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr Duration kOutage = std::chrono::seconds(2);
// The last line of who has failed: when it heard of that, in milliseconds of the one clock here.
constexpr const char* kHeardAt = "heard at ";

// ---- Roles ---------------------------------------------------------------------------------

[[noreturn]] void sum_until_it_fails(Communicator& comm, std::vector<int> data) {
  for (bool told = false;; told = true) {
    comm.all_reduce(data, ops::sum);
    std::this_thread::sleep_for(kPauseOfSums);
    if (!told) say("ready");
  }
}

// Sums until it hears why that is over.
int sum_in_network() {
  if (!enter_network()) return 1;
  TimePoint heard{};
  try {
    Communicator comm = init();
    try {
      sum_until_it_fails(comm, std::vector<int>(50'000, 1));
    } catch (const Error&) {
      heard = Clock::now();
      throw;
    }
  } catch (const Error& error) {
    if (heard == TimePoint{}) heard = Clock::now();
    std::printf("rank at fault: %d\n", error.rank());
    const int status = report(error);
    std::printf("%s%lld\n", kHeardAt,
                static_cast<long long>(heard.time_since_epoch() / std::chrono::milliseconds(1)));
    return status;
  }
}

// Sums until all ranks have done so for longer than the network is away.
int sum_on_in_network() {
  if (!enter_network()) return 1;
  try {
    Communicator comm = init();
    std::vector<int> data(50'000);
    const TimePoint end = Clock::now() + kOutage + std::chrono::seconds(2);
    for (bool told = false;;) {
      std::fill(data.begin(), data.end(), Clock::now() > end ? 1 : 0);
      comm.all_reduce(data, ops::sum);
      if (data[0] == comm.size()) return 0;
      if (!std::exchange(told, true)) say("ready");
      std::this_thread::sleep_for(kPauseOfSums);
    }
  } catch (const Error& error) {
    return report(error);
  }
}

int sum_once_in_network() {
  if (!enter_network()) return 1;
  try {
    Communicator comm = init();
    std::vector<int> data(50'000, 1);
    comm.all_reduce(data, ops::sum);
    return data[0] == comm.size() ? 0 : 1;
  } catch (const Error& error) {
    return report(error);
  }
}

// Sums until that fails, and goes on with those that are left, if it may.
int go_on_in_network() {
  if (!enter_network()) return 1;
  Communicator comm = init();
  const std::vector<int> ones_of_each(50'000, 1);
  try {
    sum_until_it_fails(comm, ones_of_each);
  } catch (const Error&) {
  }
  try {
    Communicator left = comm.shrink();
    std::vector<int> ones(1000, 1);
    left.all_reduce(ones, ops::sum);
    say("went on as " + std::to_string(ones[0]));
    return 0;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPartitioned) return report(error);
    say(error.what());
  }
  try {
    std::vector<int> data = ones_of_each;
    comm.all_reduce(data, ops::sum);
  } catch (const Error& error) {
    say("later calls: " + std::string(name_of(error.code())));
  }
  return 0;
}

const RoleEntry go_on_entry("go_on_in_network", &go_on_in_network);
const RoleEntry sum_entry("sum_in_network", &sum_in_network);
const RoleEntry sum_once_entry("sum_once_in_network", &sum_once_in_network);
const RoleEntry sum_on_entry("sum_on_in_network", &sum_on_in_network);

// ---- Hosts and their job -------------------------------------------------------------------

// See bound_retransmission_pause().
bool has_short_pauses() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int pause = 0;
  socklen_t bytes = sizeof pause;
  return ::getsockopt(socket.get(), IPPROTO_TCP, 44, &pause, &bytes) == 0;
}

/// Two hosts, 10.77.0.0/24 (control) and 10.77.1.0/24 (data) between them.
struct Hosts {
  NetworkHost first, second;

  void connect() const {
    ASSERT_TRUE(first.is_made() && second.is_made());
    EXPECT_TRUE(first.ip("link set lo up") && second.ip("link set lo up"));
    const char* const names[] = {"control", "data"};
    // Ranks that offer both offer that for data first.
    for (const int i : {1, 0}) {
      const std::string name = names[i], network = "10.77." + std::to_string(i) + ".";
      EXPECT_TRUE(first.ip("link add " + name + " type veth peer name " + name + " netns " +
                           std::to_string(second.pid())));
      const NetworkHost* const hosts[] = {&first, &second};
      for (int host = 0; host < 2; ++host) {
        EXPECT_TRUE(
            hosts[host]->ip("addr add " + network + std::to_string(host + 1) + "/24 dev " + name));
        EXPECT_TRUE(hosts[host]->ip("link set " + name + " up"));
      }
    }
  }
};

/// Which ranks are on the first host: these.
struct Split {
  int ranks = 3;
  int on_first = 2;
  std::string silence = "3s";
  std::string measure = "on";
  bool has_interface = true;  // else all addresses of a host are offered
};

/// What is done to the second host.
struct Loss {
  const char* name;
  std::vector<std::string> commands;
  bool keeps_control;
};

class LossJob {
 public:
  explicit LossJob(const Loss& loss, const char* role = "sum_in_network", const Split& split = {})
      : loss_(loss), role_(role), split_(split) {}

  void start() {
    hosts_.connect();
    start_ranks();
    for (ChildProcess& rank : ranks_) {
      EXPECT_TRUE(rank.prints("ready", kNetworkPatience)) << rank.output();
    }
  }
  /// The ranks meet when it is lost already.
  void start_without() {
    hosts_.connect();
    lose();
    start_ranks();
  }

  void lose() {
    apply(loss_);
    lost_ = Clock::now();
  }
  void apply(const Loss& loss) const {
    for (const std::string& command : loss.commands) {
      EXPECT_TRUE(hosts_.second.ip(command)) << command;
    }
  }

  /// All at once; and that the others go on.
  void end_first_host() {
    for (int rank = 0; rank < split_.on_first; ++rank) {
      ranks_[static_cast<std::size_t>(rank)].kill(SIGKILL);
    }
    const int left = split_.ranks - split_.on_first;
    for (int rank = split_.on_first; rank < split_.ranks; ++rank) {
      ChildProcess& process = ranks_[static_cast<std::size_t>(rank)];
      EXPECT_EQ(process.wait(kNetworkPatience), 0) << process.output();
      EXPECT_THAT(process.output(), HasSubstr("went on as " + std::to_string(left)));
    }
  }

  void expect_success() {
    for (ChildProcess& rank : ranks_) EXPECT_EQ(rank.wait(kNetworkPatience), 0) << rank.output();
  }

  /// That those on the first host go on together and the others hear that they may not, or that it
  /// is the other way round.
  void expect_going_on(bool of_first) {
    for (int rank = 0; rank < split_.ranks; ++rank) {
      ChildProcess& process = ranks_[static_cast<std::size_t>(rank)];
      EXPECT_EQ(process.wait(kNetworkPatience), 0) << process.output();
      const bool is_first = rank < split_.on_first;
      const int here = is_first ? split_.on_first : split_.ranks - split_.on_first;
      const std::string numbers =
          std::to_string(here) + " of " + std::to_string(split_.ranks) + " that may live";
      if (is_first == of_first) {
        EXPECT_THAT(process.output(), HasSubstr("went on as " + std::to_string(here)));
      } else {
        EXPECT_THAT(process.output(), AllOf(HasSubstr("cut off"), HasSubstr(numbers),
                                            HasSubstr("later calls: partitioned")));
      }
    }
  }

  /// `why` a link is told to be broken.
  void judge(const char* why = "") {
    SCOPED_TRACE(loss_.name);
    for (ChildProcess& rank : ranks_) {
      EXPECT_EQ(rank.wait(kNetworkPatience), kFailed) << rank.output();
      EXPECT_THAT(rank.output(),
                  AllOf(HasSubstr("failed with rank failed"), Not(HasSubstr("died"))));
    }
    if (loss_.keeps_control) {
      expect_broken_link(why);
    } else {
      expect_silence();
    }
    show_times();
  }

 private:
  void start_ranks() {
    const std::string network = loss_.keeps_control ? "10.77.1." : "10.77.0.";
    for (int rank = 0; rank < split_.ranks; ++rank) {
      const bool is_second = rank >= split_.on_first;
      const int local_size = is_second ? split_.ranks - split_.on_first : split_.on_first;
      std::vector<std::string> environment{
          "TEST_NETWORK=" + (is_second ? hosts_.second : hosts_.first).path(),
          "RANK=" + std::to_string(rank),
          "WORLD_SIZE=" + std::to_string(split_.ranks),
          "LOCAL_RANK=" + std::to_string(is_second ? rank - split_.on_first : rank),
          "LOCAL_WORLD_SIZE=" + std::to_string(local_size),
          "UNISONO_RENDEZVOUS=tcp://10.77.0.1:4411",
          "UNISONO_TIMEOUT=50s",
          "UNISONO_JOB_KEY=a key of two hosts, known to all",
          "UNISONO_SILENCE=" + split_.silence,
          "UNISONO_MEASURE=" + split_.measure};
      if (split_.has_interface) {
        environment.push_back("UNISONO_INTERFACE=" + network + (is_second ? "2" : "1"));
      }
      ranks_.emplace_back(role_, environment);
    }
  }

  // Which end of one link it was nobody can know; but all say the same.
  void expect_broken_link(const char* why) {
    for (ChildProcess& rank : ranks_) {
      EXPECT_EQ(words_of(rank), words_of(ranks_[0]));
      EXPECT_THAT(rank.output(),
                  AllOf(HasSubstr("link"), HasSubstr("rank 2 (host"), HasSubstr(why)));
    }
  }
  void expect_silence() {
    for (int rank = 0; rank < split_.ranks; ++rank) {
      const std::string& said = ranks_[static_cast<std::size_t>(rank)].output();
      const bool is_alone = rank >= split_.on_first;
      EXPECT_THAT(said, HasSubstr(is_alone ? "rank at fault: 0" : "rank at fault: 2"));
      EXPECT_THAT(said, HasSubstr("is silent"));
    }
  }

  static std::string words_of(const ChildProcess& rank) {
    return rank.output().substr(0, rank.output().rfind(kHeardAt));
  }
  /// For people (docs/reliability.md): how long after the loss each rank heard of it.
  void show_times() const {
    std::printf("%s, UNISONO_SILENCE=%s:", loss_.name, split_.silence.c_str());
    for (const ChildProcess& rank : ranks_) {
      const std::string& said = rank.output();
      const std::size_t at = said.rfind(kHeardAt);
      const std::chrono::milliseconds heard(
          at == std::string::npos ? 0 : std::atoll(said.c_str() + at + std::strlen(kHeardAt)));
      std::printf(" %.2f s",
                  std::chrono::duration<double>(heard - lost_.time_since_epoch()).count());
    }
    std::printf("\n");
  }

  const Loss& loss_;
  const char* const role_;
  const Split split_;
  TimePoint lost_{};
  Hosts hosts_;
  std::vector<ChildProcess> ranks_;
};

// Another one for figures (docs/reliability.md).
std::string silence_or(const char* usual) {
  const char* const chosen = std::getenv("TEST_SILENCE");
  return chosen != nullptr ? chosen : usual;
}

// All at once, since each waits for seconds: a rank that is not heard, and a link of which nothing
// is acknowledged, are lost after UNISONO_SILENCE.
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
  const Split split{.silence = silence_or("3s")};
  std::vector<std::unique_ptr<LossJob>> jobs;
  for (const Loss& loss : losses) {
    jobs.push_back(std::make_unique<LossJob>(loss, "sum_in_network", split));
  }
  for (const auto& job : jobs) job->start();
  for (const auto& job : jobs) job->lose();
  for (const auto& job : jobs) job->judge();
}

// The first connection is tried as the links are measured, in init(), or by the first call.
TEST(NoNetwork, IsToldToAllBeforeAnyDeadline) {
  const std::string lack = what_hosts_lack();
  if (!lack.empty()) GTEST_SKIP() << "no networks of its own: needs " << lack;
  const Loss dropped{"data dropped from the start", {"route add blackhole 10.77.1.1/32"}, true};
  const Loss unreachable{
      "no way for data from the start", {"route replace unreachable 10.77.1.0/24 metric 0"}, true};
  const Split measured{.silence = silence_or("3s")};
  const Split unmeasured{.silence = silence_or("3s"), .measure = "off"};
  std::vector<std::unique_ptr<LossJob>> jobs;
  for (const Loss* loss : {&dropped, &unreachable}) {
    for (const Split& split : {measured, unmeasured}) {
      jobs.push_back(std::make_unique<LossJob>(*loss, "sum_in_network", split));
    }
  }
  for (const auto& job : jobs) job->start_without();
  for (const auto& job : jobs) job->judge("cannot connect to rank ");
}

// The other one is that of the ranks' meeting, whose addresses are tried later.
TEST(NoNetwork, ButOneOfTwoCostsNoFailure) {
  const std::string lack = what_hosts_lack();
  if (!lack.empty()) GTEST_SKIP() << "no networks of its own: needs " << lack;
  const Loss dropped{"data dropped from the start", {"route add blackhole 10.77.1.1/32"}, true};
  const Split split{.silence = silence_or("3s"), .has_interface = false};
  LossJob job(dropped, "sum_once_in_network", split);
  job.start_without();
  job.expect_success();
}

// Where the kernel sends again what was lost once a second; older ones may pause for longer.
TEST(LostNetwork, ThatIsSoonBackCostsNoFailure) {
  const std::string lack = what_hosts_lack();
  if (!lack.empty()) GTEST_SKIP() << "no networks of its own: needs " << lack;
  if (!has_short_pauses()) GTEST_SKIP() << "TCP_RTO_MAX_MS (Linux 6.15) is unknown here";
  const Loss down{"all links down", {"link set data down", "link set control down"}, false};
  const Loss up{"all links up again", {"link set data up", "link set control up"}, false};
  // Longer than the outage by more than a busy machine takes to wake a rank.
  LossJob job(down, "sum_on_in_network", {.silence = silence_or("6s")});
  job.start();
  job.lose();
  std::this_thread::sleep_for(kOutage);
  job.apply(up);
  job.expect_success();
}

// Ranks 0 to 3 die together: a standby of the other host holds the arbiter next. Of rank 0 the
// kernel says that it is dead; the others may live for all that is known, so those that are left
// are more.
TEST(LostHost, TakesNoStandbyOfAnotherHostWithIt) {
  const std::string lack = what_hosts_lack();
  if (!lack.empty()) GTEST_SKIP() << "no networks of its own: needs " << lack;
  const Loss none{"the ranks of the first host die", {}, false};
  LossJob job(none, "go_on_in_network", {.ranks = 8, .on_first = 4});
  job.start();
  job.end_first_host();
}

// One rank of three, a half, and the arbiter alone or with three more, whose place a rank of the
// others takes.
TEST(LostNetwork, LeavesOnePartThatGoesOn) {
  const std::string lack = what_hosts_lack();
  if (!lack.empty()) GTEST_SKIP() << "no networks of its own: needs " << lack;
  const Loss down{"all links down", {"link set data down", "link set control down"}, false};
  const Split splits[] = {{.ranks = 3, .on_first = 2},
                          {.ranks = 4, .on_first = 2},
                          {.ranks = 4, .on_first = 1},
                          {.ranks = 9, .on_first = 4}};
  std::vector<std::unique_ptr<LossJob>> jobs;
  for (const Split& split : splits) {
    jobs.push_back(std::make_unique<LossJob>(down, "go_on_in_network", split));
  }
  for (const auto& job : jobs) job->start();
  for (const auto& job : jobs) job->lose();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    const bool of_first = 2 * splits[i].on_first >= splits[i].ranks;
    jobs[i]->expect_going_on(of_first);
  }
}

}  // namespace
}  // namespace unisono::test
