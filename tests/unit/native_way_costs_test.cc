// The way that is predicted to be the fastest, on hosts that were recorded (tests/unit/hosts), is
// one that took at most a tenth more than the fastest.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/collective.h"
#include "base/fnv.h"
#include "machine/facts_text.h"
#include "native/way_costs.h"

namespace unisono::test {
namespace {

using native::is_far;
using native::likely_way;
using native::predict_class;
using native::predict_costs;
using native::WayCosts;

constexpr double kNear = 1.1;

/// A text of facts without its first line and its sum. Lines that begin with '#' are for people,
/// and "except all_gather 1048576" leaves a class out.
struct RecordedHost {
  std::string name;
  machine::Facts facts;
  std::set<std::string> exceptions;
};

RecordedHost read_host(const std::filesystem::path& path) {
  const std::string empty = text_of(machine::Facts{});
  std::string lines = empty.substr(0, empty.find('\n') + 1);
  RecordedHost host{.name = path.stem().string()};
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("except ")) {
      host.exceptions.insert(line.substr(7));
    } else if (!line.starts_with("#")) {
      lines += line + "\n";
    }
  }
  const auto facts = machine::parse_facts(lines + fmt::format("sum {:016x}\n", fnv1a_64(lines)));
  EXPECT_TRUE(facts) << path << ": " << facts.error().message();
  if (facts) host.facts = *facts;
  return host;
}

std::vector<RecordedHost> all_hosts() {
  std::vector<RecordedHost> hosts;
  for (const auto& file : std::filesystem::directory_iterator(UNISONO_RECORDED_HOSTS)) {
    hosts.push_back(read_host(file.path()));
  }
  return hosts;
}

/// Calls `act` with the collective, the largest size, and the times of each class.
void for_each_class(const RecordedHost& host, const auto& act) {
  for (std::size_t c = 0; c < host.facts.trials.calls.size(); ++c) {
    for (std::size_t size = 0; size < kCallSizes; ++size) {
      const auto& times = host.facts.trials.calls[c][size];
      if (has_times(times)) act(static_cast<Collective>(c), kTriedCallMin << size, times);
    }
  }
}

WayCosts costs_on(const RecordedHost& host, Collective collective, std::size_t over) {
  const machine::Identity& identity = host.facts.identity;
  return predict_class(host.facts.trials.host, {identity.ranks, identity.cpus}, collective,
                       size_of_call(over + 1));
}

std::uint32_t least_of(const WayTimes<4>& times) {
  std::uint32_t least = times[0];
  for (const std::uint32_t time : times) least = time == 0 ? least : std::min(least, time);
  return least;
}

TEST(WayCosts, PredictWhatRecordedHostsShow) {
  int classes = 0;
  for (const RecordedHost& host : all_hosts()) {
    ASSERT_TRUE(host.facts.trials.host.are_known()) << host.name;
    for_each_class(host, [&](Collective collective, std::size_t over, const WayTimes<4>& times) {
      const std::string what = fmt::format("{} {}", name_of(collective), over);
      const WayCosts costs = costs_on(host, collective, over);
      const std::uint32_t taken = times[likely_way(costs)];
      const bool is_near = taken != 0 && taken <= kNear * least_of(times);
      EXPECT_NE(is_near, host.exceptions.contains(what))
          << host.name << ": " << what << " begins with " << name_of(kTriedPaths[likely_way(costs)])
          << "; took " << testing::PrintToString(times) << ", predicted "
          << testing::PrintToString(costs);
      ++classes;
    });
  }
  EXPECT_GT(classes, 150);
}

TEST(WayCosts, LeaveOutNoWayThatIsNearTheBest) {
  for (const RecordedHost& host : all_hosts()) {
    for_each_class(host, [&](Collective collective, std::size_t over, const WayTimes<4>& times) {
      const WayCosts costs = costs_on(host, collective, over);
      for (std::size_t way = 0; way < times.size(); ++way) {
        if (times[way] == 0 || costs[way] == 0 || !is_far(costs, way)) continue;
        EXPECT_GT(times[way], kNear * least_of(times))
            << host.name << ": " << name_of(collective) << " over " << over << " by "
            << name_of(kTriedPaths[way]);
      }
    });
  }
}

const HostFacts kPlain{.waits = {1000, 500}, .copies = {{{100, 200, 300, 400, 500, 50}}}};
constexpr std::size_t kMib = std::size_t{1} << 20;

// By hand: a block is written, the other one read, and the own one copied.
TEST(WayCosts, AreCopiesAndWaits) {
  const WayCosts costs = predict_costs(kPlain, 2, Collective::kAllGather, kMib);
  EXPECT_DOUBLE_EQ(costs[0], 100 + 200 + 50 + 1000);
  EXPECT_DOUBLE_EQ(costs[1], 300 + 400 + 50 + 1000);
  EXPECT_DOUBLE_EQ(costs[2], 500 + 50 + 2000) << "and the owner waits for its reader";
  EXPECT_DOUBLE_EQ(costs[3], costs[0]);
  const WayCosts halves = predict_costs(kPlain, 2, Collective::kAllReduce, kMib);
  EXPECT_DOUBLE_EQ(halves[0], 100 + 200 + 50 / 2 + 2000);
  EXPECT_DOUBLE_EQ(halves[2], 500 + 50 / 2 + 50 / 4. + 64 * 500 + 3000) << "of 16 KiB each";
}

// What others take of a rank's blocks fills a slot: of two ranks one block, as long as they get.
TEST(WayCosts, OfBlocksBySingleCopyAreOfPiecesThatFillASlotTogether) {
  HostFacts facts = kPlain;
  facts.copies[1] = {100, 200, 300, 400, 100, 50};  // of 256 KiB
  const WayCosts costs = predict_costs(facts, 2, Collective::kAllToAll, kMib / 2);
  EXPECT_DOUBLE_EQ(costs[2], 100 / 4. + 50 / 4. + 2000);
}

TEST(WayCosts, OfAClassAreThoseOfItsLargestCall) {
  const int size = size_of_call(100'000);  // 64 KiB < b <= 128 KiB
  EXPECT_EQ(predict_class(kPlain, {2, 2}, Collective::kAllGather, size),
            predict_costs(kPlain, 2, Collective::kAllGather, 128 << 10));
}

TEST(WayCosts, OfACellAreOfTheWaysThatAreTried) {
  const WayCosts costs = predict_class(kPlain, {2, 2}, Collective::kAllGather, size_of_call(4096));
  EXPECT_GT(costs[0], 0);
  EXPECT_GT(costs[1], 0);
  EXPECT_EQ(costs[2], 0);
  EXPECT_EQ(costs[3], 0);
}

TEST(WayCosts, AreNoneWhereRanksShareACore) {
  const int size = size_of_call(kMib);
  EXPECT_NE(predict_class(kPlain, {4, 4}, Collective::kAllToAll, size), WayCosts{});
  EXPECT_EQ(predict_class(kPlain, {4, 2}, Collective::kAllToAll, size), WayCosts{});
}

TEST(WayCosts, OfARootAreTheSlowerSides) {
  const WayCosts costs = predict_costs(kPlain, 2, Collective::kBroadcast, kMib);
  EXPECT_DOUBLE_EQ(costs[0], 200 + 100 / 16. + 1000) << "and the first piece";
}

TEST(WayCosts, AreBetweenThoseOfTheSizesMeasured) {
  HostFacts facts = kPlain;
  facts.copies[1] = {300, 400, 500, 600, 700, 250};
  const auto cost = [&](std::size_t bytes) {
    return (predict_costs(facts, 2, Collective::kAllGather, bytes)[0] - 1000) * kMib /
           static_cast<double>(bytes);
  };
  EXPECT_NEAR(cost(8 << 10), 350, 0.001);
  EXPECT_NEAR(cost(64 << 10), 650, 0.001);
  EXPECT_NEAR(cost(256 << 10), 950, 0.001);
  EXPECT_NEAR(cost(8 << 20), 950, 0.001) << "1 MiB was not measured";
}

TEST(WayCosts, AreNoneWhereNothingIsKnown) {
  const WayCosts none{};
  EXPECT_EQ(predict_costs({}, 2, Collective::kAllGather, kMib), none);
  EXPECT_EQ(predict_costs(kPlain, 1, Collective::kAllGather, kMib), none);
  EXPECT_EQ(predict_costs(kPlain, 2, Collective::kBarrier, kMib), none);
  EXPECT_EQ(predict_costs(kPlain, 2, Collective::kAllGatherV, kMib), none);
  for (std::size_t copy = 0; copy < kCopyNames.size(); ++copy) {
    HostFacts facts = kPlain;
    facts.copies[0][copy] = 0;
    const WayCosts costs = predict_costs(facts, 2, Collective::kAllGather, kMib);
    EXPECT_EQ(costs == none, copy != kKernelCopy) << "without " << kCopyNames[copy];
  }
  EXPECT_EQ(likely_way(none), 0u);
  for (std::size_t way = 0; way < none.size(); ++way) EXPECT_FALSE(is_far(none, way));
}

TEST(WayCosts, OfWhatIsRefusedAreNone) {
  HostFacts facts = kPlain;
  facts.copies[0][kKernelCopy] = 0;
  const WayCosts costs = predict_costs(facts, 2, Collective::kAllGather, kMib);
  EXPECT_EQ(costs[2], 0);
  EXPECT_FALSE(is_far(costs, 2)) << "another job's ranks may be allowed to";
  EXPECT_NE(likely_way(costs), 2u);
}

// Whatever stands in the segment, a way of those there are comes of it.
TEST(WayCosts, OfAnyFactsChooseAWay) {
  HostFacts facts;
  facts.waits.fill(~0u);
  for (auto& copies : facts.copies) copies.fill(~0u);
  for (const auto& row : {facts, kPlain}) {
    for (const std::size_t bytes : {std::size_t{1}, kMib, std::size_t{1} << 62}) {
      const WayCosts costs = predict_costs(row, 256, Collective::kAllReduce, bytes);
      EXPECT_LT(likely_way(costs), costs.size());
    }
  }
}

}  // namespace
}  // namespace unisono::test
