// `unisono blame`: who stopped first, in what, and who waits for whom.
#pragma once

namespace unisono {

/// argv[0] is "blame". Returns the exit status of the process.
int blame_main(int argc, char** argv);

}  // namespace unisono
