unisono_test(handshake_test
  SOURCES handshake_test.cc per_process_test.cc process_facts_test.cc same_user_test.cc secret_text_test.cc unproven_peers_test.cc
    ../support/other_user.cc
  LABELS unit)
unisono_test(stream_frames_test SOURCES ack_watch_test.cc stream_frames_test.cc LABELS unit)
unisono_test(stream_transport_test
  SOURCES stream_transport_test.cc stream_silence_test.cc stream_send_error_test.cc stream_sharing_test.cc
  LABELS unit)
unisono_test(stream_strangers_test SOURCES stream_dial_test.cc stream_strangers_test.cc LABELS unit
  LINKS Boost::headers)
