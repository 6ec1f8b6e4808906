// What the environment of one rank says: torchrun's variables, so that programs written for
// torchrun run unchanged, and the job key. Pure values; one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/secret_text.h"

namespace unisono::run {

struct JobFacts {
  int local_size = 1;
  int node_count = 1;
  int node_rank = 0;
  std::string master_address;
  int master_port = 0;
  std::string run_id;
  std::string role = "default";
  int max_restarts = 0;
  int restarts = 0;      ///< so far
  bool rejoins = false;  ///< started again beside others that go on
  std::string store;     ///< the launcher's, for ranks that rejoin; empty: none
  SecretText job_key;    ///< empty: leave the inherited environment as it is; never printed

  int world_size() const { return local_size * node_count; }
  int rank_of(int local_rank) const { return node_rank * local_size + local_rank; }
};

/// `inherited` with this rank's variables set; entries are "NAME=value".
std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                          const JobFacts& facts, int local_rank);

/// A TCP port nobody listens on now, chosen by the kernel.
Result<int> choose_free_port();
/// The same where the next one is free too, at which the ranks of several machines meet.
Result<int> choose_free_port_pair();

/// 16 random hexadecimal digits.
Result<std::string> make_run_id();

struct JobKeyFile {
  SecretText key;
  std::string warning;  ///< when others can read the file; empty: they cannot
};

/// The key in a file: one line, at most 4 KiB, that makes a job key. The error never quotes the
/// file's content.
Result<JobKeyFile> read_job_key(const std::string& path);

}  // namespace unisono::run
