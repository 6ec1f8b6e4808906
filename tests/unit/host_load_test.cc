// Who shares a host's processors, from what ranks published. The text comes from other processes.
#include "comm/host_load.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rendezvous/messages/peer_information.h"
#include "topology/allowed_cpus.h"
#include "topology/spread.h"

namespace unisono::test {
namespace {

Member member(const std::string& host, const std::string& addresses) {
  Member made;
  made.host = host;
  made.addresses = addresses;
  return made;
}

TEST(HostLoad, JoinsTheProcessorsOfRanksThatAreBoundApart) {
  const std::vector<Member> job{member("a", "cpus 1\nunix x\n"), member("a", "shm y\ncpus 2\n"),
                                member("b", "cpus 1\n"), member("b", "cpus 1\n")};
  const std::vector<HostLoad> loads = host_loads(job);
  ASSERT_EQ(loads.size(), 4u);
  EXPECT_EQ(loads[0].ranks, 2);
  EXPECT_EQ(loads[0].cpus, 2);
  EXPECT_FALSE(loads[1].shares_cores());
  EXPECT_EQ(loads[2].cpus, 1);
  EXPECT_TRUE(loads[3].shares_cores());
}

TEST(HostLoad, CountsProcessesOfAHostAndTheRanksInThem) {
  std::vector<Member> job(4, member("a", "cpus f\n"));
  job[0].pid = job[2].pid = 7;
  job[1].pid = 8;
  job[3].host = "b";
  job[3].pid = 7;
  const std::vector<HostLoad> loads = host_loads(job);
  EXPECT_EQ(loads[0].processes, 2);
  EXPECT_EQ(loads[2].ranks_of_process, 2);
  EXPECT_EQ(loads[1].ranks_of_process, 1);
  EXPECT_EQ(loads[3].processes, 1);
}

TEST(HostLoad, ObeysTheTightestPublishedQuota) {
  const std::vector<Member> job{member("a", "cpus ff\nquota 4.000\n"),
                                member("a", "cpus ff\nquota 1.500\n"), member("a", "cpus ff\n")};
  EXPECT_EQ(host_loads(job)[2].cpus, 1);
  EXPECT_TRUE(host_loads(job)[0].shares_cores());
}

TEST(HostLoad, TellsHostsApartByEverythingThatSeparatesMemory) {
  std::vector<Member> job(3, member("a", "cpus 1\n"));
  job[1].network_namespace = 7;
  job[2].uid = 7;
  for (const HostLoad& load : host_loads(job)) EXPECT_EQ(load.ranks, 1);
}

TEST(HostLoad, TakesQuotasThatMakeNoSenseForNone) {
  for (const char* quota : {"", "-1", "nan", "inf", "1e999", "0", "2x", "1e3", "99999999999"}) {
    const std::vector<Member> job{member("a", std::string("cpus f\nquota ") + quota + "\n")};
    EXPECT_EQ(host_loads(job)[0].cpus, 4) << quota;
  }
  EXPECT_EQ(host_loads(std::vector<Member>{member("a", "")})[0].cpus, 1);
}

TEST(HostLoad, ReadsWhereRanksRun) {
  const std::vector<Member> job{member("a", "cpus 1\nplace 0 1\n"), member("a", "place 8 -1\n"),
                                member("b", "place 8191 8191\n"), member("b", "cpus 1\n")};
  EXPECT_EQ(places_of(job), (std::vector<Place>{{0, 1}, {8, -1}, {8191, 8191}, {-1, -1}}));
}

TEST(HostLoad, TakesPlacesThatMakeNoSenseForUnknown) {
  for (const char* place : {"", "1", "1 ", "1 x", "x 1", "1  2", "1 2 3", "1 2x", "-2 0", "0 -2",
                            "0 8192", "8192 0", "0 99999999999", "1\t2"}) {
    const std::vector<Member> job{member("a", std::string("place ") + place + "\n")};
    EXPECT_EQ(places_of(job).front(), Place{}) << place;
  }
}

TEST(HostLoad, ReadsWhatARankOfThisMachinePublishes) {
  const std::vector<Member> job{member("a", processor_lines())};
  EXPECT_FALSE(find_address(job[0].addresses, "cpus").empty());
  EXPECT_FALSE(host_loads(job)[0].shares_cores());
  EXPECT_FALSE(find_address(job[0].addresses, "place").empty());
  EXPECT_EQ(places_of(job).front(), topology::read_place(topology::read_allowed_cpus()));
}

}  // namespace
}  // namespace unisono::test
