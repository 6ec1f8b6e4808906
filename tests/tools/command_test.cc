// What all commands have in common: lost output is an error, a wrong command line ends with 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "shell.h"

namespace unisono {
namespace {

using test::ShellRun;
using testing::HasSubstr;

// `line` is what a user would type behind "unisono", redirections included.
ShellRun run_command(const std::string& line) {
  return test::run_shell(std::string(UNISONO_COMMAND) + " " + line);
}

TEST(Commands, SayWhyTheirOutputIsLost) {
  for (const char* line :
       {"--help", "--version", "info", "info --json", "info --help", "plan all_reduce -n 2",
        "plan all_reduce -n 8 --json", "plan --help", "perf all_reduce -n 1 -e 64",
        "perf all_reduce -n 1 -e 64 --json", "perf all_reduce -n 2 -e 64 --json", "perf --help",
        "run --help", "run -n 2 -- echo x"}) {
    const ShellRun run = run_command(std::string(line) + " 2>&1 > /dev/full");
    EXPECT_EQ(run.status, 1) << line;
    EXPECT_THAT(run.output, HasSubstr("cannot write standard output: No space left on device"))
        << line;
  }
}

TEST(Commands, EndWith2OnAWrongCommandLine) {
  for (const char* line : {"info --bogus", "plan all_reduce --bogus", "perf all_reduce --bogus",
                           "run --bogus", "bogus"}) {
    const ShellRun run = run_command(std::string(line) + " 2>&1");
    EXPECT_EQ(run.status, 2) << line;
    EXPECT_THAT(run.output, HasSubstr("bogus")) << line;
  }
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

}  // namespace
}  // namespace unisono
