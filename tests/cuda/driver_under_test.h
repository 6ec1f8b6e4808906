// Which driver the tests of GPU code load: the fake one of this build, unless the environment names
// another with UNISONO_CUDA_LIBRARY (libcuda.so.1 for the real one). Linked into every such test.
//
// Thread rule: any thread.
#pragma once

#include <memory>
#include <string>

#include "cuda/driver/cuda_api.h"
#include "tests/cuda/fake_driver/fake_cuda.h"

namespace unisono::test {

/// The file's path. UNISONO_CUDA_LIBRARY has it too, from before main() on, for the library's own
/// reading of the environment and for child processes.
const std::string& driver_file();

/// The driver's table, initialised; the process ends with a message where there is none.
std::shared_ptr<const cuda::CudaApi> driver();

/// How many devices the driver has. Counted in a process of its own: this one may still fork ranks
/// that use the driver, which a real one forbids behind cuInit.
int device_count();

/// The fake's own functions; null when the driver is a real one, and the test should skip what
/// needs them.
const fake_cuda::FakeCudaFunctions* fake();

/// A driver function that the table does not have, such as cuStreamBeginCapture, in the form of
/// driver version `form`; null where the driver lacks it.
void* driver_function(const char* name, int form = 12000);

}  // namespace unisono::test
