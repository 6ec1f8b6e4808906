unisono_test(handshake_test SOURCES handshake_test.cc LABELS unit)
unisono_test(stream_frames_test SOURCES stream_frames_test.cc LABELS unit)
unisono_test(stream_transport_test SOURCES stream_transport_test.cc LABELS unit PROCESSORS 2)
unisono_test(stream_strangers_test SOURCES stream_strangers_test.cc LABELS unit)
