# What native calls are compared with.
unisono_test_data(unisono_test_native_values native_values.cc)
unisono_test(native_test
  SOURCES native_access_trials_test.cc native_address_space_test.cc
    native_collectives_test.cc native_descriptors_test.cc
    native_host_probe_test.cc native_levels_test.cc
    native_memory_test.cc native_rotation_test.cc native_segment_test.cc native_sequences_test.cc
    registered_memory_test.cc
    native_fallocate.cc native_oracle.cc native_ranks.cc ../support/other_user.cc ../support/watchdog.cc
  LABELS unit LINKS unisono_test_native_values PROCESSORS 2 TIMEOUT 300)
unisono_test(native_way_costs_test SOURCES native_way_costs_test.cc LABELS unit TIMEOUT 60)
target_compile_definitions(native_way_costs_test PRIVATE
  UNISONO_RECORDED_HOSTS="${CMAKE_CURRENT_SOURCE_DIR}/hosts")
