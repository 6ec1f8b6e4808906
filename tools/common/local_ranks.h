// Starts this program again as several local ranks, through the launcher of the same command.
#pragma once

#include <string>
#include <vector>

#include "unisono/error.h"

namespace unisono::tools {

/// True when a launcher (`unisono run`, torchrun, mpirun, srun) started this process as one rank of
/// a job.
bool is_under_launcher();
/// The number of ranks the launcher told, or 0 where it is not a number.
int launched_ranks();

/// What the launcher said of this process; of what it did not say, or not as a number, what a
/// process alone has.
struct Place {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  ///< on this host
  bool knows_local_rank = false;
};
Place launched_place();

/// Replaces this process by `unisono run -n ranks FLAGS -- unisono argv[0] argv[1..]`; argv[0] is
/// the name of the command. Returns only when that failed.
Status become_local_ranks(int ranks, const std::vector<std::string>& flags, int argc, char** argv);

}  // namespace unisono::tools
