unisono_test(compute_test
  SOURCES compute_exact_test.cc compute_float_types_test.cc compute_reduction_test.cc
          compute_tree_test.cc
  SINGLE_THREADED LABELS unit LINKS unisono_test_compute_oracle unisono_test_exact_oracle)
