// What a program that trains over the driver under test (tests/cuda/driver_under_test.h) needs
// beside it: host twins of the trainer's kernels and the fake cuBLAS. With a real driver neither:
// the real cuBLAS is found as users' is. Linked into every such test by
// unisono_train_cuda_test().
#pragma once

namespace unisono::test {

/// Before the first backend is made. Again is no harm; not while another thread reads the
/// environment.
void use_cublas_under_test();

}  // namespace unisono::test
