unisono_test(selection_test SOURCES selection_test.cc host_load_test.cc idle_test.cc LABELS unit TIMEOUT 60)
unisono_test(communicator_parts_test SOURCES communicator_parts_test.cc
  SINGLE_THREADED LABELS unit TIMEOUT 60)
unisono_test(watchdog_test SOURCES watchdog_test.cc LABELS unit TIMEOUT 60)
