unisono_test(settings_test SOURCES config_test.cc link_map_test.cc
  SINGLE_THREADED LABELS unit TIMEOUT 60)
