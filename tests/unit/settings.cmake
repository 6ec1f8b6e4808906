unisono_test(settings_test SOURCES config_test.cc link_map_test.cc LABELS unit TIMEOUT 60)
