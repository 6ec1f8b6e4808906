// The fake driver with the kernels' host twins registered as soon as it is loaded: for programs
// that know nothing of tests, like `unisono perf` and `unisono train`. With PROGRAM_DRIVER=idle the
// kernels of collectives do nothing, so that what checks results has something to find.
//
// A shared library without functions of its own: cuGetProcAddress_v2 is found in the fake driver,
// which it is linked to.
#include <cstdlib>
#include <string>

#include "tests/cuda/fake_driver/fake_cuda.h"
#include "tests/cuda/kernel_twins.h"
#ifdef UNISONO_HAS_TRAIN
#include "tests/train/cuda/kernel_twins.h"
#endif

namespace unisono::cuda {
namespace {

void do_nothing(const void*, fake_cuda::Dimensions, fake_cuda::Dimensions) {}

[[gnu::constructor]] void register_all() {
  const fake_cuda::FakeCudaFunctions& fake = *fake_cuda_functions();
  register_kernel_twins(fake);
  fake.register_kernel({"unisono_perf_empty", sizeof(unsigned), nullptr, do_nothing});
#ifdef UNISONO_HAS_TRAIN
  train::kernels::register_twins(fake);
#endif
  const char* const mode = std::getenv("PROGRAM_DRIVER");
  if (mode == nullptr || std::string(mode) != "idle") return;
  for (const KernelBody& body : kernel_bodies()) {
    fake.register_kernel({body.name.c_str(), sizeof(DeviceWork), nullptr, do_nothing});
  }
}

}  // namespace
}  // namespace unisono::cuda
