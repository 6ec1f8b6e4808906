// Facts about this machine and where ranks are put. Placement is tested on made-up machines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "topology/allowed_cpus.h"
#include "topology/cpu_quota.h"
#include "topology/host_identity.h"
#include "topology/memory_limit.h"
#include "topology/processors.h"
#include "topology/spread.h"

namespace unisono::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Processors made_up(int nodes, int cores_per_node) {
  Processors processors;
  for (int i = 0; i < nodes * cores_per_node; ++i) {
    processors.cores.push_back({{i}, i / cores_per_node});
  }
  processors.numa_node_count = nodes;
  return processors;
}

TEST(HostIdentity, IsStableAndHoldsTheHostname) {
  const HostIdentity first = read_host_identity();
  const HostIdentity second = read_host_identity();
  EXPECT_EQ(first.host, second.host);
  EXPECT_EQ(first.network_namespace, second.network_namespace);
  EXPECT_FALSE(first.name.empty());
  EXPECT_EQ(first.host, first.boot + "/" + first.name);
}

TEST(Processors, AreThoseThisProcessMayUse) {
  const auto processors = read_processors();
  ASSERT_TRUE(processors.has_value());
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::set<int> seen;
  for (const Core& core : processors->cores) {
    EXPECT_FALSE(core.cpus.empty());
    for (const int cpu : core.cpus) {
      EXPECT_TRUE(CPU_ISSET(cpu, &allowed)) << cpu;
      EXPECT_TRUE(seen.insert(cpu).second) << cpu << " is in two cores";
    }
  }
  EXPECT_EQ(static_cast<int>(seen.size()), CPU_COUNT(&allowed));
  EXPECT_GE(processors->usable_core_count(), 1);
}

TEST(Processors, NarrowWithTheAffinityOfTheProcess) {
  const auto before = read_processors();
  ASSERT_TRUE(before.has_value());
  std::thread([&] {
    const int last = static_cast<int>(before->cores.size()) - 1;
    ASSERT_TRUE(bind_this_thread(*before, std::vector{last}).ok());
    cpu_set_t now;
    CPU_ZERO(&now);
    ASSERT_EQ(::sched_getaffinity(0, sizeof(now), &now), 0);
    const Core& core = before->cores.back();
    EXPECT_EQ(CPU_COUNT(&now), static_cast<int>(core.cpus.size()));
    EXPECT_TRUE(CPU_ISSET(core.cpus.front(), &now));
  }).join();
}

TEST(Processors, RefuseCoresThatDoNotExist) {
  const Processors processors = made_up(1, 2);
  EXPECT_THAT(bind_this_thread(processors, std::vector{2}).message(), HasSubstr("cores 0 to 1"));
  EXPECT_FALSE(bind_this_thread(processors, std::vector{-1}).ok());
  EXPECT_FALSE(bind_this_thread(processors, std::vector<int>{}).ok());
}

TEST(Binding, GivesOneCoreEachSpreadOverNumaNodes) {
  const Processors processors = made_up(2, 4);
  EXPECT_THAT(recommended_binding(processors, 0, 2), ElementsAre(0));
  EXPECT_THAT(recommended_binding(processors, 1, 2), ElementsAre(4));
  EXPECT_THAT(recommended_binding(processors, 1, 4), ElementsAre(2));
  EXPECT_THAT(recommended_binding(processors, 7, 8), ElementsAre(7));
}

TEST(Binding, SharesCoverEveryCoreOnce) {
  for (int cores = 1; cores <= 9; ++cores) {
    const Processors processors = made_up(1, cores);
    for (int size = 1; size <= cores; ++size) {
      std::vector<int> all;
      for (int rank = 0; rank < size; ++rank) {
        const auto share = recommended_binding(processors, rank, size, Width::kShare);
        EXPECT_GE(static_cast<int>(share.size()), cores / size);
        all.insert(all.end(), share.begin(), share.end());
        EXPECT_THAT(recommended_binding(processors, rank, size), ElementsAre(share.front()));
      }
      std::vector<int> expected(static_cast<std::size_t>(cores));
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(all, expected);
    }
  }
}

TEST(Binding, IsLeftToTheSystemWithMoreRanksThanCores) {
  const Processors processors = made_up(1, 2);
  EXPECT_THAT(recommended_binding(processors, 0, 3), IsEmpty());
  EXPECT_THAT(recommended_binding(processors, 2, 2), IsEmpty());
  EXPECT_THAT(recommended_binding(processors, -1, 2), IsEmpty());
  EXPECT_THAT(recommended_binding(processors, 0, 0), IsEmpty());
}

TEST(Binding, UsableCoresRespectTheQuota) {
  Processors processors = made_up(1, 8);
  EXPECT_EQ(processors.usable_core_count(), 8);
  processors.cpu_quota = 1.5;
  EXPECT_EQ(processors.usable_core_count(), 2);
  processors.cpu_quota = 100;
  EXPECT_EQ(processors.usable_core_count(), 8);
}

TEST(AllowedCpus, OfRanksBoundOneByOneAddUp) {
  const std::vector<std::string> bound_apart{"1", "2"};
  EXPECT_EQ(count_cpus(bound_apart, 0), 2);
  const std::vector<std::string> bound_together{"1", "1"};
  EXPECT_EQ(count_cpus(bound_together, 0), 1);
  const std::vector<std::string> of_any_length{"f", "00c", "", "30"};
  EXPECT_EQ(count_cpus(of_any_length, 0), 6);
  EXPECT_EQ(count_cpus(of_any_length, 2.5), 2);
  EXPECT_EQ(count_cpus(of_any_length, 0.5), 1);
  EXPECT_EQ(count_cpus(of_any_length, 1.8e10), 6);  // as a control group may say
}

TEST(AllowedCpus, UnknownOnesCountAsOne) {
  EXPECT_EQ(count_cpus({}, 0), 1);
  const std::vector<std::string> no_masks{"", "xyz -"};
  EXPECT_EQ(count_cpus(no_masks, 0), 1);
}

TEST(AllowedCpus, JoinAndAreListed) {
  const std::string masks[]{"1", "x48", ""};
  EXPECT_EQ(join_cpus(masks), "148");
  EXPECT_EQ(list_cpus("148"), (std::vector<int>{0, 6, 11}));
  EXPECT_EQ(list_cpus(join_cpus({})), std::vector<int>());
}

// The folders of a system of eight processors: two caches of each of two nodes.
void write_system(const test::TemporaryFolder& system) {
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(system / name).parent_path());
    std::ofstream(system / name) << text << "\n";
  };
  for (int cpu = 0; cpu < 8; ++cpu) {
    const int pair = cpu / 2 * 2;
    write("cpu/cpu" + std::to_string(cpu) + "/cache/index3/shared_cpu_list",
          std::to_string(pair) + (cpu < 4 ? "-" : ",") + std::to_string(pair + 1));
  }
  write("node/online", "0-1");
  write("node/node0/cpulist", "0-3");
  write("node/node1/cpulist", "4-7");
}

TEST(Spread, CountsTheCachesAndNodesOfAMask) {
  const test::TemporaryFolder system;
  write_system(system);
  const auto spread = [&](const std::string& mask) { return read_spread(mask, system.path()); };
  EXPECT_EQ(spread("3"), (Spread{1, 1}));
  EXPECT_EQ(spread("5"), (Spread{2, 1}));
  EXPECT_EQ(spread("11"), (Spread{2, 2}));
  EXPECT_EQ(spread("03"), (Spread{1, 1}));
  EXPECT_EQ(spread("ff"), (Spread{4, 2}));
  EXPECT_EQ(spread(""), (Spread{0, 0}));
  EXPECT_EQ(read_spread("ff", system / "nowhere"), (Spread{0, 0}));
}

TEST(Place, IsWhatAllProcessorsOfAMaskHaveInCommon) {
  const test::TemporaryFolder system;
  write_system(system);
  const auto place = [&](const std::string& mask) { return read_place(mask, system.path()); };
  EXPECT_EQ(place("1"), (Place{0, 0}));
  EXPECT_EQ(place("3"), (Place{0, 0}));
  EXPECT_EQ(place("8"), (Place{2, 0}));
  EXPECT_EQ(place("5"), (Place{-1, 0}));
  EXPECT_EQ(place("11"), (Place{-1, -1}));
  EXPECT_EQ(place("0c"), (Place{6, 1}));
  EXPECT_EQ(place("ff"), (Place{-1, -1}));
  EXPECT_EQ(place("001"), (Place{-1, -1})) << "a processor that the system does not list";
  EXPECT_EQ(place(""), (Place{-1, -1}));
  EXPECT_EQ(read_place("1", system / "nowhere"), (Place{-1, -1}));
}

// hwloc, of a made-up machine of that shape, and the folders of one say the same.
TEST(Place, IsTheSameByHwlocAndByTheFolders) {
  const test::TemporaryFolder system;
  write_system(system);
  const auto processors = made_up_processors("numa:2 l3:2 core:2 pu:1");
  ASSERT_TRUE(processors) << processors.status().message();
  ASSERT_EQ(processors->cores.size(), 8u);
  const auto expect_same = [&](const std::vector<int>& cores) {
    std::string mask(2, '0');
    for (const int core : cores) {
      for (const int cpu : processors->cores[static_cast<std::size_t>(core)].cpus) {
        char& digit = mask[static_cast<std::size_t>(cpu / 4)];
        const int bits = (digit <= '9' ? digit - '0' : digit - 'a' + 10) | 1 << cpu % 4;
        digit = "0123456789abcdef"[bits];
      }
    }
    EXPECT_EQ(place_of(*processors, cores), read_place(mask, system.path())) << mask;
  };
  for (int first = 0; first < 8; ++first) {
    for (int second = first; second < 8; ++second) {
      expect_same(first == second ? std::vector{first} : std::vector{first, second});
    }
  }
  EXPECT_EQ(place_of(*processors, {}), Place{});
}

TEST(Place, OfThisMachineIsTheSameByHwlocAndByItsFolders) {
  std::thread([] {
    const auto processors = read_processors();
    ASSERT_TRUE(processors) << processors.status().message();
    for (int core = 0; core < static_cast<int>(processors->cores.size()); ++core) {
      ASSERT_TRUE(bind_this_thread(*processors, std::vector{core}).ok());
      const Place found = read_place(read_allowed_cpus());
      const Place by_hwloc = place_of(*processors, std::vector{core});
      EXPECT_EQ(found.cache, by_hwloc.cache);
      if (found.node >= 0) {
        EXPECT_EQ(found.node, by_hwloc.node);
      }
    }
  }).join();
}

TEST(Processors, AreMadeUpFromADescription) {
  const auto processors = made_up_processors("numa:2 l3:2 core:4 pu:2");
  ASSERT_TRUE(processors) << processors.status().message();
  EXPECT_EQ(processors->cores.size(), 16u);
  EXPECT_EQ(processors->numa_node_count, 2);
  EXPECT_EQ(processors->cores[15].cpus.size(), 2u);
  EXPECT_EQ(made_up_processors("nonsense").status().code(), ErrorCode::kInvalidArgument);
}

TEST(AllowedCpus, AreThoseOfTheCallingThread) {
  std::thread([] {
    const auto processors = read_processors();
    ASSERT_TRUE(processors) << "hwloc reads this machine";
    const int cpu = processors->cores.back().cpus.back();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(read_allowed_cpus(),
              std::string(static_cast<std::size_t>(cpu / 4), '0') + "1248"[cpu % 4]);
  }).join();
}

class ControlGroups : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = mount_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const test::TemporaryFolder folder_;
  const std::string& mount_ = folder_.path();
};

TEST_F(ControlGroups, GrantAllTimeWhereNothingLimits) {
  write("/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota_of("0::/\n", mount_), 0);
  EXPECT_EQ(cpu_quota_of("", mount_), 0);
  EXPECT_EQ(cpu_quota_of("nonsense\n1:2\n", mount_), 0);
}

TEST_F(ControlGroups, GrantTheLeastTimeOnTheWayUp) {
  write("/cpu.max", "400000 100000\n");
  write("/a/cpu.max", "150000 100000\n");
  write("/a/b/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(cpu_quota_of("0::/a/b\n", mount_), 1.5);
}

TEST_F(ControlGroups, GrantTimeInVersionOne) {
  write("/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n");
  write("/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(cpu_quota_of("4:cpu,cpuacct:/job\n0::/\n", mount_), 0.5);
  write("/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpu_quota_of("4:cpu,cpuacct:/job\n", mount_), 0);
}

TEST_F(ControlGroups, GrantAllMemoryWhereNothingLimits) {
  write("/memory.max", "max\n");
  EXPECT_EQ(memory_limit_of("0::/\n", mount_), 0);
  EXPECT_EQ(memory_limit_of("", mount_), 0);
  EXPECT_EQ(memory_limit_of("0::/unmounted\n", mount_), 0);
}

TEST_F(ControlGroups, GrantTheLeastMemoryOnTheWayUp) {
  write("/memory.max", "8589934592\n");
  write("/a/memory.max", "4294967296\n");
  write("/a/b/memory.max", "max\n");
  EXPECT_EQ(memory_limit_of("0::/a/b\n", mount_), 4294967296.0);
  EXPECT_EQ(memory_limit_of("0::/of/the/host\n", mount_), 8589934592.0);
}

TEST_F(ControlGroups, GrantMemoryInVersionOne) {
  write("/memory/job/memory.limit_in_bytes", "1073741824\n");
  write("/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_limit_of("7:memory:/job\n4:cpu,cpuacct:/job\n", mount_), 1073741824.0);
}

}  // namespace
}  // namespace unisono::topology
