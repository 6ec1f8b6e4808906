// The main of the end-to-end tests: GoogleTest with a watchdog over each test.
#include <gmock/gmock.h>

#include "tests/support/watchdog.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  unisono::test::guard_each_test();
  return RUN_ALL_TESTS();
}
