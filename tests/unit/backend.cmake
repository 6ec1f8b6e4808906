unisono_test(backend_test
  SOURCES backend_call_check_test.cc backend_call_selection_test.cc backend_plan_cache_test.cc
    call_record_test.cc
  SINGLE_THREADED LABELS unit TIMEOUT 60)
