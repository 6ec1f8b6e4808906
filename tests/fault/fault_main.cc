// The main of the failure tests: a role of a re-executed program, or GoogleTest with a watchdog.
#include <gmock/gmock.h>

#include "tests/support/child_process.h"
#include "tests/support/watchdog.h"

int main(int argc, char** argv) {
  int status = 0;
  if (unisono::test::run_role(argc, argv, &status)) return status;
  testing::InitGoogleMock(&argc, argv);
  unisono::test::guard_each_test();
  return RUN_ALL_TESTS();
}
