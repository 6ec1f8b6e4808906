// What all commands have in common: lost output is an error, a wrong command line ends with 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "config/config.h"
#include "shell.h"
#include "tests/support/temporary_folder.h"

namespace unisono {
namespace {

using test::ShellRun;
using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// `line` is what a user would type behind "unisono", redirections included.
ShellRun run_command(const std::string& line) {
  return test::run_shell(std::string(UNISONO_COMMAND) + " " + line);
}

TEST(Commands, SayWhyTheirOutputIsLost) {
  for (const char* line :
       {"--help", "--version", "info", "info --json", "info --help", "plan all_reduce -n 2",
        "plan all_reduce -n 8 --json", "plan all_reduce --cost", "plan --help",
        "perf all_reduce -n 1 -e 64", "perf all_reduce -n 1 -e 64 --json",
        "perf all_reduce -n 2 -e 64 --json", "perf --help", "run --help", "run -n 2 -- echo x",
        "tune -n 2 --transport shm -e 64 --budget-ms 1 -o /dev/null"}) {
    const ShellRun run = run_command(std::string(line) + " 2>&1 > /dev/full");
    EXPECT_EQ(run.status, 1) << line;
    EXPECT_THAT(run.output, HasSubstr("cannot write standard output: No space left on device"))
        << line;
  }
}

TEST(Commands, TakeAnEmptyTopologyForAWrongOne) {
  const ShellRun run = run_command("plan all_reduce --cost --topology '' 2>&1");
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.output, HasSubstr("no field is called ''"));
}

TEST(Commands, EndWith2OnAWrongCommandLine) {
  for (const char* line : {"info --bogus", "plan all_reduce --bogus", "perf all_reduce --bogus",
                           "run --bogus", "bogus"}) {
    const ShellRun run = run_command(std::string(line) + " 2>&1");
    EXPECT_EQ(run.status, 2) << line;
    EXPECT_THAT(run.output, HasSubstr("bogus")) << line;
  }
}

TEST(Commands, InfoPrintsItsTablesBehindEveryVariableThatIsWrong) {
  for (const auto& [line, table] :
       {std::pair("info", "UNISONO_WAIT"), std::pair("info --json", "UNISONO_WAIT"),
        std::pair("info --machine", "ranks may use")}) {
    const ShellRun run = test::run_shell("UNISONO_FOO=1 UNISONO_TIMEOUT=soon UNISONO_WAIT=spin " +
                                         std::string(UNISONO_COMMAND) + " " + line + " 2>&1");
    EXPECT_EQ(run.status, 2) << line;
    EXPECT_THAT(run.output, StartsWith("unisono info: unknown variable UNISONO_FOO")) << line;
    EXPECT_THAT(run.output, HasSubstr("unisono info: UNISONO_TIMEOUT=soon: expected")) << line;
    EXPECT_THAT(run.output, HasSubstr(table)) << line;
  }
}

TEST(Commands, InfoRefusesAnAlgorithmThatEveryJobRefuses) {
  for (const auto& [line, shows_table] :
       {std::pair("info", true), std::pair("info --why all_reduce", false)}) {
    const ShellRun run = test::run_shell("UNISONO_ALGORITHM=all_reduce=nonsense " +
                                         std::string(UNISONO_COMMAND) + " " + line + " 2>&1");
    EXPECT_EQ(run.status, 2) << line;
    EXPECT_THAT(run.output, StartsWith("unisono info: UNISONO_ALGORITHM: no all_reduce algorithm "
                                       "is called 'nonsense'; choose one of: "))
        << line;
    EXPECT_EQ(run.output.find("UNISONO_WAIT") != std::string::npos, shows_table) << line;
  }
}

TEST(Commands, InfoExplainsByTheSettingsInForce) {
  const auto why = [](const std::string& settings, const std::string& arguments) {
    const ShellRun run = test::run_shell(settings + " " + UNISONO_COMMAND +
                                         " info --why all_reduce " + arguments + " 2>&1");
    EXPECT_EQ(run.status, 0) << run.output;
    return run.output;
  };
  EXPECT_THAT(why("UNISONO_ALGORITHM=all_reduce=ring", "1M -n 2"),
              AllOf(HasSubstr("over shm"), HasSubstr("over tcp"), HasSubstr("ring in "),
                    HasSubstr("it is asked for"), Not(HasSubstr("native")),
                    Not(HasSubstr("default table")), Not(HasSubstr("--gbit"))));
  EXPECT_THAT(why("UNISONO_ALGORITHM=broadcast=linear", "1M -n 2"), HasSubstr("native"));
  EXPECT_THAT(why("UNISONO_TRANSPORT=tcp", "1M"),
              AllOf(HasSubstr("2 ranks over tcp"), Not(HasSubstr("shm"))));
  EXPECT_THAT(why("UNISONO_TRANSPORT=tcp", "1M --transport unix"), HasSubstr("2 ranks over unix"));
  EXPECT_THAT(why("", "16M -n 4 --transport tcp"), HasSubstr(": ring in "));
  EXPECT_THAT(why("UNISONO_ORDER=canonical", "16M -n 4 --transport tcp"),
              HasSubstr(": two_shot in "));
  EXPECT_THAT(
      why("UNISONO_ORDER=canonical UNISONO_ALGORITHM=all_reduce=ring", "-n 4 --transport tcp"),
      HasSubstr("algorithm ring of all_reduce: "));
}

TEST(Commands, NameThemselvesTheOptionAndTheValueThatIsWrong) {
  for (const auto& [line, message] :
       {std::pair("perf all_reduce -n abc", "unisono perf: --ranks: 'abc' is not a number"),
        std::pair("plan all_reduce -n abc", "unisono plan: --ranks: 'abc' is not a number"),
        std::pair("plan all_reduce -b abc", "unisono plan: --bytes: 'abc' is not a size such as"),
        std::pair("perf all_reduce --budget-ms abc",
                  "unisono perf: --budget-ms: abc is outside 1 to 1000000"),
        std::pair("perf all_reduce --budget-ms nan", "unisono perf: --budget-ms: nan is no number"),
        std::pair("tune -n 2 --budget-ms nan", "unisono tune: --budget-ms: nan is no number"),
        std::pair("info --why all_reduce --gbit nan", "unisono info: --gbit: nan is no number"),
        std::pair("train --momentum nan", "unisono train: --momentum: nan is no number"),
        std::pair("perf all_reduce -I 0", "unisono perf: --iters: 0 is outside 1 to 4096"),
        std::pair("perf all_reduce -n 0", "unisono perf: --ranks: 0 is outside 1 to 1024"),
        std::pair("perf all_reduce -g 1", "unisono perf: -g has no meaning here; see -n\n"),
        std::pair("perf all_reduce --nthreads", "unisono perf: -t has no meaning here; see -n\n"),
        std::pair("run -n", "unisono run: --nproc-per-node: its value is missing"),
        std::pair("info --why", "unisono info: --why: its value is missing"),
        std::pair("plan all_reduce --cost --topology nodes=8x4",
                  "8 x 4 = 32 ranks, but --ranks is 4: add -n 32"),
        std::pair("plan all_to_all_v --in-place",
                  "all_to_all_v has no --in-place: its input and output never share"),
        std::pair("perf all_reduce -o foo", "unisono perf: --op: 'foo' is none of: sum prod"),
        std::pair("tune -n 1", "unisono tune: --ranks: 1 is outside 2 to"),
        std::pair("info --why foo",
                  "no collective is called 'foo'; `unisono plan --list` has them"),
        std::pair("blame",
                  "unisono blame: directory-or-process is required\nSee: unisono blame --help")}) {
    const ShellRun run = run_command(std::string(line) + " 2>&1");
    EXPECT_EQ(run.status, 2) << line;
    EXPECT_THAT(run.output, HasSubstr(message)) << line;
  }
}

// It has no foreground, as one that is gone has none.
TEST(Commands, RunReadsATerminalThatIsAnotherSessions) {
  if (test::run_shell("command -v script setsid").status != 0) {
    GTEST_SKIP() << "needs the programs script and setsid";
  }
  const ShellRun run = test::run_shell("printf 'typed\\n' | timeout 100 script -qec 'setsid -w " +
                                       std::string(UNISONO_COMMAND) +
                                       " run -n 1 --no-prefix -- sed s/ty/get_ty/' /dev/null 2>&1");
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.output, HasSubstr("get_typed"));
}

TEST(Commands, InfoReplacesWhatIsNoUtf8InJson) {
  for (const auto& [variable, line] :
       {std::pair("UNISONO_TUNING", "info --json"), std::pair("UNISONO_CACHE", "info --json"),
        std::pair("UNISONO_CACHE", "info --machine --json")}) {
    const ShellRun run = test::run_shell(std::string(variable) + "=/tmp/caf\xe9 " +
                                         UNISONO_COMMAND + " " + line + " 2>&1");
    EXPECT_EQ(run.status, 0) << line << ": " << run.output;
    EXPECT_THAT(run.output, HasSubstr("\"/tmp/caf\xef\xbf\xbd")) << variable << " " << line;
  }
}

TEST(Commands, InfoRefusesWhatItWouldNotHeed) {
  for (const auto& [line, message] :
       {std::pair("--why all_reduce 1M --json", "--json excludes --why"),
        std::pair("--machine --why all_reduce", "--machine excludes --why"),
        std::pair("--ranks 3", "--ranks requires --why"),
        std::pair("--gbit 10", "--gbit requires --why"),
        std::pair("--why all_reduce 9999999T", "is outside 0 to 1T"),
        std::pair("--why barrier 1M", "--why barrier: 1M is outside 0 to 0")}) {
    const ShellRun run = run_command("info " + std::string(line) + " 2>&1");
    EXPECT_EQ(run.status, 2) << line;
    EXPECT_THAT(run.output, HasSubstr(message)) << line;
  }
}

TEST(Commands, RefuseAVariableThatDoesNotExist) {
  for (const char* line : {"info", "perf all_reduce -n 2", "perf all_reduce -n 1", "tune -n 2"}) {
    const ShellRun run = test::run_shell("UNISONO_TRANSPROT=tcp " + std::string(UNISONO_COMMAND) +
                                         " " + line + " 2>&1");
    EXPECT_EQ(run.status, 2) << line;
    EXPECT_THAT(run.output, HasSubstr("UNISONO_TRANSPROT")) << line;
  }
}

TEST(Commands, HelpOfOneIsItsOwn) {
  for (const char* name : {"run", "perf", "info", "plan", "tune"}) {
    const ShellRun help = run_command("help " + std::string(name) + " 2>&1");
    EXPECT_EQ(help.status, 0) << help.output;
    EXPECT_EQ(help.output, run_command(std::string(name) + " --help 2>&1").output) << name;
  }
  const ShellRun bogus = run_command("help bogus 2>&1");
  EXPECT_EQ(bogus.status, 2);
  EXPECT_THAT(bogus.output, HasSubstr("no command 'bogus'"));
  EXPECT_THAT(run_command("help").output, HasSubstr("Commands:"));
}

TEST(Commands, PlanListsTheAlgorithmsAndWhatEachNeeds) {
  const ShellRun all = run_command("plan --list");
  EXPECT_EQ(all.status, 0);
  EXPECT_THAT(all.output, AllOf(ContainsRegex("all_reduce +ring +any +commutative +no"),
                                ContainsRegex("all_gather +recursive_doubling +power of two +- +-"),
                                ContainsRegex("all_reduce +two_shot +any +any +yes"),
                                HasSubstr("exscan"), HasSubstr("native")));
  const ShellRun one = run_command("plan broadcast --list");
  EXPECT_EQ(one.status, 0);
  EXPECT_THAT(one.output, AllOf(HasSubstr("binomial"), Not(HasSubstr("all_reduce"))));
  const ShellRun json = run_command("plan --list --json");
  EXPECT_EQ(json.status, 0);
  EXPECT_THAT(json.output, AllOf(HasSubstr("\"algorithm\": \"two_shot\""),
                                 HasSubstr("\"needs_power_of_two_ranks\": true"),
                                 HasSubstr("\"canonical_order\": \"power of two\"")));
  EXPECT_EQ(run_command("plan broadcasst --list 2>&1").status, 2);
  const ShellRun none = run_command("plan 2>&1");
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.output, AllOf(HasSubstr("which collective?"), HasSubstr("--list")));
}

// Others that replay a plan need what its messages weigh: of 1001 bytes in two chunks, 500 and 501.
TEST(Commands, ExportPlansWithTheBytesOfTheirMessages) {
  const ShellRun plan = run_command("plan broadcast -a linear -n 2 -b 1001 --chunks 2 --json");
  EXPECT_EQ(plan.status, 0);
  EXPECT_THAT(plan.output, AllOf(HasSubstr("\"bytes\": 500,"), HasSubstr("\"bytes\": 501,")));
  const ShellRun blocks = run_command("plan all_gather -a ring -n 4 -b 4000 --json");
  EXPECT_THAT(blocks.output,
              AllOf(HasSubstr("\"bytes\": 1000,"), Not(HasSubstr("\"bytes\": 4000,"))));
}

TEST(Commands, PlanTellsAPlanThatWasNotCheckedFromOneThatIsWrong) {
  const ShellRun checked = run_command("plan all_reduce -a ring -n 4 --json --rank 0");
  EXPECT_THAT(checked.output,
              AllOf(HasSubstr("\"checked\": true"), HasSubstr("\"correct\": true")));
  const ShellRun unchecked = run_command("plan all_reduce -a ring -n 2000 --json --rank 0");
  EXPECT_EQ(unchecked.status, 0);
  EXPECT_THAT(unchecked.output,
              AllOf(HasSubstr("\"checked\": false"), HasSubstr("\"correct\": null")));
}

TEST(Commands, PlanSaysWhatItCannotPrint) {
  for (const auto& [line, message] :
       {std::pair("--rank -1", "--rank is -1 but must be from 0 to 3"),
        std::pair("--rank 9", "--rank is 9 but must be from 0 to 3"),
        std::pair("-a native", "native has no plan")}) {
    const ShellRun run = run_command("plan all_reduce " + std::string(line) + " 2>&1");
    EXPECT_EQ(run.status, 2) << line;
    EXPECT_THAT(run.output, HasSubstr(message)) << line;
  }
}

TEST(Commands, RefuseATransportThatDoesNotExist) {
  for (const char* line : {"perf all_reduce -n 1 -e 64", "info --why all_reduce"}) {
    const ShellRun run = run_command(std::string(line) + " --transport tpc 2>&1");
    EXPECT_EQ(run.status, 2) << line;
    EXPECT_THAT(run.output, AllOf(HasSubstr("no transport is called 'tpc'"),
                                  HasSubstr("auto, shm, tcp, unix, verbs, loopback")))
        << line;
  }
}

TEST(Commands, AreOneRankUnderMpirun) {
  const ShellRun run =
      test::run_shell("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 " +
                      std::string(UNISONO_COMMAND) + " perf all_reduce -n 2 -e 64 2>&1");
  EXPECT_EQ(run.status, 2) << run.output;
  EXPECT_THAT(run.output, HasSubstr("disagrees with the launcher, which started 4"));
}

TEST(Commands, UseVerbsWhereInfoSaysSoAndElseSayWhyNot) {
  const ShellRun info = run_command("info --json");
  ASSERT_EQ(info.status, 0);
  EXPECT_THAT(info.output, HasSubstr("\"rdma\": {"));
  const bool usable = info.output.find("\"verbs\": {\n      \"usable\": true") != std::string::npos;
  const ShellRun perf = run_command("perf all_reduce -n 2 -e 64 --transport verbs 2>&1");
  EXPECT_EQ(perf.status, usable ? 0 : 1) << perf.output;
  EXPECT_THAT(perf.output, HasSubstr("verbs"));
  EXPECT_THAT(run_command("info --why all_reduce 1M --transport verbs").output,
              HasSubstr("2 ranks over verbs"));
}

// Domains are pretended: nothing here depends on the machine.
TEST(Commands, ReduceInLevelsAsInfoSays) {
  const auto run = [](const std::string& levels, const std::string& line) {
    return test::run_shell("UNISONO_LEVELS=" + levels + " " + UNISONO_COMMAND + " " + line +
                           " 2>&1");
  };
  EXPECT_THAT(run("2", "info --why all_reduce 1M -n 4").output,
              HasSubstr("in two levels: 2 domains of 2 ranks, which follow each other"));
  EXPECT_THAT(run("off", "info --why reduce 1M -n 4").output, HasSubstr("in one level: the ranks"));
  EXPECT_THAT(run("2", "info --why all_gather 1M -n 4").output, Not(HasSubstr("level")));
  EXPECT_THAT(run("auto", "info --machine").output, ContainsRegex("levels +[0-9]+ NUMA node"));
  EXPECT_THAT(run("auto", "info --machine --json").output, HasSubstr("\"levels\": {"));
  for (const std::string collective : {"all_reduce", "reduce -r all"}) {
    const ShellRun perf = run("2", "perf " + collective + " -n 4 -b 300K -e 300K -I 3 -d half");
    EXPECT_EQ(perf.status, 0) << perf.output;
    EXPECT_THAT(perf.output, HasSubstr("every element right"));
  }
  EXPECT_THAT(run("3", "info").output, HasSubstr("UNISONO_LEVELS=3: expected one of auto, off"));
}

TEST(Commands, InfoCountsOneCoreAsOne) {
  const auto run_on_one = [](const std::string& line) {
    return test::run_shell("taskset -c $(taskset -pc $$ | sed 's/.*: //; s/[-,].*//') " +
                           std::string(UNISONO_COMMAND) + " " + line + " 2>&1")
        .output;
  };
  EXPECT_THAT(run_on_one("info"), HasSubstr(" 1 core, "));
  EXPECT_THAT(run_on_one("info --machine"),
              AllOf(ContainsRegex("may use +1 processor[,\n]"),
                    ContainsRegex("levels +(1 NUMA node of 1 core|no NUMA node known), ")));
  EXPECT_THAT(run_on_one("run -n 2 --bind-to core -- true"), HasSubstr("may use 1 core;"));
}

TEST(Commands, InfoProbesEveryTransport) {
  const ShellRun info = run_command("info --json");
  ASSERT_EQ(info.status, 0);
  for (const std::string_view name : kTransports) {
    if (name == "auto") continue;
    EXPECT_THAT(info.output, HasSubstr("\"" + std::string(name) + "\": {"));
  }
  EXPECT_THAT(info.output, HasSubstr("\"huge_pages\": \""));
}

// Without, with and again without what a job has learned.
TEST(Commands, InfoShowsWhatJobsHaveLearned) {
  const test::TemporaryFolder folder;
  const auto run = [&](const std::string& setting, const std::string& line) {
    return test::run_shell(setting + " " + UNISONO_COMMAND + " " + line + " 2>&1").output;
  };
  const std::string here = "UNISONO_CACHE=" + folder.path();
  EXPECT_THAT(run(here, "info --machine"),
              AllOf(HasSubstr("processor "), HasSubstr("kernel "), HasSubstr(folder.path()),
                    HasSubstr("Nothing is known yet")));
  EXPECT_THAT(run(here, "info --why all_gather 32K"), HasSubstr("the first ones do"));
  EXPECT_THAT(run(here, "perf all_gather -n 2 -b 32K -e 32K -I 80 --transport shm"),
              HasSubstr("every element right"));
  EXPECT_THAT(run(here, "info --machine"),
              AllOf(HasSubstr("2 ranks in "), ContainsRegex("all_gather +8K < b <= 16K +"),
                    HasSubstr("mapped")));
  EXPECT_THAT(run(here, "info --machine --json"),
              AllOf(HasSubstr("\"here\": true"), HasSubstr("\"of\": \"all_gather\"")));
  EXPECT_THAT(run(here, "info --why all_gather 32K"),
              ContainsRegex("found, in us for a MiB: .*mapped [0-9.]+.*; so calls begin with "));
  EXPECT_THAT(run(here, "info --why all_gather 64M"),
              AnyOf(HasSubstr("the first ones do"), ContainsRegex("predicts.* mapped [0-9.]+, .*"
                                                                  "so calls begin with ")));
  EXPECT_THAT(run("UNISONO_CACHE=off", "info --machine"), HasSubstr("nowhere: UNISONO_CACHE=off"));
  EXPECT_THAT(run("env -u UNISONO_CACHE -u XDG_CACHE_HOME HOME=/proc/none", "info --machine"),
              HasSubstr("nowhere: cannot look at /proc/none"));
  EXPECT_THAT(run("UNISONO_CACHE=off", "info --machine --json"),
              AllOf(HasSubstr("\"cache\": \"off\""), HasSubstr("\"cache_reason\": \"\"")));
  EXPECT_THAT(
      run("env -u UNISONO_CACHE -u XDG_CACHE_HOME HOME=/proc/none", "info --machine --json"),
      AllOf(HasSubstr("\"cache\": \"/proc/none/.cache/unisono\""),
            HasSubstr("\"cache_reason\": \"cannot look at /proc/none")));
  // What is between hosts makes no difference.
  EXPECT_THAT(run(here + " UNISONO_MEASURE=off", "info --why all_gather 32K"),
              HasSubstr("so calls begin with"));
}

TEST(Commands, SayWhyNoGpuIsUsed) {
  const ShellRun off =
      test::run_shell(std::string("UNISONO_CUDA=off ") + UNISONO_COMMAND + " info");
  EXPECT_EQ(off.status, 0);
  EXPECT_THAT(off.output, ContainsRegex("cuda +no +UNISONO_CUDA=off"));
  const ShellRun none = test::run_shell(std::string("UNISONO_CUDA_LIBRARY=/nowhere/libcuda.so.1 ") +
                                        UNISONO_COMMAND + " info --json");
  EXPECT_EQ(none.status, 0);
  EXPECT_THAT(none.output, AnyOf(HasSubstr("no CUDA driver (/nowhere/libcuda.so.1"),
                                 HasSubstr("built without CUDA")));
}

#ifdef UNISONO_FAKE_CUDA_FILE
ShellRun info_with_gpus(const std::string& environment, const std::string& flags) {
  return test::run_shell("UNISONO_CUDA_LIBRARY=" UNISONO_FAKE_CUDA_FILE " " + environment + " " +
                         UNISONO_COMMAND + " info " + flags + " 2>&1");
}

TEST(Commands, ListTheGpus) {
  const ShellRun text = info_with_gpus("FAKE_CUDA_DEVICES=2 FAKE_CUDA_MEMORY=4G", "");
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.output, AllOf(ContainsRegex("cuda +yes"), HasSubstr("CUDA driver       13.0"),
                                 ContainsRegex("1  Fake GPU 1  0000:11:00.0 +4.* 132 +9.0")));
  const ShellRun json = info_with_gpus("FAKE_CUDA_DEVICES=2", "--json");
  EXPECT_EQ(json.status, 0);
  EXPECT_THAT(json.output,
              AllOf(HasSubstr("\"driver\": \"13.0\""), HasSubstr("\"name\": \"Fake GPU 1\""),
                    HasSubstr("\"memory_bytes\": 2147483648")));
}

TEST(Commands, SayThatTheDriverIsTooOld) {
  const ShellRun old = info_with_gpus("FAKE_CUDA_VERSION=11040", "");
  EXPECT_EQ(old.status, 0);
  EXPECT_THAT(old.output, ContainsRegex("cuda +no +.*is a driver for CUDA 11.4"));
}
#endif

}  // namespace
}  // namespace unisono
