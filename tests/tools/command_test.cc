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

}  // namespace
}  // namespace unisono
