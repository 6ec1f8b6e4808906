unisono_test(settings_test SOURCES config_test.cc link_map_test.cc shared_settings_test.cc
  SINGLE_THREADED LABELS unit TIMEOUT 60)
