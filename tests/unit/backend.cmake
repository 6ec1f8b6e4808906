unisono_test(backend_test
  SOURCES backend_call_check_test.cc backend_call_selection_test.cc backend_plan_cache_test.cc
    backend_message_test.cc backend_plan_test.cc call_record_test.cc ../engine/messenger_fixture.cc
  SINGLE_THREADED LABELS unit TIMEOUT 60)
unisono_test(backend_shared_memory_test
  SOURCES backend_shared_memory_test.cc native_ranks.cc
  LABELS unit PROCESSORS 2 TIMEOUT 60)
