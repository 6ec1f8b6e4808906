#include "tools/run/rank_environment.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/handshake.h"
#include "base/network.h"
#include "tools/common/invalid.h"

namespace unisono::run {
namespace {

constexpr std::size_t kKeyFileBytesMax = 4096;

std::string_view name_part(std::string_view entry) { return entry.substr(0, entry.find('=')); }

using Variables = std::vector<std::pair<std::string, std::string>>;

Variables variables_of(const JobFacts& facts, int local_rank) {
  Variables variables{
      {"RANK", std::to_string(facts.rank_of(local_rank))},
      {"WORLD_SIZE", std::to_string(facts.world_size())},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(facts.local_size)},
      {"GROUP_RANK", std::to_string(facts.node_rank)},
      {"NODE_RANK", std::to_string(facts.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(facts.node_count)},
      {"ROLE_NAME", facts.role},
      {"ROLE_RANK", std::to_string(facts.rank_of(local_rank))},
      {"ROLE_WORLD_SIZE", std::to_string(facts.world_size())},
      {"MASTER_ADDR", facts.master_address},
      {"MASTER_PORT", std::to_string(facts.master_port)},
      {"TORCHELASTIC_RUN_ID", facts.run_id},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(facts.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(facts.max_restarts)},
      // Set in any case: those of an outer launcher are not for these ranks.
      {"UNISONO_LAUNCHER_STORE", facts.store},
      {"UNISONO_REJOIN", facts.rejoins ? "on" : ""},
      // No agent of ours listens on MASTER_PORT; a value inherited from an outer torchrun would
      // make PyTorch wait for one.
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
  };
  if (!facts.job_key.empty()) variables.emplace_back("UNISONO_JOB_KEY", facts.job_key.view());
  return variables;
}

bool is_set(const std::vector<std::string>& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const std::string& entry) { return name_part(entry) == name; });
}

// `wanted` where it is free; 0: any. 0, and `errno` says why: not possible.
int bound_port(int wanted) {
  ListeningSocket socket;
  errno = listen_everywhere(static_cast<std::uint16_t>(wanted), {}, &socket);
  return errno == 0 ? socket.port : 0;
}

}  // namespace

std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                          const JobFacts& facts, int local_rank) {
  Variables variables = variables_of(facts, local_rank);
  // Python buffers what goes to a pipe; a rank's lines would show up only at its end.
  if (!is_set(inherited, "PYTHONUNBUFFERED")) variables.emplace_back("PYTHONUNBUFFERED", "1");
  // OpenMP would start a thread for each core in every rank.
  if (facts.local_size > 1 && !is_set(inherited, "OMP_NUM_THREADS")) {
    variables.emplace_back("OMP_NUM_THREADS", "1");
  }
  std::vector<std::string> entries;
  for (const std::string& entry : inherited) {
    const bool replaced =
        std::any_of(variables.begin(), variables.end(),
                    [&](const auto& variable) { return variable.first == name_part(entry); });
    if (!replaced) entries.push_back(entry);
  }
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

Result<int> choose_free_port() {
  if (const int port = bound_port(0); port != 0) return port;
  return Status(ErrorCode::kSystem, fmt::format("no free TCP port: {}; give one with --master-port",
                                                std::strerror(errno)));
}

Result<int> choose_free_port_pair() {
  constexpr int kAttempts = 64;
  constexpr int kPortMax = 65535;
  for (int i = 0; i < kAttempts; ++i) {
    UNISONO_ASSIGN(const int port, choose_free_port());
    if (port < kPortMax && bound_port(port + 1) != 0) return port;
  }
  return Status(ErrorCode::kSystem, "no two free TCP ports in a row for the ranks to meet at");
}

Result<std::string> make_run_id() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) {
    return Status(ErrorCode::kSystem, fmt::format("no random numbers: {}", std::strerror(errno)));
  }
  return fmt::format("{:016x}", bits);
}

Result<JobKeyFile> read_job_key(const std::string& path) {
  constexpr const char* kRemedy = "make one with: openssl rand -hex 32 > FILE; chmod 600 FILE";
  const auto refuse = [&](const std::string& why) {
    return tools::invalid("--job-key-file {}: {}; {}", path, why, kRemedy);
  };
  std::ifstream file;
  file.rdbuf()->pubsetbuf(nullptr, 0);  // no copy that nobody cleanses
  file.open(path, std::ios::binary);
  if (!file) return refuse(std::strerror(errno));
  SecretText text;
  text.resize(kKeyFileBytesMax + 1);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return refuse("cannot be read");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kKeyFileBytesMax) {
    return refuse(fmt::format("longer than {} bytes", kKeyFileBytesMax));
  }
  text.resize(text.view().find_last_not_of(" \t\r\n") + 1);
  if (text.empty()) return refuse("empty");
  // An environment holds no zero byte, and a second line is a mistake rather than part of a key.
  if (text.view().find_first_of(std::string_view("\0\r\n", 3)) != std::string::npos) {
    return refuse("holds more than one line of text");
  }
  if (const auto key = JobKey::from_text(text.view()); !key) return refuse(key.error().message());
  JobKeyFile found{std::move(text), ""};
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0 && (facts.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    found.warning = fmt::format(
        "warning: --job-key-file {0}: other users can read it (mode {1:04o}): "
        "chmod 600 {0}",
        path, facts.st_mode & 07777);
  }
  return found;
}

}  // namespace unisono::run
