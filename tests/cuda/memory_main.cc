// Two devices and whatever else the tests of device memory want of the fake driver, here and in the
// processes that they start.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/child_process.h"

int main(int argc, char** argv) {
  // 0: what the caller has set stays.
  ::setenv("FAKE_CUDA_DEVICES", "2", 0);
  ::setenv("FAKE_CUDA_DMA_BUF", "on", 0);
  ::setenv("FAKE_CUDA_LEAKS", "fail", 0);
  int status = 0;
  if (unisono::test::run_role(argc, argv, &status)) return status;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
