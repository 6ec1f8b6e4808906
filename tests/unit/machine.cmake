unisono_test(machine_test SOURCES machine_facts_test.cc machine_file_test.cc output_file_test.cc replace_file_test.cc
    ../support/other_user.cc
  LABELS unit TIMEOUT 60)
