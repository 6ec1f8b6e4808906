// `unisono run`: the launcher.
#pragma once

namespace unisono {

/// argv[0] is "run". Returns the exit status of the process.
int run_main(int argc, char** argv);

}  // namespace unisono
