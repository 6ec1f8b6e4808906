// What launchers say of a process: torchrun's variables, which `unisono run` sets too, and those by
// which mpirun and srun are recognised.
#pragma once

#include <string>

#include "base/result.h"

namespace unisono {

/// What the launcher says of this process; empty or -1 where it does not. RANK and WORLD_SIZE, of
/// torchrun and `unisono run`, come first; without them Open MPI's, MPICH's and Intel MPI's mpirun
/// and Slurm's srun are recognised by their own variables, unless they started one process alone.
struct LauncherVariables {
  int rank = -1;
  int world_size = -1;
  int local_rank = -1;
  int local_world_size = -1;
  std::string master_address;
  int master_port = -1;
  std::string run_id;
  bool agent_store = false;
  int restarts = 0;
  /// Where it is none of the first two: the launcher's name, for people.
  std::string launcher;
  /// Such a launcher has started this process alone: a world of one, wherever others meet.
  bool is_alone = false;
  /// Where `rank` and `world_size` were read from, or should have been.
  std::string rank_name = "RANK", world_size_name = "WORLD_SIZE";

  /// kInvalidArgument names a malformed variable and its value.
  static Result<LauncherVariables> from_environment();
};

}  // namespace unisono
