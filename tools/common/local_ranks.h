// Starts this program again as several local ranks, through the launcher of the same command.
#pragma once

#include "unisono/error.h"

namespace unisono::tools {

/// True when a launcher (`unisono run`, torchrun, mpirun, srun) started this process as one rank of
/// a job.
bool is_under_launcher();
/// The number of ranks the launcher told, or 0 where it is not a number.
int launched_ranks();

/// Replaces this process by `unisono run -n ranks -- unisono argv[0] argv[1..]`; argv[0] is the
/// name of the command. Returns only when that failed.
Status become_local_ranks(int ranks, int argc, char** argv);

}  // namespace unisono::tools
