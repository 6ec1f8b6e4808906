// The table of environment variables: what each accepts, what it refuses, and how it is shown.
#include "config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "comm/verbs_settings.h"
#include "config/launcher.h"
#include "tests/support/setting.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string shown(const std::string& name, const std::string& value) {
  const Setting setting(name, value);
  const Result<Config> config = Config::from_environment();
  return config ? value_text(*config, name) : config.error().message();
}

TEST(Config, ShowsTheDefaultOfEveryVariableAsTheTableHasIt) {
  const Config config;
  for (const ConfigVariable& variable : config_variables()) {
    if (variable.secret || variable.type == "size") continue;
    EXPECT_EQ(value_text(config, variable.name), variable.default_value) << variable.name;
  }
}

TEST(Config, ReadsTheSizesOfTheTableAsItsDefaults) {
  const Config config;
  for (const ConfigVariable& variable : config_variables()) {
    if (variable.type != "size") continue;
    const std::string name(variable.name);
    EXPECT_EQ(shown(name, std::string(variable.default_value)), value_text(config, name)) << name;
  }
}

TEST(Config, TakesTheVerbsTransport) {
  EXPECT_EQ(shown("UNISONO_TRANSPORT", "verbs"), "verbs");
  EXPECT_THAT(shown("UNISONO_TRANSPORT", "rdma"),
              HasSubstr("one of auto, shm, tcp, unix, verbs, loopback"));
}

TEST(Config, TakesVerbsSettingsWithinTheirRanges) {
  const struct {
    const char* name;
    const char* value;
    const char* shown;
  } good[]{
      {"UNISONO_VERBS_DEVICES", "mlx5_0", "mlx5_0"},
      {"UNISONO_VERBS_DEVICES", "^mlx5_0:1,rocep1s0f0.2-x:255", "^mlx5_0:1,rocep1s0f0.2-x:255"},
      {"UNISONO_VERBS_GID", "rocev1", "rocev1"},
      {"UNISONO_VERBS_GID", "10.1.2.3", "10.1.2.3"},
      {"UNISONO_VERBS_GID", "fd00::7", "fd00::7"},
      {"UNISONO_VERBS_CONNECT", "cm", "cm"},
      {"UNISONO_VERBS_SERVICE_LEVEL", "15", "15"},
      {"UNISONO_VERBS_TRAFFIC_CLASS", "255", "255"},
      {"UNISONO_VERBS_PARTITION", "0x8001", "0x8001"},
      {"UNISONO_VERBS_PARTITION", "0XABC", "0xabc"},
      {"UNISONO_VERBS_PARTITION", "32769", "0x8001"},
      {"UNISONO_VERBS_QUEUE_PAIRS", "16", "16"},
      {"UNISONO_VERBS_ACK_TIMEOUT", "1", "1"},
      {"UNISONO_VERBS_ACK_TIMEOUT", "31", "31"},
      {"UNISONO_VERBS_RETRIES", "0", "0"},
      {"UNISONO_VERBS_RELAXED_ORDERING", "off", "off"},
      {"UNISONO_VERBS_REGISTERED", "64M", "67108864"},
  };
  for (const auto& each : good) EXPECT_EQ(shown(each.name, each.value), each.shown) << each.name;
}

TEST(Config, NamesTheVerbsSettingItsValueAndWhatIsAccepted) {
  const struct {
    const char* name;
    std::vector<std::string> values;
    const char* accepted;
  } bad[]{
      {"UNISONO_VERBS_DEVICES",
       {"^", ",", "mlx5_0,", ",mlx5_0", "mlx5 0", "mlx5_0:", "mlx5_0:0", "mlx5_0:256", "a:1:2",
        "a,^b", "../x"},
       "mlx5_0,mlx5_1:2"},
      {"UNISONO_VERBS_GID", {"3", "rocev3", "10.1.2", "fd00::g", "AUTO"}, "never an index"},
      {"UNISONO_VERBS_CONNECT", {"CM", "rdma_cm", "on"}, "one of exchange, cm"},
      {"UNISONO_VERBS_SERVICE_LEVEL", {"-1", "16", "x"}, "from 0 to 15"},
      {"UNISONO_VERBS_TRAFFIC_CLASS", {"-1", "256", "0x10"}, "from 0 to 255"},
      {"UNISONO_VERBS_PARTITION",
       {"0", "0x", "0x8000", "65536", "0x10000", "-1", "ffff", "0x1g", "99999999999"},
       "from 0x1 to 0xffff"},
      {"UNISONO_VERBS_QUEUE_PAIRS", {"0", "17"}, "from 1 to 16"},
      {"UNISONO_VERBS_ACK_TIMEOUT", {"0", "32"}, "from 1 to 31"},
      {"UNISONO_VERBS_RETRIES", {"-1", "7"}, "from 0 to 6"},
      {"UNISONO_VERBS_RELAXED_ORDERING", {"yes", "1", "ON"}, "on or off"},
      {"UNISONO_VERBS_REGISTERED", {"0", "-1", "4T", "lots", "1048577G"}, "a size"},
  };
  for (const auto& each : bad) {
    for (const std::string& value : each.values) {
      EXPECT_THAT(shown(each.name, value),
                  AllOf(HasSubstr(std::string(each.name) + "=" + value + ": expected "),
                        HasSubstr(each.accepted)));
    }
  }
}

TEST(Config, TakesHowGpusAreUsedAndWhichDriver) {
  EXPECT_EQ(value_text(Config{}, "UNISONO_CUDA"), "auto");
  EXPECT_EQ(shown("UNISONO_CUDA", "require"), "require");
  EXPECT_EQ(shown("UNISONO_CUDA", "off"), "off");
  EXPECT_EQ(shown("UNISONO_MEASURE", "off"), "off");
  EXPECT_EQ(shown("UNISONO_CHECKSUM", "on"), "on");
  EXPECT_EQ(shown("UNISONO_LEVELS", "numa"), "numa");
  EXPECT_EQ(shown("UNISONO_LEVELS", "8"), "8");
  EXPECT_THAT(shown("UNISONO_LEVELS", "6"), HasSubstr("or a power of two from 2 to 128"));
  EXPECT_THAT(shown("UNISONO_MEASURE", "maybe"), HasSubstr("UNISONO_MEASURE=maybe"));
  EXPECT_EQ(value_text(Config{}, "UNISONO_CUDA_GATES"), "on");
  EXPECT_EQ(shown("UNISONO_CUDA_GATES", "off"), "off");
  EXPECT_EQ(shown("UNISONO_CUDA_LIBRARY", "/opt/driver/libcuda.so.1"), "/opt/driver/libcuda.so.1");
  EXPECT_EQ(shown("UNISONO_CUBLAS_LIBRARY", "/opt/cuda/libcublas.so.13"),
            "/opt/cuda/libcublas.so.13");
  for (const char* value : {"on", "OFF", "0", "required"}) {
    EXPECT_THAT(shown("UNISONO_CUDA", value),
                AllOf(HasSubstr("UNISONO_CUDA=" + std::string(value) + ": expected "),
                      HasSubstr("one of off, auto, require")));
  }
}

TEST(Config, KeepsFactsInTheUsersCache) {
  EXPECT_EQ(shown("UNISONO_CACHE", "off"), "off");
  EXPECT_EQ(shown("UNISONO_CACHE", "/var/cache/unisono"), "/var/cache/unisono");
  const std::filesystem::path here = std::filesystem::current_path();
  EXPECT_EQ(shown("UNISONO_CACHE", "./here"), here / "here") << "wherever the program goes";
  EXPECT_EQ(shown("UNISONO_CACHE", "../here"), here.parent_path() / "here");
  EXPECT_THAT(shown("UNISONO_CACHE", "on"), HasSubstr("UNISONO_CACHE=on: expected off or a dir"));
  const Setting home("HOME", "/home/someone");
  const Setting none("XDG_CACHE_HOME", "");
  EXPECT_EQ(shown("UNISONO_CACHE", ""), "/home/someone/.cache/unisono");
  const Setting cache("XDG_CACHE_HOME", "/scratch/someone");
  EXPECT_EQ(shown("UNISONO_CACHE", ""), "/scratch/someone/unisono");
  for (const std::string& named : {std::string(), std::string("/var/cache/unisono")}) {
    const Setting setting("UNISONO_CACHE", named);
    EXPECT_EQ(Config::from_environment()->cache_base, named.empty() ? "/scratch/someone" : "");
  }
  const Setting relative("XDG_CACHE_HOME", "scratch");
  const Setting homeless("HOME", "");
  EXPECT_EQ(shown("UNISONO_CACHE", ""), "off");
}

TEST(Config, TakesWhereOperationsAreRecorded) {
  for (const char* text : {"memory", "off", "/tmp/records", "./off"}) {
    EXPECT_EQ(shown("UNISONO_RECORDER", text), text);
    RecordSetting setting;
    EXPECT_TRUE(parse(text, &setting));
    EXPECT_EQ(text_of(setting), text);
  }
  RecordSetting setting{.folder = "/kept"};
  for (const char* text : {"of", "records", "MEMORY", "off "}) {
    EXPECT_THAT(shown("UNISONO_RECORDER", text), HasSubstr("memory, off or a directory"));
    EXPECT_FALSE(parse(text, &setting));
  }
  EXPECT_EQ(setting, RecordSetting{.folder = "/kept"});
  EXPECT_TRUE(parse("", &setting));
  EXPECT_TRUE(setting.is_memory());
}

TEST(Config, ReportsAVariableThatItDoesNotKnow) {
  const Setting setting("UNISONO_VERBS_PORTS", "1");
  const Result<Config> config = Config::from_environment();
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message(), HasSubstr("unknown variable UNISONO_VERBS_PORTS"));
}

TEST(Config, TakesTransportsThatItKnowsAlone) {
  Config config;
  EXPECT_TRUE(config.set_transport(""));
  EXPECT_EQ(config.transport, "auto");
  EXPECT_TRUE(config.set_transport("unix"));
  EXPECT_EQ(config.transport, "unix");
  const Status unknown = config.set_transport("tpc");
  EXPECT_EQ(unknown.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(unknown.message(),
              AllOf(HasSubstr("'tpc'"), HasSubstr("auto, shm, tcp, unix, verbs, loopback")));
  EXPECT_EQ(config.transport, "unix");
}

// ---- Launchers -----------------------------------------------------------------------------

using Environment = std::vector<std::pair<std::string, std::string>>;

struct Launched {
  const char* what;
  Environment environment;
  std::string launcher;  // empty: none is recognised
  int rank = -1, size = -1, local_rank = -1, local_size = -1;
  std::string address{};
  std::string run_id{};
};

Environment mpirun() {
  return {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"PMIX_RANK", "3"},
          {"PMIX_NAMESPACE", "job@1"}};
}

Environment srun() {
  return {{"SLURM_JOB_ID", "77"},
          {"SLURM_STEP_ID", "2"},
          {"SLURM_PROCID", "3"},
          {"SLURM_NTASKS", "9"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_NODEID", "1"},
          {"SLURM_TASKS_PER_NODE", "9"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
          {"SLURM_NNODES", "5"},
          {"SLURM_STEP_NODELIST", "rack2n[07-08,12]"},
          {"PMIX_RANK", "3"}};
}

Environment with(Environment environment, const Environment& more) {
  environment.insert(environment.end(), more.begin(), more.end());
  return environment;
}

std::vector<Launched> launched() {
  const std::string parent = "helper " + std::to_string(getppid());
  const Environment hydra{
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  return {
      {"nobody", {}, ""},
      {"Open MPI", mpirun(), "Open MPI", 3, 4, 1, 2, "", "job@1 "},
      {"Open MPI, one process", {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, ""},
      {"Open MPI whose daemons Slurm started", with(srun(), mpirun()), "Open MPI", 3, 4, 1, 2, "",
       "job@1 "},
      {"Open MPI and a place", with(mpirun(), {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}}),
       "Open MPI", 3, 4, 1, 2, "h", ""},
      {"Hydra", hydra, "MPICH or Intel MPI", 1, 2, 1, 2, "", parent},
      {"Hydra whose proxies Slurm started", with(srun(), hydra), "MPICH or Intel MPI", 1, 2, 1, 2,
       "", parent},
      {"PMI alone",
       {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
       "MPICH or Intel MPI",
       1,
       2,
       -1,
       -1,
       "",
       parent},
      {"Slurm", srun(), "Slurm", 3, 4, 1, 2, "rack2n07", "slurm 77.2"},
      {"Slurm that offers PMI", with(srun(), {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}), "Slurm", 3, 4,
       1, 2, "rack2n07", "slurm 77.2"},
      {"Slurm, one host", with(srun(), {{"SLURM_STEP_NUM_NODES", "1"}}), "Slurm", 3, 4, 1, 4,
       "rack2n07", "slurm 77.2"},
      {"Slurm, one task", with(srun(), {{"SLURM_STEP_NUM_TASKS", "1"}}), ""},
      {"an allocation's shell",
       {{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}},
       ""},
      {"an interactive step", with(srun(), {{"SLURM_STEP_ID", "4294967290"}, {"PMIX_RANK", ""}}),
       ""},
      {"PMIx alone", {{"PMIX_RANK", "3"}}, "PMIx", 3, -1},
      {"RANK before all", with(mpirun(), {{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "", 0, 2},
  };
}

TEST(Launchers, AreRecognisedByTheirVariables) {
  for (const Launched& each : launched()) {
    std::list<Setting> settings;  // the last is undone first
    for (const auto& [name, value] : each.environment) settings.emplace_front(name, value);
    const Result<LauncherVariables> found = LauncherVariables::from_environment();
    ASSERT_TRUE(found.has_value()) << each.what << ": " << found.error().message();
    EXPECT_EQ(found->launcher, each.launcher) << each.what;
    EXPECT_EQ(found->rank, each.rank) << each.what;
    EXPECT_EQ(found->world_size, each.size) << each.what;
    EXPECT_EQ(found->local_rank, each.local_rank) << each.what;
    EXPECT_EQ(found->local_world_size, each.local_size) << each.what;
    EXPECT_EQ(found->master_address, each.address) << each.what;
    EXPECT_EQ(found->run_id, each.run_id) << each.what;
  }
}

TEST(Launchers, SlurmsLocalRanksAndPortFollowFromItsLists) {
  const auto read = [](const Environment& more) {
    std::list<Setting> settings;
    for (const auto& [name, value] : with(srun(), more)) settings.emplace_front(name, value);
    return *LauncherVariables::from_environment();
  };
  const struct {
    const char* tasks;
    const char* node;
    int local_size;
  } nodes[]{{"2(x2)", "0", 2},     {"2(x2),1", "2", 1},    {"3,2(x2),1", "0", 3},
            {"3,2(x2),1", "3", 1}, {"3,2(x2),1", "4", -1}, {"", "0", 9},
            {"2(x", "0", -1},      {"2(y3)", "0", -1},     {"x", "0", -1},
            {"2,,3", "1", -1},     {"0", "0", -1},         {"99999999999", "0", -1}};
  for (const auto& each : nodes) {
    const LauncherVariables found =
        read({{"SLURM_STEP_TASKS_PER_NODE", each.tasks}, {"SLURM_NODEID", each.node}});
    EXPECT_EQ(found.local_world_size, each.local_size) << each.tasks << " " << each.node;
  }
  const struct {
    const char* list;
    const char* first;
  } lists[]{
      {"a", "a"}, {"a,b", "a"}, {"a[3]", "a3"}, {"a[03-5],b", "a03"}, {"a[1,2]b[4-5]", "a1b4"},
      {"a[", "a"}};
  for (const auto& each : lists) {
    EXPECT_EQ(read({{"SLURM_STEP_NODELIST", each.list}}).master_address, each.first);
  }
  const int port = read({}).master_port;
  EXPECT_EQ(port, read({{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}}).master_port);
  EXPECT_NE(port, read({{"SLURM_STEP_ID", "3"}}).master_port);
  EXPECT_GE(port, 1024);
  EXPECT_LT(port, 32768);
  EXPECT_EQ(read({{"MASTER_PORT", "29500"}}).master_port, 29500);
}

TEST(Launchers, HydrasHelperIsKnownThroughAScriptByItsSocket) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Setting rank("PMI_RANK", "1"), size("PMI_SIZE", "2"), local("MPI_LOCALNRANKS", "2");
  const Setting socket("PMI_FD", std::to_string(ends[1]));
  EXPECT_EQ(LauncherVariables::from_environment()->run_id, "helper " + std::to_string(getpid()));
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(LauncherVariables::from_environment()->run_id, "") << "another one for each rank";
}

TEST(Launchers, HydrasHelperIsTheParentWhereItMadeNoSocket) {
  const Setting rank("PMI_RANK", "1"), size("PMI_SIZE", "2"), local("MPI_LOCALNRANKS", "2");
  EXPECT_EQ(LauncherVariables::from_environment()->run_id, "helper " + std::to_string(getppid()));
}

TEST(Launchers, MalformedVariablesAreNamed) {
  const Setting rank("OMPI_COMM_WORLD_RANK", "-1"), size("OMPI_COMM_WORLD_SIZE", "4");
  const Result<LauncherVariables> found = LauncherVariables::from_environment();
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message(), HasSubstr("OMPI_COMM_WORLD_RANK=-1: expected"));
}

TEST(VerbsSettings, ReachTheTransport) {
  const Setting devices("UNISONO_VERBS_DEVICES", "mlx5_1"), connect("UNISONO_VERBS_CONNECT", "cm"),
      partition("UNISONO_VERBS_PARTITION", "0x8001"), bytes("UNISONO_VERBS_REGISTERED", "4K"),
      checksum("UNISONO_CHECKSUM", "on");
  const Result<Config> config = Config::from_environment();
  ASSERT_TRUE(config);
  const VerbsOptions options = verbs_options(*config, 3, 8);
  EXPECT_EQ(options.rank, 3);
  EXPECT_EQ(options.size, 8);
  EXPECT_EQ(options.devices, "mlx5_1");
  EXPECT_EQ(options.connect, VerbsConnect::kCm);
  EXPECT_EQ(options.partition_key, 0x8001);
  EXPECT_EQ(options.registered_bytes_max, 4096u);
  EXPECT_TRUE(options.checksum);
  EXPECT_EQ(verbs_options(Config{}, 0, 1).gid, VerbsOptions().gid);
}

}  // namespace
}  // namespace unisono::test
