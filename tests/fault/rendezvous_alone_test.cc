// Worlds of one rank, and what of init() needs no peer.
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/fault/role_report.h"
#include "tests/support/child_process.h"
#include "tests/support/map_store.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using testing::HasSubstr;

int meet_by_an_unknown_transport() {
  try {
    const Communicator comm = init({.transport = "tpc"});
    return 0;
  } catch (const Error& error) {
    return report(error);
  }
}

// However many ranks the launcher has started.
int meet_alone() {
  try {
    const bool by_place = std::getenv("UNISONO_RENDEZVOUS") != nullptr;
    const Communicator comm = by_place ? init() : init({.size = 1});
    std::printf("rank %d of %d\n", comm.rank(), comm.size());
    return 0;
  } catch (const Error& error) {
    return report(error);
  }
}

int meet_at_a_store() {
  try {
    MapStore store;
    const Communicator comm = init({.store = &store});
    std::printf("rank %d of %d\\n", comm.rank(), comm.size());
    return 0;
  } catch (const Error& error) {
    return report(error);
  }
}

int join_alone() {
  try {
    MapStore store;
    const Communicator comm = join(store, "alone", 0, 1);
    std::printf("rank %d of %d\n", comm.rank(), comm.size());
    return 0;
  } catch (const Error& error) {
    return report(error);
  }
}

// Threads that init() a world of one at the same time, again and again: one gets it, and it can be
// had again once it is closed.
int meet_on_threads() {
  constexpr int kThreads = 4, kRounds = 100;
  std::barrier line(kThreads);
  std::atomic<int> joined{0}, refused{0}, wrong_rounds{0};
  const auto run = [&](bool counts) {
    for (int round = 0; round < kRounds; ++round) {
      Communicator comm;
      line.arrive_and_wait();
      try {
        comm = init();
        joined.fetch_add(1);
      } catch (const Error& error) {
        refused.fetch_add(error.code() == ErrorCode::kInvalidArgument ? 1 : 0);
      }
      line.arrive_and_wait();
      if (counts && (joined.exchange(0) != 1 || refused.exchange(0) != kThreads - 1)) {
        wrong_rounds.fetch_add(1);
      }
      comm.close();
      line.arrive_and_wait();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(run, i == 0);
  for (std::thread& thread : threads) thread.join();
  std::printf("%d of %d rounds went wrong\n", wrong_rounds.load(), kRounds);
  return wrong_rounds.load() == 0 ? 0 : 6;
}

const RoleEntry threads_entry("meet_on_threads", &meet_on_threads);
const RoleEntry unknown_entry("meet_by_an_unknown_transport", &meet_by_an_unknown_transport);
const RoleEntry store_entry("meet_at_a_store", &meet_at_a_store);
const RoleEntry join_entry("join_alone", &join_alone);
const RoleEntry alone_entry("meet_alone", &meet_alone);

TEST(RendezvousAlone, IsWhatWasAskedForUnderALauncherToo) {
  const std::vector<std::string> launched{"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4",
                                          "OMPI_COMM_WORLD_LOCAL_RANK=2",
                                          "OMPI_COMM_WORLD_LOCAL_SIZE=4"};
  std::vector<std::string> by_place = launched;
  by_place.push_back("UNISONO_RENDEZVOUS=alone://");
  for (const auto& environment : {launched, by_place}) {
    ChildProcess child("meet_alone", environment);
    EXPECT_EQ(child.wait(), 0) << child.output();
    EXPECT_THAT(child.output(), HasSubstr("rank 0 of 1"));
  }
}

// Each rank would work alone.
TEST(RendezvousAlone, IsNotWhatAPlaceIsGivenForWithoutRankOrSize) {
  const std::string key = "UNISONO_JOB_KEY=" + std::string(64, 'a');
  const std::vector<std::vector<std::string>> places{
      {"UNISONO_RENDEZVOUS=tcp://127.0.0.1:29500", key},
      {"UNISONO_RENDEZVOUS=file:///nonexistent/meet"},
      {}};
  const std::vector<std::pair<std::vector<std::string>, std::string>> told{
      {{}, "RANK and WORLD_SIZE are not set"},
      {{"RANK=0"}, "and WORLD_SIZE is not set"},
      {{"WORLD_SIZE=1"}, "and RANK is not set"}};
  for (const auto& place : places) {
    for (const auto& [variables, complaint] : told) {
      std::vector<std::string> environment = place;
      environment.insert(environment.end(), variables.begin(), variables.end());
      ChildProcess child(place.empty() ? "meet_at_a_store" : "meet_alone", environment);
      EXPECT_EQ(child.wait(), kFailed) << child.output();
      EXPECT_THAT(child.output(), HasSubstr(complaint));
      EXPECT_THAT(child.output(), HasSubstr("init: invalid argument: the ranks meet at"));
    }
  }
}

TEST(RendezvousAlone, IsWhatALauncherOfOneProcessMeansWhateverThePlace) {
  ChildProcess child("meet_alone", {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1",
                                    "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=1",
                                    "UNISONO_RENDEZVOUS=file:///nonexistent/meet"});
  EXPECT_EQ(child.wait(), 0) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("rank 0 of 1"));
}

// Otherwise every rank of the host would take the first device.
TEST(RendezvousAlone, JoinRefusesALocalRankThatIsNone) {
  ChildProcess child("join_alone", {"LOCAL_RANK=first"});
  EXPECT_EQ(child.wait(), kFailed) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("join: invalid argument: LOCAL_RANK"));
}

TEST(RendezvousAlone, JoinMindsNothingElseThatALauncherSays) {
  ChildProcess child("join_alone", {"RANK=first", "WORLD_SIZE=many", "LOCAL_RANK=0"});
  EXPECT_EQ(child.wait(), 0) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("rank 0 of 1"));
}

TEST(RendezvousAlone, OfThreadsThatInitAtOnceOneJoins) {
  ChildProcess child("meet_on_threads", {});
  EXPECT_EQ(child.wait(), 0) << child.output();
}

TEST(RendezvousAlone, AnUnknownTransportOfTheOptionsIsAnErrorThatListsTheKnown) {
  ChildProcess child("meet_by_an_unknown_transport", {});
  EXPECT_EQ(child.wait(), kFailed) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("invalid argument: no transport is called 'tpc'"));
  EXPECT_THAT(child.output(), HasSubstr("auto, shm, tcp, unix, verbs, loopback"));
  for (const auto as : {SpawnOptions::As::kThreads, SpawnOptions::As::kProcesses}) {
    try {
      spawn(1, [](Communicator&) { ADD_FAILURE() << "ran"; }, {.as = as, .transport = "tpc"});
      ADD_FAILURE() << "an unknown transport was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("spawn: invalid argument: no transport is called 'tpc'"));
    }
  }
}

}  // namespace
}  // namespace unisono::test
