#!/usr/bin/env bash
# One ctest entry of the label rdma: starts one guest of the named topology, or two, and runs the
# programs of a build folder in it, all of them even after one has failed.
#
#   tests/vm/run_tests.sh BUILD-FOLDER TOPOLOGY [devices_only]
#
# TOPOLOGY: devices_0, devices_1, devices_2, devices_4, nodes_2; cm_devices_2, cm_nodes_2: the same,
# and paths are asked for by rdma_cm.
# devices_only: without the transport's own tests, for a build that has no verbs transport.
# Exit status: 0 all passed, 1 one failed, 77 no guest is possible here, 124 and 125 as of guest.sh.
set -euo pipefail
here="$(dirname "$(realpath "${BASH_SOURCE[0]}")")"
build="${1:?build folder}"
topology="${2:?topology}"
claims="${3:-everything}"
readonly here build topology claims
readonly command_seconds=300 guest_seconds=840

# What runs in the guest, in the build folder: `check` lines, one command each. Node N of several
# sees VM_NODE=N and reaches the others as guest0, guest1, ...
device_commands() {
  case "$1" in
    devices_0 | cm_*) ;;
    devices_*)
      echo 'check tests/vm/feature_probe --gtest_brief=1'
      echo 'check tests/vm/bare_rdma --check'
      ;;
    nodes_*)
      echo 'check tests/vm/feature_probe --gtest_brief=1'
      echo 'check reach_other_node'
      ;;
  esac
}

# The transport's tests. What depends on the number of devices runs with each, the rest once.
transport_commands() {
  case "$1" in
    devices_0)
      echo 'check tests/vm/verbs_guest_test --gtest_brief=1 --gtest_filter="NoDevice.*"'
      echo 'check tools/unisono info'
      ;;
    devices_1)
      # What is left out differs from the other guests' in the number of ports alone.
      local others='-*/verbs_port_cm*:*/verbs_port_stripes_processes*'
      [ "${TEST_FULL:-}" != 1 ] || others=''
      conformance "*/verbs_port*$others"
      echo 'check tests/vm/verbs_guest_test --gtest_brief=1'
      echo 'check over_verbs tests/fault/fault_kill_test --gtest_brief=1'
      ;;
    devices_2)
      conformance '*/verbs_port_threads*:*/verbs_port_stripes*'
      echo 'check tests/vm/verbs_guest_test --gtest_brief=1'
      echo 'check over_verbs tests/collective/collective_point_to_point_test --gtest_brief=1'
      echo 'check over_verbs UNISONO_CHECKSUM=on tests/collective/collective_point_to_point_test' \
        '--gtest_brief=1 --gtest_filter="*AllSizes*:*ManyInFlight*:*Floods*"'
      echo 'check over_verbs tests/collective/collective_request_test --gtest_brief=1'
      echo 'check over_verbs tests/fault/fault_deadline_test --gtest_brief=1'
      echo 'check every_device_is_listed'
      ;;
    devices_4)
      conformance '*/verbs_port_processes*:*/verbs_port_stripes_threads*'
      echo 'check over_verbs tests/collective/collective_matrix_test --gtest_brief=1'
      echo 'check over_verbs tests/collective/collective_process_test --gtest_brief=1' \
        '--gtest_filter="*/verbs"'
      echo 'check ranks_with_a_device_each'
      ;;
    nodes_2)
      echo 'check all_nodes "" matrix'
      echo 'check all_nodes "warning: .*rxe1 port 1.*; going on over rxe0|leaves rxe1 port 1"' \
        'matrix_while_pulled'
      echo 'check every_collective_of_perf'
      echo 'check nodes_without_locked_memory'
      echo 'check nodes_of_which_one_has_no_port'
      ;;
    cm_devices_2)
      conformance '*/verbs_port_cm*'
      echo 'check tests/vm/verbs_guest_test --gtest_brief=1 --gtest_filter="PortThatGoesDown.*"'
      ;;
    cm_nodes_2)
      echo 'check all_nodes "warning: .*rxe1 port 1.*; going on over rxe0|leaves rxe1 port 1"' \
        'matrix_while_pulled'
      ;;
  esac
}

conformance() {
  echo "check tests/transport/transport_conformance_test --gtest_brief=1 --gtest_filter='$1'"
}

options=(--dir "$build" --timeout "$guest_seconds")
case "$topology" in
  cm_*) options+=(--env UNISONO_VERBS_CONNECT=cm) ;;
esac
case "${topology#cm_}" in
  devices_*) options+=(--devs "${topology##*devices_}") ;;
  # A second device in each: the first one's cable carries the TCP connections, too.
  nodes_*) options+=(--nodes "${topology##*nodes_}" --devs 2) ;;
  *) echo "run_tests.sh: unknown topology '$topology'" >&2; exit 2 ;;
esac
# A guest is as slow as a sanitizer: suites leave out there what other transports or guests have.
options+=(--env TEST_SLOW=1)
for name in TEST_FULL GTEST_FILTER; do
  [ -z "${!name:-}" ] || options+=(--env "$name=${!name}")
done
commands="$(device_commands "$topology")"
[ "$claims" = devices_only ] || commands+=$'\n'"$(transport_commands "$topology")"
exec bash "$here/guest.sh" "${options[@]}" -- \
  sh -c "command_seconds=$command_seconds; $(cat "$here/in_guest.sh")
$commands
exit \$status"
