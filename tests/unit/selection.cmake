unisono_test(selection_test SOURCES clock_test.cc selection_test.cc host_load_test.cc idle_test.cc
  LABELS unit TIMEOUT 60)
# What a communicator is composed of: a file for each part.
unisono_test(communicator_parts_test
  SOURCES communicator_failure_test.cc communicator_last_call_test.cc communicator_members_test.cc
    communicator_drain_test.cc communicator_request_pool_test.cc communicator_suspicion_test.cc communicator_traffic_test.cc
    communicator_watchdog_test.cc
    job_news_test.cc plain_memory_test.cc
    ../support/log_guard.cc
  SINGLE_THREADED LABELS unit TIMEOUT 60)
