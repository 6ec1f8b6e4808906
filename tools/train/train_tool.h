// `unisono train`: a model, a strategy of data parallelism, and what they cost.
#pragma once

namespace unisono {

/// argv[0] is the name of the command. Returns the exit status.
int train_main(int argc, char** argv);

}  // namespace unisono
