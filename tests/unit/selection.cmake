unisono_test(selection_test SOURCES selection_test.cc host_load_test.cc idle_test.cc LABELS unit TIMEOUT 60)
