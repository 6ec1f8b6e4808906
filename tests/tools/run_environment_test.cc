// What `unisono run` tells its ranks, and what it refuses to start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "launcher.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"
#include "topology/processors.h"

namespace unisono::run {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const char* const kShape =
    "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $NODE_RANK";

TEST(RunEnvironment, NumbersTheRanksOfOneNode) {
  Launcher launcher(shell({"-n", "3"}, kShape));
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.sorted_lines(),
              ElementsAre("[0] 0/3 0/3 0 0", "[1] 1/3 1/3 0 0", "[2] 2/3 2/3 0 0"));
  EXPECT_EQ(launcher.err(), "");
}

TEST(RunEnvironment, TakesTorchrunsSpellings) {
  const std::vector<std::vector<std::string>> spellings{
      {"--nproc-per-node", "2", "--master-addr", "localhost", "--master-port", "4711"},
      {"--nproc_per_node=2", "--master_addr=localhost", "--master_port=4711"},
      {"--nproc_per_node", "2", "--nnodes=1", "--node_rank=0", "--rdzv_backend=c10d",
       "--rdzv_endpoint=localhost:4711"},
      {"-n2", "--standalone", "--nnodes", "1:1", "--master_port", "4711", "--master_addr",
       "localhost"},
  };
  for (const auto& flags : spellings) {
    Launcher launcher(shell(flags, "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"));
    EXPECT_EQ(launcher.wait(), 0) << launcher.err();
    EXPECT_THAT(launcher.sorted_lines(),
                ElementsAre("[0] 0 2 localhost 4711", "[1] 1 2 localhost 4711"));
  }
}

TEST(RunEnvironment, LeavesTheFlagsOfTheCommandAlone) {
  Launcher launcher({"-n", "1", "/bin/echo", "-n", "7", "--help", "--", "x"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(launcher.out(), "[0] 7 --help -- x\n");
}

TEST(RunEnvironment, ChoosesAPortAndARunForEachLaunch) {
  std::set<std::string> runs;
  for (int i = 0; i < 3; ++i) {
    Launcher launcher(shell({"-n", "2", "--no-prefix"}, "echo $MASTER_PORT:$TORCHELASTIC_RUN_ID"));
    EXPECT_EQ(launcher.wait(), 0);
    const auto lines = launcher.sorted_lines();
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0], lines[1]) << "ranks of one run agree";
    const int port = std::stoi(lines[0]);
    EXPECT_GT(port, 1023);
    runs.insert(lines[0].substr(lines[0].find(':')));
  }
  EXPECT_EQ(runs.size(), 3u);
}

TEST(RunEnvironment, OverridesWhatAnOuterLauncherSet) {
  LaunchOptions options;
  options.environment = {"RANK=9", "TORCHELASTIC_USE_AGENT_STORE=True", "KEPT=yes"};
  Launcher launcher(
      shell({}, "env | grep -c ^RANK=; echo $RANK $TORCHELASTIC_USE_AGENT_STORE $KEPT"), options);
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(launcher.out(), "[0] 1\n[0] 0 False yes\n");
}

TEST(RunEnvironment, TwoLaunchersMakeOneWorld) {
  LaunchOptions options;
  options.environment = {"UNISONO_JOB_KEY=0123456789abcdef0123456789abcdef"};
  const std::string script =
      "echo $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE node $NODE_RANK at "
      "$MASTER_ADDR:$MASTER_PORT run $TORCHELASTIC_RUN_ID";
  const auto flags = [](const char* node) {
    return std::vector<std::string>{"--nnodes", "2", "--node-rank", node, "--nproc-per-node", "4"};
  };
  Launcher first(shell(flags("0"), script), options);
  Launcher second(shell(flags("1"), script), options);
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  std::vector<std::string> expected[2];
  for (int rank = 0; rank < 8; ++rank) {
    const std::string number = std::to_string(rank);
    const std::string node = std::to_string(rank / 4);
    expected[rank / 4].push_back("[" + number + "] " + number + "/8 local " +
                                 std::to_string(rank % 4) + "/4 node " + node +
                                 " at 127.0.0.1:29500 run 127.0.0.1:29500");
  }
  EXPECT_EQ(first.sorted_lines(), expected[0]);
  EXPECT_EQ(second.sorted_lines(), expected[1]);
}

TEST(RunEnvironment, RanksOfTwoLaunchersMeet) {
  LaunchOptions options;
  options.environment = {"UNISONO_JOB_KEY=0123456789abcdef0123456789abcdef",
                         "UNISONO_PORT=" + std::to_string(test::free_port())};
  const auto arguments = [](const std::string& node) {
    return std::vector<std::string>{
        "--nnodes", "2",          "--node-rank", node,        "-n", "2",   "--", UNISONO_COMMAND,
        "perf",     "all_reduce", "-b",          "64K",       "-e", "64K", "-I", "2",
        "-w",       "0",          "--csv",       "--timeout", "15"};
  };
  Launcher first(arguments("0"), options);
  Launcher second(arguments("1"), options);
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  // Rank 0 prints a header, and a row out of place and one in place: four ranks, nothing wrong.
  EXPECT_THAT(first.out(), HasSubstr("[0] all_reduce,shm,4,65536,16384,float32,sum,0,false,"));
  for (const std::string& line : first.sorted_lines()) {
    EXPECT_THAT(line,
                ::testing::AnyOf(HasSubstr(",0,shared memory,"), HasSubstr(",wrong,barrier,")));
  }
  EXPECT_EQ(first.sorted_lines().size(), 3u);
  EXPECT_EQ(second.out(), "");
}

TEST(RunEnvironment, SetsWhatTorchrunSets) {
  const std::string script =
      "echo $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT "
      "$TORCHELASTIC_MAX_RESTARTS omp=$OMP_NUM_THREADS";
  const auto first_line = [&](std::vector<std::string> flags, const std::string& threads) {
    LaunchOptions options;
    options.environment = {threads};
    Launcher launcher(shell(std::move(flags), script), options);
    EXPECT_EQ(launcher.wait(), 0);
    return launcher.sorted_lines().front();
  };
  // putenv without a value removes what the tests themselves were started with.
  EXPECT_EQ(first_line({"-n", "2"}, "OMP_NUM_THREADS"), "[0] default 0/2 0 0 omp=1");
  EXPECT_EQ(first_line({"-n", "1"}, "OMP_NUM_THREADS"), "[0] default 0/1 0 0 omp=");
  EXPECT_EQ(first_line({"-n", "2"}, "OMP_NUM_THREADS=7"), "[0] default 0/2 0 0 omp=7");
  EXPECT_EQ(first_line({"--role", "trainer"}, "OMP_NUM_THREADS"), "[0] trainer 0/1 0 0 omp=");
}

TEST(RunEnvironment, GivesAGpuAllItsHardwareQueuesUnlessSet) {
  for (const char* const given : {"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_MAX_CONNECTIONS=1"}) {
    LaunchOptions options;
    options.environment = {given};
    Launcher launcher(shell({}, "echo queues=$CUDA_DEVICE_MAX_CONNECTIONS"), options);
    EXPECT_EQ(launcher.wait(), 0);
    EXPECT_EQ(launcher.out(),
              std::string_view(given).ends_with("=1") ? "[0] queues=1\n" : "[0] queues=32\n");
  }
}

TEST(RunEnvironment, TakesTheLastOfTwoAndWhatIsHarmless) {
  Launcher launcher(shell({"-n", "7", "--nproc-per-node", "2", "--max-restarts=0", "--no-python",
                           "--rdzv-conf", "timeout=5", "--master-port", "1", "--master_port", "2",
                           "--monitor_interval", "1", "--start-method=spawn"},
                          "echo $WORLD_SIZE $MASTER_PORT"));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(launcher.sorted_lines(), ElementsAre("[0] 2 2", "[1] 2 2"));
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("--rdzv-conf is ignored"),
                                    HasSubstr("--start-method and --event-log-handler are")));
}

TEST(RunEnvironment, ReadsEndpointsWithAndWithoutPort) {
  const std::pair<const char*, const char*> cases[] = {{"h:77", "[0] h 77\n"},
                                                       {"[::1]:77", "[0] ::1 77\n"},
                                                       {"10.0.0.1:0", "[0] 10.0.0.1 "},
                                                       {"[fe80::2]", "[0] fe80::2 "},
                                                       {"h", "[0] h "}};
  for (const auto& [endpoint, line] : cases) {
    Launcher launcher(shell({"--rdzv-endpoint", endpoint}, "echo $MASTER_ADDR $MASTER_PORT"));
    EXPECT_EQ(launcher.wait(), 0) << launcher.err();
    EXPECT_THAT(launcher.out(), HasSubstr(line));
  }
}

TEST(RunEnvironment, TakesAnAddressInBrackets) {
  for (const auto& [address, line] :
       {std::pair("[fe80::2]", "[0] fe80::2\n"), std::pair("[]", "[0] []\n")}) {
    Launcher launcher(shell({"--master-addr", address}, "echo $MASTER_ADDR"));
    EXPECT_EQ(launcher.wait(), 0) << launcher.err();
    EXPECT_EQ(launcher.out(), line);
  }
}

TEST(RunEnvironment, SeveralNodesNeedAKey) {
  LaunchOptions options;
  options.environment = {"UNISONO_JOB_KEY="};
  Launcher launcher({"--nnodes", "2", "--node-rank", "0", "true"}, options);
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("openssl rand -hex 32"), HasSubstr("UNISONO_JOB_KEY"),
                                    HasSubstr("--job-key-file")));
}

TEST(RunEnvironment, ReadsTheKeyFromAFileAndNeverPrintsIt) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/key";
  const auto launch = [&](const std::string& content) {
    std::ofstream(path) << content;
    return std::vector<std::string>{"--nnodes",       "2",  "--node-rank", "1",
                                    "--job-key-file", path, "--"};
  };
  auto arguments = launch("feedfacefeedface\n");
  const std::string script = "test $UNISONO_JOB_KEY = feedfacefeedface && exit 7";
  arguments.insert(arguments.end(), {"sh", "-c", script});
  Launcher good(arguments);
  EXPECT_EQ(good.wait(), 7);
  EXPECT_THAT(good.err(), Not(HasSubstr("feedface")));
  for (const std::string& content :
       {std::string(), std::string("secret1 secret1\nsecret2 secret2\n"), std::string("secret\n"),
        std::string("secret\0secret secret", 20), std::string(5000, 's')}) {
    arguments = launch(content);
    arguments.push_back("true");
    Launcher bad(arguments);
    EXPECT_EQ(bad.wait(), 1);
    EXPECT_THAT(bad.err(), AllOf(HasSubstr(path), Not(HasSubstr("secret")), Not(HasSubstr("sss"))));
  }
}

TEST(RunEnvironment, AKeyMayBeAPassphraseAndShouldBePrivate) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/key";
  std::ofstream(path) << "four words are best\n";
  for (const mode_t mode : {0600, 0640, 0604}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    Launcher launcher(shell({"--job-key-file", path}, "echo \"$UNISONO_JOB_KEY\""));
    EXPECT_EQ(launcher.wait(), 0) << launcher.err();
    EXPECT_EQ(launcher.out(), "[0] four words are best\n");
    const bool is_private = mode == 0600;
    EXPECT_EQ(launcher.err().find("warning: --job-key-file") == std::string::npos, is_private);
    EXPECT_EQ(launcher.err().find("chmod 600 " + path) == std::string::npos, is_private);
  }
}

TEST(RunEnvironment, RefusesBadFlagsByName) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"-n", "0", "true"}, "--nproc-per-node: 0 is outside"},
      {{"-n", "many", "true"}, "'many' is not a whole number"},
      {{"-n", "1000000", "true"}, "outside 1 to 1024"},
      {{"--no-such-flag", "true"}, "unknown flag --no-such-flag"},
      {{"--local-addr=x", "true"}, "torchrun's --local-addr is not supported; UNISONO_INTERFACE"},
      {{"--nnodes", "2", "true"}, "needs --node-rank"},
      {{"--nnodes", "2", "--node-rank", "2", "true"}, "--node-rank: 2 is outside 0 to 1"},
      {{"--nnodes", "1:4", "true"}, "range is not supported"},
      {{"--master-port", "70000", "true"}, "outside 0 to 65535"},
      {{"--bind-to", "moon", "true"}, "'moon' is not auto, core or none"},
      {{"--timeout-report", "-1", "true"}, "--timeout-report"},
      {{"--rdzv-endpoint", "host:abc", "true"}, "--rdzv-endpoint: 'host:abc' has no port"},
      {{"--rdzv-endpoint", "host:", "true"}, "--rdzv-endpoint: 'host:' has no port"},
      {{"--rdzv-endpoint", "host:70000", "true"}, "--rdzv-endpoint: 'host:70000' has no port"},
      {{"--rdzv-endpoint", "::1", "true"}, "--rdzv-endpoint: '::1' has several colons"},
      {{"--rdzv-endpoint", "[::1", "true"}, "--rdzv-endpoint: '[::1' has no ']'"},
      {{"--rdzv-endpoint", "[::1]x:7", "true"}, "has text after the ']'"},
      {{"--rdzv-endpoint", ":7", "true"}, "--rdzv-endpoint: ':7' has no host"},
      {{"--rdzv-endpoint", "[]:7", "true"}, "--rdzv-endpoint: '[]:7' has no host"},
      {{"--max-restarts", "x", "true"}, "--max-restarts"},
      {{"--nproc-per-node=gpu", "true"}, "give the number of GPUs"},
      {{"-m", "train"}, "python -m MODULE"},
      {{"--log_dir=x", "true"}, "torchrun's --log-dir is not supported"},
      {{"-n"}, "--nproc-per-node"},
      {{"-n", "2"}, "no command"},
      {{"--"}, "no command"},
      {{}, "no command"},
  };
  for (const auto& [arguments, message] : cases) {
    Launcher launcher(arguments);
    EXPECT_EQ(launcher.wait(), 2) << message;
    EXPECT_THAT(launcher.err(), HasSubstr(message));
    EXPECT_THAT(launcher.err(), HasSubstr("--help"));
  }
}

TEST(RunEnvironment, HelpTeachesWithExamples) {
  Launcher launcher({"--help"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.out(), AllOf(HasSubstr("Examples:"), HasSubstr("unisono run -n 4"),
                                    HasSubstr("--keep-going"), Not(HasSubstr("--node_rank"))));
}

TEST(RunEnvironment, BindsEachRankToACoreOfItsOwn) {
  const auto processors = topology::read_processors();
  ASSERT_TRUE(processors.has_value());
  const int size = std::min<int>(2, static_cast<int>(processors->cores.size()));
  Launcher launcher(shell({"-n", std::to_string(size), "--bind-to", "core", "--no-prefix"},
                          "grep Cpus_allowed_list /proc/self/status"));
  EXPECT_EQ(launcher.wait(), 0);
  const auto lines = launcher.sorted_lines();
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(),
            static_cast<std::size_t>(size));
  for (const std::string& line : lines) {
    bool known = false;
    for (const topology::Core& core : processors->cores) {
      known = known || line.find('\t' + std::to_string(core.cpus.front())) != std::string::npos;
    }
    EXPECT_TRUE(known) << line;
  }
  Launcher too_many(
      {"-n", std::to_string(processors->cores.size() + 1), "--bind-to", "core", "true"});
  EXPECT_EQ(too_many.wait(), 1);
  EXPECT_THAT(too_many.err(), HasSubstr("--bind-to none"));
}

}  // namespace
}  // namespace unisono::run
