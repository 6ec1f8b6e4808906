// init() as processes do it: by variables, files and ports; what is said when it cannot work, and
// that nothing is left behind.
#include <arpa/inet.h>
#include <dirent.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/fault/role_report.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tested_transports.h"
#include "tests/support/try_limits.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

std::set<std::string> names_in(const char* folder) {
  std::set<std::string> names;
  DIR* const dir = opendir(folder);
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir)) names.insert(entry->d_name);
  closedir(dir);
  return names;
}

std::size_t open_descriptors() { return names_in("/proc/self/fd").size(); }

// ---- Roles ---------------------------------------------------------------------------------

// Meets, adds, closes; again and again.
int meet() {
  constexpr int kRounds = 5;
  // An arbiter that has taken over is there until the next job of the process.
  constexpr std::size_t kDescriptorsOfAnArbiter = 2;
  try {
    std::size_t descriptors = 0;
    for (int round = 0; round < kRounds; ++round) {
      Communicator comm = init();
      std::vector<float> small{static_cast<float>(comm.rank() + 1)};
      std::vector<float> large(200'000, 1.0f);
      comm.all_reduce(small, ops::sum);
      comm.all_reduce(large, ops::sum);
      std::printf("round %d: rank %d of %d, sum %g\n", round, comm.rank(), comm.size(), small[0]);
      comm.close();
      if (round == 0) descriptors = open_descriptors() + kDescriptorsOfAnArbiter;
    }
    // The arbiter's thread ends when the others have gone, which may be a moment later.
    for (int looks = 0; looks < 2000 && open_descriptors() > descriptors; ++looks) usleep(1000);
    std::printf("descriptors: %zu then %zu\n", descriptors, open_descriptors());
    return open_descriptors() <= descriptors ? 0 : 5;
  } catch (const Error& error) {
    return report(error);
  }
}

// Waits for its peers for ever.
int stay() {
  try {
    Communicator comm = init();
    std::printf("ready\n");
    std::fflush(stdout);
    for (;;) comm.barrier();
  } catch (const Error& error) {
    return report(error);
  }
}

// init() before close(): refused, and the first one goes on.
int meet_twice_at_once() {
  try {
    Communicator comm = init();
    try {
      const Communicator second = init();
      return 6;
    } catch (const Error& error) {
      std::printf("refused with %s\n", std::string(name_of(error.code())).c_str());
    }
    comm.barrier();
    return 0;
  } catch (const Error& error) {
    return report(error);
  }
}

const RoleEntry meet_entry("meet", &meet);
const RoleEntry stay_entry("stay", &stay);
const RoleEntry twice_entry("meet_twice_at_once", &meet_twice_at_once);

// ---- Helpers -------------------------------------------------------------------------------

using Environment = std::vector<std::string>;

Environment with(Environment environment, const Environment& more) {
  environment.insert(environment.end(), more.begin(), more.end());
  return environment;
}

Environment rank_of(int rank, int size, const Environment& more) {
  return with({"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size),
               "LOCAL_RANK=" + std::to_string(rank), "LOCAL_WORLD_SIZE=" + std::to_string(size),
               "UNISONO_TIMEOUT=10s"},
              more);
}

Environment launcher() {
  return {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(free_port())};
}

// Until ranks give up: the others are processes that have to be made, and to arrive, by then.
const std::vector<milliseconds> kArrivals{milliseconds(3000), milliseconds(10'000)};

std::string timeout_of(milliseconds arrival) {
  return "UNISONO_TIMEOUT=" + std::to_string(arrival.count()) + "ms";
}

std::vector<ChildProcess> start(const char* role, int size, const Environment& common) {
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.emplace_back(role, rank_of(rank, size, common));
  return ranks;
}

void expect_all_met(std::vector<ChildProcess>& ranks) {
  const int n = static_cast<int>(ranks.size());
  for (int rank = 0; rank < n; ++rank) {
    ChildProcess& child = ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(child.wait(), 0) << child.output();
    EXPECT_THAT(child.output(),
                HasSubstr("round 1: rank " + std::to_string(rank) + " of " + std::to_string(n) +
                          ", sum " + std::to_string(n * (n + 1) / 2)));
  }
}

std::string key() { return "UNISONO_JOB_KEY=" + std::string(64, 'a'); }

// ---- Rendezvous -------------------------------------------------------------------------------

class Rendezvous : public testing::TestWithParam<std::string> {};

TEST_P(Rendezvous, ByLauncherVariablesWorksTwiceInOneProcess) {
  auto ranks = start("meet", 3, with(launcher(), {"UNISONO_TRANSPORT=" + GetParam()}));
  expect_all_met(ranks);
}

// That all are on one host shows when they have met.
TEST(RendezvousOnOneHost, SaysNothingOfANetworkThatIsNotUsed) {
  auto ranks = start("meet", 2, with(launcher(), {"LOCAL_WORLD_SIZE=", "UNISONO_LOG=info"}));
  expect_all_met(ranks);
  for (ChildProcess& child : ranks) EXPECT_THAT(child.output(), Not(HasSubstr("TCP is used")));
}

INSTANTIATE_TEST_SUITE_P(Transports, Rendezvous,
                         testing::ValuesIn(tested_transports_of_processes()),
                         [](const auto& info) { return info.param; });

TEST(RendezvousAlone, WithoutVariablesIsAWorldOfOne) {
  ChildProcess child("meet", {});
  EXPECT_EQ(child.wait(), 0) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("rank 0 of 1, sum 1"));
}

TEST(RendezvousAtOnce, RefusesASecondInitBeforeClose) {
  auto ranks = start("meet_twice_at_once", 2, launcher());
  for (ChildProcess& child : ranks) {
    EXPECT_EQ(child.wait(), 0) << child.output();
    EXPECT_THAT(child.output(), HasSubstr("refused with invalid argument"));
  }
}

// The variables of each launcher, one process after the other.
Environment by_open_mpi(int rank, int size, int local_size) {
  return {"OMPI_COMM_WORLD_RANK=" + std::to_string(rank),
          "OMPI_COMM_WORLD_SIZE=" + std::to_string(size),
          "OMPI_COMM_WORLD_LOCAL_RANK=" + std::to_string(rank),
          "OMPI_COMM_WORLD_LOCAL_SIZE=" + std::to_string(local_size),
          "PMIX_NAMESPACE=test-" + std::to_string(getpid()),
          "UNISONO_TIMEOUT=10s"};
}

Environment by_hydra(int rank, int size, int local_size) {
  return {"PMI_RANK=" + std::to_string(rank), "PMI_SIZE=" + std::to_string(size),
          "MPI_LOCALRANKID=" + std::to_string(rank),
          "MPI_LOCALNRANKS=" + std::to_string(local_size), "UNISONO_TIMEOUT=10s"};
}

Environment by_slurm(int rank, int size, int local_size) {
  return {"SLURM_PROCID=" + std::to_string(rank),
          "SLURM_NTASKS=" + std::to_string(size),
          "SLURM_STEP_NUM_TASKS=" + std::to_string(size),
          "SLURM_LOCALID=" + std::to_string(rank),
          "SLURM_NODEID=0",
          "SLURM_STEP_NUM_NODES=" + std::to_string(local_size == size ? 1 : 2),
          "SLURM_STEP_TASKS_PER_NODE=" + std::to_string(local_size),
          "SLURM_JOB_ID=" + std::to_string(getpid()),
          "SLURM_STEP_ID=0",
          "SLURM_STEP_NODELIST=127.0.0.[1-2]",
          "UNISONO_TIMEOUT=10s"};
}

struct ForeignLauncher {
  const char* name;
  Environment (*variables)(int rank, int size, int local_size);
};

class RendezvousUnder : public testing::TestWithParam<ForeignLauncher> {
 protected:
  const int port_ = free_port() - 1;  // the ranks meet at the next one
};

TEST_P(RendezvousUnder, OneHostNeedsNothingElse) {
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back("meet", GetParam().variables(rank, 2, 2));
  }
  expect_all_met(ranks);
}

TEST_P(RendezvousUnder, SeveralHostsMeetWhereTheUserSays) {
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back("meet", with(GetParam().variables(rank, 2, 1),
                                    {"UNISONO_RENDEZVOUS=", "MASTER_ADDR=127.0.0.1",
                                     "MASTER_PORT=" + std::to_string(port_), key()}));
  }
  expect_all_met(ranks);
}

TEST_P(RendezvousUnder, SeveralHostsWithoutAPlaceOrKeyAreNoWorldOfOne) {
  ChildProcess child("meet", GetParam().variables(0, 2, 1));
  EXPECT_EQ(child.wait(), kFailed) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("UNISONO_JOB_KEY"));
}

INSTANTIATE_TEST_SUITE_P(Launchers, RendezvousUnder,
                         testing::Values(ForeignLauncher{"OpenMpi", &by_open_mpi},
                                         ForeignLauncher{"Hydra", &by_hydra},
                                         ForeignLauncher{"Slurm", &by_slurm}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RendezvousUnderSlurm, SeveralHostsMeetAtTheFirstWithAKeyAlone) {
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back("meet", with(by_slurm(rank, 2, 1), {key()}));
  }
  expect_all_met(ranks);
}

TEST(RendezvousByPort, WorksWithAKey) {
  auto ranks = start("meet", 2,
                     {"UNISONO_RENDEZVOUS=tcp://127.0.0.1:" + std::to_string(free_port()), key()});
  expect_all_met(ranks);
}

TEST(RendezvousByPort, RefusesToGoWithoutAKey) {
  auto ranks =
      start("meet", 2, {"UNISONO_RENDEZVOUS=tcp://127.0.0.1:" + std::to_string(free_port())});
  for (ChildProcess& child : ranks) {
    EXPECT_EQ(child.wait(), kFailed) << child.output();
    EXPECT_THAT(child.output(), HasSubstr("UNISONO_JOB_KEY"));
  }
}

TEST(RendezvousByPort, NamesAPortThatIsTaken) {
  const UniqueFd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(bind(taken.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(listen(taken.get(), 1), 0);
  ASSERT_EQ(getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  ChildProcess child("meet", rank_of(0, 2, {"UNISONO_RENDEZVOUS=tcp://127.0.0.1:" + port, key()}));
  EXPECT_EQ(child.wait(), kFailed);
  EXPECT_THAT(child.output(), HasSubstr(port));
  EXPECT_THAT(child.output(), HasSubstr("in use"));
}

// Rank 1 has another key than rank 0, and neither says its own.
void expect_another_key_refused(const Environment& where) {
  ChildProcess first("meet", rank_of(0, 2, with(where, {key()})));
  ChildProcess second("meet",
                      rank_of(1, 2, with(where, {"UNISONO_JOB_KEY=" + std::string(64, 'b')})));
  EXPECT_EQ(second.wait(), kFailed);
  EXPECT_THAT(second.output(), HasSubstr("authentication"));
  EXPECT_THAT(second.output(), HasSubstr("UNISONO_JOB_KEY"));
  EXPECT_EQ(first.wait(), kFailed);
  EXPECT_THAT(second.output(), Not(HasSubstr("bbbb")));
  EXPECT_THAT(first.output(), Not(HasSubstr("aaaa")));
}

TEST(RendezvousByPort, RefusesARankWithAnotherKey) {
  try_limits(kArrivals, [](milliseconds arrival) {
    const Environment where{"UNISONO_RENDEZVOUS=tcp://127.0.0.1:" + std::to_string(free_port()),
                            timeout_of(arrival)};
    expect_another_key_refused(where);
  });
}

TEST(RendezvousByFile, WorksAgainOnTheSamePath) {
  const TemporaryFolder folder;
  for (int job = 0; job < 2; ++job) {
    auto ranks = start("meet", 3, {"UNISONO_RENDEZVOUS=file://" + folder.path() + "/meet"});
    expect_all_met(ranks);
  }
}

TEST(RendezvousByFile, AFileOfAKilledJobDoesNoHarm) {
  const TemporaryFolder folder;
  const Environment where{"UNISONO_RENDEZVOUS=file://" + folder.path() + "/meet"};
  {
    auto killed = start("stay", 2, where);
    for (ChildProcess& child : killed) ASSERT_TRUE(child.prints("ready")) << child.output();
    for (ChildProcess& child : killed) child.kill(SIGKILL);
    for (ChildProcess& child : killed) EXPECT_EQ(child.wait(), 1000 + SIGKILL);
  }
  auto ranks = start("meet", 2, where);
  expect_all_met(ranks);
}

// Rank 1 comes first, so that it reads what is there before rank 0 replaces it.
void expect_to_meet_in_spite_of(const std::string& text) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/meet";
  std::ofstream(path) << text;
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  const Environment where{"UNISONO_RENDEZVOUS=file://" + path};
  ChildProcess early("meet", rank_of(1, 2, with(where, {"UNISONO_TIMEOUT=300ms"})));
  EXPECT_EQ(early.wait(), kFailed) << early.output();
  EXPECT_THAT(early.output(), HasSubstr("did not reach rank 0 at the file '" + path + "'"));
  auto ranks = start("meet", 2, where);
  expect_all_met(ranks);
}

TEST(RendezvousByFile, AFileOfRubbishDoesNoHarm) {
  expect_to_meet_in_spite_of(std::string(100'000, 'x'));
  expect_to_meet_in_spite_of("unisono rendezvous 1\njob \n");
  expect_to_meet_in_spite_of("unisono rendezvous 1\n" + std::string(7000, 'x') + "\nend\n");
}

TEST(RendezvousByFile, RefusesARankWithAnotherKey) {
  try_limits(kArrivals, [](milliseconds arrival) {
    const TemporaryFolder folder;
    const Environment where{"UNISONO_RENDEZVOUS=file://" + folder.path() + "/meet",
                            timeout_of(arrival)};
    expect_another_key_refused(where);
    std::ifstream file(folder.path() + "/meet");
    const std::string left{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(left, Not(HasSubstr("aaaa"))) << "a failed start must not leave the key behind";
  });
}

TEST(RendezvousByFile, WorksWithAKey) {
  const TemporaryFolder folder;
  auto ranks = start("meet", 3, {"UNISONO_RENDEZVOUS=file://" + folder.path() + "/meet", key()});
  expect_all_met(ranks);
}

// ---- What is said when it cannot work ------------------------------------------------------

TEST(RendezvousFailure, NamesTheMissingRanks) {
  try_limits(kArrivals, [](milliseconds arrival) {
    const Environment where = with(launcher(), {timeout_of(arrival), "UNISONO_WARN_AFTER=1ms"});
    std::vector<ChildProcess> ranks;
    for (const int rank : {0, 2}) ranks.emplace_back("meet", rank_of(rank, 4, where));
    for (ChildProcess& child : ranks) {
      EXPECT_EQ(child.wait(), kFailed) << child.output();
      EXPECT_THAT(child.output(), HasSubstr("rendezvous"));
      EXPECT_THAT(child.output(), HasSubstr("1 and 3"));
    }
    EXPECT_THAT(ranks[0].output(), HasSubstr("of 4 have not arrived after"));
  });
}

TEST(RendezvousFailure, NamesRankZeroWhenItIsMissing) {
  ChildProcess child("meet", rank_of(1, 2, with(launcher(), {"UNISONO_TIMEOUT=1s"})));
  EXPECT_EQ(child.wait(), kFailed) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("rank 0"));
  EXPECT_THAT(child.output(), HasSubstr("MASTER_ADDR, MASTER_PORT or run id differ"));
}

TEST(RendezvousFailure, NamesARankThatComesTwice) {
  const Environment where = launcher();
  std::vector<ChildProcess> ranks;
  for (const int rank : {0, 1, 1}) ranks.emplace_back("meet", rank_of(rank, 3, where));
  for (ChildProcess& child : ranks) {
    EXPECT_EQ(child.wait(), kFailed) << child.output();
    EXPECT_THAT(child.output(), HasSubstr("rank 1"));
    EXPECT_THAT(child.output(), HasSubstr("twice"));
  }
}

TEST(RendezvousFailure, NamesAnotherWorldSize) {
  const Environment where = launcher();
  ChildProcess first("meet", rank_of(0, 2, where));
  ChildProcess second("meet", rank_of(1, 3, where));
  for (ChildProcess* child : {&first, &second}) {
    EXPECT_EQ(child->wait(), kFailed) << child->output();
    EXPECT_THAT(child->output(), HasSubstr("rendezvous"));
    EXPECT_THAT(child->output(), HasSubstr("2"));
    EXPECT_THAT(child->output(), HasSubstr("3"));
  }
}

TEST(RendezvousFailure, NamesDifferentTransports) {
  const Environment where = launcher();
  ChildProcess first("meet", rank_of(0, 2, with(where, {"UNISONO_TRANSPORT=tcp"})));
  ChildProcess second("meet", rank_of(1, 2, with(where, {"UNISONO_TRANSPORT=unix"})));
  for (ChildProcess* child : {&first, &second}) {
    EXPECT_EQ(child->wait(), kFailed) << child->output();
    EXPECT_THAT(child->output(), HasSubstr("differ in UNISONO_TRANSPORT, "));
    EXPECT_THAT(child->output(), HasSubstr("'tcp'"));
    EXPECT_THAT(child->output(), HasSubstr("'unix'"));
  }
}

struct BadVariable {
  const char* setting;
  const char* said;
};

class RendezvousVariable : public testing::TestWithParam<BadVariable> {};

TEST_P(RendezvousVariable, ThatIsMalformedIsNamed) {
  const BadVariable& bad = GetParam();
  ChildProcess child("meet", with({"RANK=0", "WORLD_SIZE=1"}, {bad.setting}));
  EXPECT_EQ(child.wait(), kFailed) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("invalid argument"));
  EXPECT_THAT(child.output(), HasSubstr(bad.said));
}

INSTANTIATE_TEST_SUITE_P(
    Bad, RendezvousVariable,
    testing::Values(BadVariable{"RANK=one", "RANK=one"}, BadVariable{"RANK=-1", "RANK=-1"},
                    BadVariable{"RANK=7", "7"}, BadVariable{"WORLD_SIZE=0", "WORLD_SIZE=0"},
                    BadVariable{"WORLD_SIZE=99999999999", "WORLD_SIZE"},
                    BadVariable{"MASTER_PORT=70000", "MASTER_PORT=70000"},
                    BadVariable{"WORLD_SIZE=65537", "65536"},
                    BadVariable{"UNISONO_TIMEOUT=soon", "UNISONO_TIMEOUT=soon"},
                    BadVariable{"UNISONO_TIMEOUT=200000000min", "365 days"},
                    BadVariable{"UNISONO_WARN_AFTER=525601min", "365 days"},
                    BadVariable{"UNISONO_SCRATCH_BYTES=1048577G", "1048576G"},
                    BadVariable{"UNISONO_TRANSPORT=pigeon", "UNISONO_TRANSPORT=pigeon"},
                    BadVariable{"UNISONO_JOB_KEY=short", "UNISONO_JOB_KEY"},
                    BadVariable{"UNISONO_STREAMS=9", "UNISONO_STREAMS=9"},
                    BadVariable{"UNISONO_ALGORITHM=all_reduce", "UNISONO_ALGORITHM"},
                    BadVariable{"UNISONO_ALGORITHM=all_reduce=quick", "quick"},
                    BadVariable{"UNISONO_ALGORITHM=all_reduc=ring", "is called 'all_reduc'"},
                    BadVariable{"UNISONO_RENDEZVOUS=carrier://x", "carrier://x"},
                    BadVariable{"UNISONO_TUNING=/no/such/file", "/no/such/file"},
                    BadVariable{"UNISONO_TRANSPROT=tcp", "UNISONO_TRANSPROT"}));

TEST(RendezvousVariables, ATuningFileThatIsMalformedIsNamedByLine) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/tuning";
  for (const char* line :
       {"all_reduce any 1", "all_reduce any 0 4 any any ring - 0",
        "all_reduce any 1 4 any any quick - 0", "nothing any 1 4 any any ring - 0",
        "all_reduce any 1 4 any -5 ring - 0", "all_reduce any 1 4 any any ring - x",
        "all_reduce any 1 4 any any ring - 99999999999999999999999"}) {
    std::ofstream(path) << "# a comment\nall_reduce any 1 4 any any ring - 0\n" << line << "\n";
    ChildProcess child("meet", {"RANK=0", "WORLD_SIZE=1", "UNISONO_TUNING=" + path});
    EXPECT_EQ(child.wait(), kFailed) << line << ": " << child.output();
    EXPECT_THAT(child.output(), HasSubstr("line 3")) << line;
  }
}

// ---- Nothing is left behind ----------------------------------------------------------------

class Litter : public testing::TestWithParam<std::string> {
 protected:
  // Guests of tests/vm keep their memory there and other tests a folder, and run beside this one.
  static auto shared_names() {
    auto names = names_in("/dev/shm");
    std::erase_if(names, [](const std::string& name) {
      return name.starts_with("unisono-vm.") || name.starts_with("unisono-test-");
    });
    return names;
  }
};

TEST_P(Litter, IsNotLeftByAJobThatIsKilled) {
  const auto shared_before = shared_names();
  auto ranks = start("stay", 3, with(launcher(), {"UNISONO_TRANSPORT=" + GetParam()}));
  for (ChildProcess& child : ranks) ASSERT_TRUE(child.prints("ready")) << child.output();
  EXPECT_EQ(shared_names(), shared_before) << "while the job runs";
  ranks[1].kill(SIGKILL);
  EXPECT_EQ(ranks[1].wait(), 1000 + SIGKILL);
  for (const std::size_t survivor : {0u, 2u}) {
    EXPECT_EQ(ranks[survivor].wait(), kFailed) << ranks[survivor].output();
    EXPECT_THAT(ranks[survivor].output(), HasSubstr("rank failed: rank 1"));
  }
  EXPECT_EQ(shared_names(), shared_before);
}

// Of shared memory, auto has all that there is to leave.
INSTANTIATE_TEST_SUITE_P(Transports, Litter,
                         testing::ValuesIn(tested_transports_but({"loopback", "shm"})),
                         [](const auto& info) { return info.param; });

TEST(Descriptors, OfThisProcessAreClosedWithTheRanks) {
  const auto run = [] {
    for (const std::string& transport : tested_transports()) {
      spawn(3,
            [](Communicator& comm) {
              std::vector<int> data(50'000, 1);
              comm.all_reduce(data, ops::sum);
              Communicator part = comm.split(comm.rank() % 2);
              part.all_reduce(data, ops::sum);
            },
            {.transport = transport, .timeout = std::chrono::seconds(10)});
    }
  };
  run();
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 10; ++i) run();
  // The arbiters' threads end a moment after their ranks; finished ones are collected by the next
  // job, which leaves its own.
  for (int jobs = 0; jobs < 100 && open_descriptors() > before; ++jobs) {
    spawn(2, [](Communicator& comm) { comm.barrier(); });
  }
  EXPECT_LE(open_descriptors(), before);
}

}  // namespace
}  // namespace unisono::test
