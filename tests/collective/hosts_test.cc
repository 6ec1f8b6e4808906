// Ranks on several hosts: the links between these are measured when the ranks meet, and what all
// ranks run follows from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/limits.h"
#include "tests/support/host_job.h"
#include "tests/support/setting.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

HostJob ranks_on(std::vector<int> hosts) {
  return {.hosts = std::move(hosts), .devices = {}, .transport = "auto"};
}

/// What all ranks say of a broadcast of a MiB.
std::set<std::string> explanations(const HostJob& job) {
  std::mutex mutex;
  std::set<std::string> said;
  run_hosts(job, [&](Communicator& comm) {
    const std::string words = comm.explain(Collective::kBroadcast, 1 << 20);
    const std::lock_guard guard(mutex);
    said.insert(words);
  });
  return said;
}

// No call is longer than that.
TEST(Hosts, ExplainWhatNoBufferHoldsAsTheLargestCall) {
  run_hosts(ranks_on({0, 1}), [](Communicator& comm) {
    EXPECT_EQ(comm.explain(Collective::kAllReduce, SIZE_MAX),
              comm.explain(Collective::kAllReduce, kBufferBytesMax));
  });
}

TEST(Hosts, MeasureTheirLinksAndAllRanksFindTheSame) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 1}, {0, 1, 2, 3}, {4, 3, 2, 1, 0}}) {
    const std::set<std::string> said = explanations(ranks_on(hosts));
    EXPECT_THAT(said, SizeIs(1));
    for (const std::string& words : said) {
      EXPECT_THAT(words, HasSubstr("because of the links between the hosts"));
      EXPECT_THAT(words, HasSubstr("predicted:"));
    }
  }
}

TEST(Hosts, MeasureNothingWhereTheSettingsSaySo) {
  const Setting off("UNISONO_MEASURE", "off");
  for (const std::string& words : explanations(ranks_on({0, 1, 2}))) {
    EXPECT_THAT(words, HasSubstr("because of the default table"));
  }
}

TEST(Hosts, CountWhereEveryRankIsOnItsOwn) {
  run_hosts(ranks_on({0, 0, 1, 1}), [](Communicator& comm) {
    const auto explain = [](const Communicator& of) {
      return of.explain(Collective::kBroadcast, 1 << 20);
    };
    EXPECT_THAT(explain(comm), Not(HasSubstr("between the hosts")));
    EXPECT_THAT(explain(comm.split(comm.rank() / 2)), Not(HasSubstr("between the hosts")));
    EXPECT_THAT(explain(comm.split(comm.rank() % 2)), HasSubstr("between the hosts"));
  });
}

TEST(Hosts, MeasureBeforeAnythingIsCounted) {
  run_hosts(ranks_on({0, 1, 2}), [](Communicator& comm) {
    const TrafficReport report = comm.traffic();
    EXPECT_EQ(std::accumulate(report.by_peer.begin(), report.by_peer.end(), std::uint64_t{0},
                              [](std::uint64_t sum, const Traffic& peer) {
                                return sum + peer.bytes_sent + peer.bytes_received;
                              }),
              0u);
  });
}

TEST(Hosts, BroadcastAndReduceEverySizeFromEveryRoot) {
  run_hosts(ranks_on({0, 1, 2, 3}), [](Communicator& comm) {
    for (const std::size_t count : {0u, 1u, 999u, 4096u, 65537u, 200'001u}) {
      for (Rank root = 0; root < comm.size(); ++root) {
        std::vector<int> data(count);
        if (comm.rank() == root) std::iota(data.begin(), data.end(), root);
        comm.broadcast(data, root);
        std::vector<int> expected(count);
        std::iota(expected.begin(), expected.end(), root);
        ASSERT_EQ(data, expected) << count << " from " << root;

        std::vector<int> sum(count);
        comm.reduce(data, sum, ops::sum, root);
        if (comm.rank() != root) continue;
        for (int& each : expected) each *= comm.size();
        ASSERT_EQ(sum, expected) << count << " to " << root;
      }
    }
  });
}

}  // namespace
}  // namespace unisono::test
