// What is alive, as numbers and as lines.
#pragma once

#include "tests/cuda/fake_driver/fake_cuda.h"

namespace fake_cuda {

Counts count_all();
/// A line for each thing that is alive; how many.
std::uint64_t report_leaks();

}  // namespace fake_cuda
