// `unisono perf`: how fast a collective is here, in the habits of nccl-tests.
#pragma once

namespace unisono {

/// argv[0] is the name of the subcommand. Returns the exit status: 0; 1 when a result was wrong or
/// a call failed; 2 for a wrong command line. Starts local ranks when no launcher did.
int perf_main(int argc, char** argv);

}  // namespace unisono
