// Kernels of the fake: names for which a test program registered a host twin.
#pragma once

#include <cstdint>

#include "tests/cuda/fake_driver/fake_cuda.h"

namespace fake_cuda {

void register_kernel(const KernelTwin& twin);
std::uint64_t count_launches();
std::uint64_t count_libraries();
std::uint64_t report_library_leaks();

}  // namespace fake_cuda
