// Runs a line as a user would type it.
#pragma once

#include <string>

namespace unisono::test {

struct ShellRun {
  int status = -1;     ///< exit status, 1000 + the signal that ended it, -1 when it did not start
  std::string output;  ///< standard output; end the line with 2>&1 for both
};

ShellRun run_shell(const std::string& line);

}  // namespace unisono::test
