find_package(nlohmann_json REQUIRED)
unisono_test(recorder_test
  SOURCES recorder_blame_test.cc recorder_memory_test.cc recorder_record_test.cc
    recorder_record.cc recorder_trace_test.cc ../support/log_guard.cc
    ${PROJECT_SOURCE_DIR}/tools/blame/verdict_text.cc
    ${PROJECT_SOURCE_DIR}/tools/common/sizes.cc
  LABELS unit LINKS nlohmann_json::nlohmann_json TIMEOUT 60)
set_target_properties(recorder_test PROPERTIES UNISONO_TESTS_ONLY OFF)
