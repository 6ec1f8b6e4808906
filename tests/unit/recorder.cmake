unisono_test(recorder_test
  SOURCES recorder_blame_test.cc recorder_memory_test.cc recorder_record_test.cc
    recorder_record.cc ${PROJECT_SOURCE_DIR}/tools/blame/verdict_text.cc
    ${PROJECT_SOURCE_DIR}/tools/common/sizes.cc
  LABELS unit TIMEOUT 60)
set_target_properties(recorder_test PROPERTIES UNISONO_TESTS_ONLY OFF)
