// `unisono plan`: prints, draws, checks and costs the plan of a collective, without a network.
#pragma once

namespace unisono {

/// argv[0] is the name of the command. Returns the exit status: 0, 1 for a plan that fails its
/// check, 2 for arguments that make no sense.
int plan_main(int argc, char** argv);

}  // namespace unisono
