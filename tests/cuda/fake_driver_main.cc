// The fake driver's own tests: two devices here, other machines in processes that tests start.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cuda/driver_under_test.h"
#include "tests/support/child_process.h"

int main(int argc, char** argv) {
  // 0: what the caller has set stays.
  ::setenv("FAKE_CUDA_DEVICES", "2", 0);
  ::setenv("FAKE_CUDA_LEAKS", "fail", 0);
  int status = 0;
  if (unisono::test::run_role(argc, argv, &status)) return status;
  ::testing::InitGoogleTest(&argc, argv);
  // On a real driver the tests of the fake have nothing to say.
  if (unisono::test::fake() == nullptr) ::testing::GTEST_FLAG(filter) = "-Fake*";
  return RUN_ALL_TESTS();
}
