// The launcher is this same program, so that the ranks are bound, watched and ended alike.
#include "tools/common/local_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "config/launcher.h"

namespace unisono::tools {
namespace {

constexpr const char* kSelf = "/proc/self/exe";

/// The path of this program: the ranks need a name that means the same in another process.
std::string own_path() {
  std::vector<char> path(4096);
  const ssize_t length = readlink(kSelf, path.data(), path.size());
  const bool is_whole = length > 0 && static_cast<std::size_t>(length) < path.size();
  return is_whole ? std::string(path.data(), static_cast<std::size_t>(length)) : std::string();
}

}  // namespace

bool is_under_launcher() {
  const auto variables = LauncherVariables::from_environment();
  // What is malformed, init() refuses with its name.
  return !variables || variables->rank >= 0 || variables->world_size >= 0;
}

int launched_ranks() {
  const auto variables = LauncherVariables::from_environment();
  return variables ? std::max(variables->world_size, 0) : 0;
}

Place launched_place() {
  const auto variables = LauncherVariables::from_environment();
  if (!variables) return {};
  return {.rank = std::max(variables->rank, 0),
          .size = std::max(variables->world_size, 1),
          .local_rank = std::max(variables->local_rank, 0),
          .local_size = std::max(variables->local_world_size, 1),
          .knows_local_rank = variables->local_rank >= 0};
}

Status become_local_ranks(int ranks, const std::vector<std::string>& flags, int argc, char** argv) {
  const std::string self = own_path();
  if (self.empty()) {
    return Status(ErrorCode::kSystem,
                  "cannot start local ranks: /proc/self/exe is not readable; "
                  "start this command under `unisono run -n N --` instead");
  }
  std::vector<std::string> words{self, "run", "-n", std::to_string(ranks), "--no-prefix"};
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), {"--", self});
  words.insert(words.end(), argv, argv + argc);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(self.c_str(), arguments.data());
  return Status(ErrorCode::kSystem, fmt::format("cannot start {} local ranks: {}: {}", ranks, self,
                                                std::strerror(errno)));
}

}  // namespace unisono::tools
