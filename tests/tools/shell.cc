#include "shell.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>

namespace unisono::test {

ShellRun run_shell(const std::string& line) {
  ShellRun run;
  std::FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return run;
  std::array<char, 4096> piece;
  while (std::fgets(piece.data(), piece.size(), pipe) != nullptr) run.output += piece.data();
  const int status = pclose(pipe);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return run;
}

}  // namespace unisono::test
