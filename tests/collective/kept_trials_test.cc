// What a job's trials have shown is kept in a file, and the next job begins with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/handshake.h"
#include "comm/communicator_state.h"
#include "comm/init.h"
#include "comm/spawn_ranks.h"
#include "machine/facts_file.h"
#include "tests/support/rank_job.h"
#include "tests/support/setting.h"
#include "tests/support/temporary_folder.h"
#include "topology/allowed_cpus.h"

namespace unisono::test {
namespace {

using machine::find_facts;
using machine::FoundFacts;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kOfACell = 1000;
constexpr std::size_t kOfAWindow = 50'000;
constexpr int kUntilDecided = 64;  // calls of a class
// Of one that is known, which is checked first: by then no trials are over, whatever its calls
// take.
constexpr int kUndecided = 20;

const shm::SharedSegment& segment_of(Communicator& comm) {
  return *CommunicatorAccess::state(comm)->runtime().shared_segment();
}

// So many calls of two classes, with sums that are checked.
void make_calls_of_each(int calls, Communicator& comm) {
  for (const std::size_t count : {kOfACell, kOfAWindow}) {
    std::vector<float> mine(count), sum(count);
    for (int call = 0; call < calls; ++call) {
      std::fill(mine.begin(), mine.end(), static_cast<float>(comm.rank() + call));
      comm.all_reduce(mine, sum, ops::sum);
      const int n = comm.size();
      const auto expected = static_cast<float>(n * (n - 1) / 2 + n * call);
      if (sum.front() != expected || sum.back() != expected) throw std::runtime_error("a sum");
    }
  }
}

void make_calls(Communicator& comm) { make_calls_of_each(kUntilDecided, comm); }
void make_few_calls(Communicator& comm) { make_calls_of_each(kUndecided, comm); }

const WayTimes<4>& times_of(const TrialFacts& facts, std::size_t count) {
  return facts.calls[static_cast<std::size_t>(Collective::kAllReduce)]
                    [static_cast<std::size_t>(size_of_call(count * sizeof(float)))];
}

std::string text_of(const FoundFacts& found) {
  std::ostringstream text;
  text << std::ifstream(found.path).rdbuf();
  return text.str();
}

class KeptTrials : public testing::Test {
 protected:
  /// What each rank knew when the job began.
  std::vector<TrialFacts> run(int ranks, const std::function<void(Communicator&)>& body) {
    std::vector<TrialFacts> known(static_cast<std::size_t>(ranks));
    run_ranks(ranks, "shm", [&](Communicator& comm) {
      known[static_cast<std::size_t>(comm.rank())] = segment_of(comm).known();
      body(comm);
    });
    return known;
  }

  TemporaryFolder home_;
  const std::string folder_ = home_ / "cache";
  Setting setting_{"UNISONO_CACHE", folder_};
};

TEST_F(KeptTrials, AreWhereTheNextJobBegins) {
  for (const TrialFacts& known : run(2, make_calls)) EXPECT_FALSE(knows_any(known));
  const std::vector<FoundFacts> kept = find_facts(folder_);
  ASSERT_THAT(kept, SizeIs(1));
  EXPECT_EQ(kept.front().facts.identity.ranks, 2);
  EXPECT_EQ(kept.front().facts.identity.processes, 1);
  EXPECT_TRUE(has_times(times_of(kept.front().facts.trials, kOfACell)));
  EXPECT_TRUE(has_times(times_of(kept.front().facts.trials, kOfAWindow)));
  const std::string text = text_of(kept.front());
  for (const TrialFacts& known : run(2, make_few_calls)) {
    EXPECT_EQ(known, kept.front().facts.trials);
  }
  EXPECT_EQ(text_of(kept.front()), text) << "the second job had nothing to try";
}

TEST_F(KeptTrials, AreOfSoManyRanks) {
  run(2, make_calls);
  for (const TrialFacts& known : run(3, make_calls)) EXPECT_FALSE(knows_any(known));
  EXPECT_THAT(find_facts(folder_), SizeIs(2));
}

TEST_F(KeptTrials, AreOfGroupsOfAllRanks) {
  run(3, [](Communicator& comm) {
    Communicator part = comm.split(comm.rank() / 2, 0);
    make_calls(part);
  });
  EXPECT_THAT(find_facts(folder_), IsEmpty());
}

// That setting is of links between hosts.
TEST_F(KeptTrials, AreMadeWhereNoLinkIsMeasured) {
  const Setting off("UNISONO_MEASURE", "off");
  run(2, make_calls);
  const std::vector<FoundFacts> kept = find_facts(folder_);
  ASSERT_THAT(kept, SizeIs(1));
  for (const TrialFacts& known : run(2, make_calls)) EXPECT_EQ(known, kept.front().facts.trials);
}

TEST_F(KeptTrials, AreNowhereWithoutAFolder) {
  for (const std::string& folder : {std::string("off"), home_ / "no/such/folder"}) {
    const Setting setting("UNISONO_CACHE", folder);
    run(2, make_calls);
    for (const TrialFacts& known : run(2, make_calls)) EXPECT_FALSE(knows_any(known));
  }
  EXPECT_TRUE(std::filesystem::is_empty(home_.path()));
}

TEST_F(KeptTrials, AreTriedWithoutAFolder) {
  const Setting setting("UNISONO_CACHE", "off");
  run(2, [](Communicator& comm) {
    make_calls(comm);
    EXPECT_TRUE(has_times(times_of(segment_of(comm).learned(), kOfAWindow)));
  });
}

TEST_F(KeptTrials, ThatAreDamagedAreLearnedAgain) {
  run(2, make_calls);
  const std::string path = find_facts(folder_).at(0).path;
  std::ofstream(path, std::ios::app) << "x";
  for (const TrialFacts& known : run(2, make_calls)) EXPECT_FALSE(knows_any(known));
  EXPECT_THAT(find_facts(folder_), SizeIs(1));
}

// Two processes that meet, with time enough to measure.
void meet_patiently(const std::function<void(Communicator&)>& body) {
  Config config = *Config::from_environment();
  ASSERT_TRUE(config.set_transport("shm"));
  config.measuring_max = std::chrono::minutes(1);
  config.timeout = std::chrono::minutes(2);
  run_processes(
      {config, "unisono-kept-" + random_hex(24), 2, {}, body, SpawnOptions::As::kProcesses});
}

TEST_F(KeptTrials, BeginWithWhatRanksMeasureWhenTheyMeet) {
  if (machine::read_identity(topology::read_allowed_cpus(), 2, 2).cpus < 2) {
    GTEST_SKIP() << "SKIPPED: ranks that share a core measure nothing";
  }
  meet_patiently([](Communicator& comm) { comm.barrier(); });
  std::vector<FoundFacts> kept = find_facts(folder_);
  ASSERT_THAT(kept, SizeIs(1));
  EXPECT_TRUE(kept.front().facts.trials.host.are_known());
  // What no machine would show.
  TrialFacts known{};
  known.host.waits.fill(7);
  known.host.copies[0].fill(7);
  ASSERT_TRUE(machine::add_facts({folder_}, kept.front().facts.identity, known));
  meet_patiently([&](Communicator& comm) {
    if (segment_of(comm).measured() != known.host) throw std::runtime_error("it measured again");
    comm.barrier();
  });
  EXPECT_EQ(find_facts(folder_).at(0).facts.trials.host, known.host);
}

TEST_F(KeptTrials, AreNotMeasuredByOneWay) {
  const Setting window("UNISONO_ACCESS", "window");
  meet_patiently([](Communicator& comm) { comm.barrier(); });
  EXPECT_THAT(find_facts(folder_), IsEmpty());
}

TEST_F(KeptTrials, AreNotMeasuredWhereNothingCanBeKept) {
  const Setting setting("UNISONO_CACHE", home_ / "no/such/folder");
  meet_patiently([](Communicator& comm) {
    if (segment_of(comm).measured() != HostFacts{}) throw std::runtime_error("it measured");
    comm.barrier();
  });
}

// By processes, each of which has its own ring: rank 1 tries, and the first one keeps it.
TEST_F(KeptTrials, AreOfMessagesToo) {
  const std::string can_copy = home_ / "can_copy";
  spawn_processes(2, "shm", [&](Communicator& comm) {
    if (segment_of(comm).readers().all_copy && comm.rank() == 0) std::ofstream(can_copy) << "yes";
    std::vector<std::uint8_t> data(std::size_t{256} << 10);
    for (int message = 0; message < 120; ++message) {
      if (comm.rank() == 1) comm.send(data, 0);
      if (comm.rank() == 0) comm.receive(data, 1);
    }
    comm.barrier();
  });
  if (!std::filesystem::exists(can_copy)) {
    GTEST_SKIP() << "SKIPPED: processes cannot read each other here, so messages are never lent";
  }
  const std::vector<FoundFacts> kept = find_facts(folder_);
  ASSERT_THAT(kept, SizeIs(1));
  EXPECT_EQ(kept.front().facts.identity.processes, 2);
  EXPECT_TRUE(has_times(kept.front().facts.trials.messages[1])) << "of 256 KiB";
}

}  // namespace
}  // namespace unisono::test
