// The trainer's kernels compiled for the host, as what the fake driver runs when one is launched.
#pragma once

#include "tests/cuda/fake_driver/fake_cuda.h"

namespace unisono::train::kernels {

/// Once for each process that launches any. Any thread.
void register_twins(const fake_cuda::FakeCudaFunctions& fake);

}  // namespace unisono::train::kernels
