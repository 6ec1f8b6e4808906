unisono_test(backend_test SOURCES call_record_test.cc SINGLE_THREADED LABELS unit TIMEOUT 60)
