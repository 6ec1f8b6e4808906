unisono_test(rendezvous_rules_test
  SOURCES rendezvous_arbiter_test.cc rendezvous_point_test.cc rendezvous_wire_test.cc rendezvous_decider_test.cc
    rendezvous_calls_test.cc rendezvous_gathering_test.cc rendezvous_introduction_test.cc rendezvous_quorum_test.cc rendezvous_session_test.cc rendezvous_shrink_test.cc
    rendezvous_silence_test.cc rendezvous_succession_test.cc rendezvous_survivor_test.cc
    rendezvous_wait_list_test.cc
  LABELS unit TIMEOUT 60)
# Most of its time is patience.
unisono_test(rendezvous_joining_test
  SOURCES rendezvous_connect_test.cc rendezvous_hostile_test.cc rendezvous_patience_test.cc
    rendezvous_probe_test.cc rendezvous_join_test.cc
    rendezvous_departure_test.cc
    rendezvous_process_test.cc rendezvous_secret_test.cc rendezvous_sockets_test.cc
    rendezvous_standby_dial_test.cc
    rendezvous_strangers_test.cc rendezvous_support.cc rendezvous_decision_test.cc
    rendezvous_control_thread_test.cc rendezvous_cut_off_test.cc rendezvous_takeover_test.cc
    ../support/log_guard.cc ../support/other_user.cc
  LABELS unit TIMEOUT 180)
