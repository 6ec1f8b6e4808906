#include "tests/train/cuda/cublas_under_test.h"

#include <cstdlib>

#include "tests/cuda/driver_under_test.h"
#include "tests/train/cuda/kernel_twins.h"

namespace unisono::test {

void use_cublas_under_test() {
  static const bool done = [] {
    if (fake() == nullptr) return true;
    train::kernels::register_twins(*fake());
    // Of the environment's choice, if it has one.
    setenv("UNISONO_CUBLAS_LIBRARY", UNISONO_FAKE_CUBLAS_FILE, 0);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace unisono::test
