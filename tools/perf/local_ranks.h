// Starts this program again as several local ranks, through the launcher of the same command.
#pragma once

#include "unisono/error.h"

namespace unisono::perf {

/// True when a launcher (`unisono run`, torchrun) started this process as one rank of a job.
bool is_under_launcher();
/// The number of ranks the launcher told, or 0 where it is not a number.
int launched_ranks();

/// Replaces this process by `unisono run -n ranks -- unisono perf argv[1..]`. Returns only when
/// that failed.
Status become_local_ranks(int ranks, int argc, char** argv);

}  // namespace unisono::perf
