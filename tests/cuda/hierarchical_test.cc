// All-reduces of ranks with GPUs on several hosts: over the GPUs of each host, and slices between
// hosts. Each test starts its ranks before this process has touched a driver.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <utility>

#include "tests/collective/matrix_cases.h"
#include "tests/cuda/device_user.h"
#include "tests/cuda/host_job.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

// Which rank is where: as many on each host, together or in turn.
const std::vector<int> kTwoByTwo = {0, 0, 1, 1};
const std::vector<int> kInTurn = {0, 1, 0, 1};
const std::vector<int> kTwoByThree = {0, 0, 0, 1, 1, 1};
const std::vector<int> kThreeByTwo = {0, 1, 2, 2, 1, 0};

// Bytes that were sent to each rank.
std::vector<std::uint64_t> sent_in(Communicator& comm, const std::function<void()>& calls) {
  const TrafficReport before = comm.traffic();
  calls();
  const TrafficReport moved = comm.traffic() - before;
  std::vector<std::uint64_t> sent;
  for (const Traffic& traffic : moved.by_peer) sent.push_back(traffic.bytes_sent);
  return sent;
}

void run_one(Communicator& comm, CollectiveCase c, DeviceUser& user) {
  c.options.stream = user.stream();
  const std::string wrong = run_case(comm, c, &user.memory());
  require(wrong.empty(), describe(c) + ": " + wrong);
}

// Every type and meaningful operator once, a little more than a mebibyte, in counts and places that
// divide badly.
std::vector<CollectiveCase> every_reduction(int ranks) {
  std::vector<CollectiveCase> cases;
  std::set<std::pair<DataType, OpKind>> known;
  for (CollectiveCase c : cases_of_job(0, ranks)) {
    if (c.collective != Collective::kAllReduce || c.options.order == Order::kCanonical) continue;
    if (!known.insert({c.type, c.op}).second) continue;
    c.count = kMebibyte / size_of(c.type) + 7 * cases.size() + 1;
    c.in_place = cases.size() % 2 == 0;
    c.skew = cases.size() % 3 == 0 ? size_of(c.type) : 0;
    cases.push_back(c);
  }
  return cases;
}

class Hierarchical : public testing::TestWithParam<std::pair<std::vector<int>, bool>> {
 protected:
  HostJob job() const { return {.hosts = GetParam().first, .processes = GetParam().second}; }
};

TEST_P(Hierarchical, EveryTypeAndOperatorEqualsTheOracle) {
  run_hosts(job(), [](Communicator& comm) {
    DeviceUser user;
    std::size_t number = 0;
    for (const CollectiveCase& c : every_reduction(comm.size())) {
      if (is_sanitized() && !is_full_run() && number++ % 5 != 0) continue;
      run_one(comm, c, user);
    }
  });
}

TEST_P(Hierarchical, SeveralPartsEqualTheOracle) {
  run_hosts(job(), [](Communicator& comm) {
    DeviceUser user;
    for (const bool in_place : {false, true}) {
      run_one(comm,
              {.collective = Collective::kAllReduce,
               .type = DataType::kFloat32,
               .count = 30 * kMebibyte / 4 + 33,
               .in_place = in_place,
               .skew = 4},
              user);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, Hierarchical,
                         testing::Values(std::pair(kTwoByTwo, false), std::pair(kInTurn, false),
                                         std::pair(kTwoByThree, false),
                                         std::pair(kThreeByTwo, false), std::pair(kTwoByTwo, true),
                                         std::pair(kTwoByThree, true),
                                         std::pair(kThreeByTwo, true)),
                         [](const auto& instance) {
                           std::string name = instance.param.second ? "Processes" : "Threads";
                           for (const int host : instance.param.first) name += std::to_string(host);
                           return name;
                         });

TEST(HierarchicalTraffic, IsOnlyTheSliceAndOnlyForTheRankOfTheSamePlace) {
  run_hosts({.hosts = kTwoByTwo}, [](Communicator& comm) {
    DeviceUser user;
    const std::size_t count = 3 * kMebibyte;
    float* const data = user.make(std::vector<float>(count, 1.0F));
    const std::vector<std::uint64_t> sent = sent_in(comm, [&] {
      comm.all_reduce(data, data, count, DataType::kFloat32, sum, {.stream = user.stream()});
      user.finish();
    });
    const Rank across = (comm.rank() + 2) % 4;
    for (Rank peer = 0; peer < 4; ++peer) {
      const std::uint64_t want = peer == across ? count * 4 / 2 : 0;
      require(sent[static_cast<std::size_t>(peer)] == want,
              "rank " + std::to_string(comm.rank()) + " sent " +
                  std::to_string(sent[static_cast<std::size_t>(peer)]) + " bytes to rank " +
                  std::to_string(peer) + ", not " + std::to_string(want));
    }
  });
}

}  // namespace
}  // namespace unisono::test
