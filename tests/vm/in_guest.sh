# shellcheck shell=dash disable=SC2154,SC2034,SC2016
# Functions that the commands of run_tests.sh are made of. Run by the guest's shell, in the build
# folder. Expects: $command_seconds; $VM_NODE and $VM_NODES where there are several guests.

status=0
port=29500

limited() { timeout "$command_seconds" "$@"; }

now() { cut -d ' ' -f 1 /proc/uptime; }

# check COMMAND...: runs it and notes whether it failed, and how long it took.
check() {
  local began result=0
  began="$(now)"
  echo "=== $*"
  case "$1" in */*) limited "$@" ;; *) "$@" ;; esac || result=$?
  echo "=== $(echo "$(now) $began" | awk '{ printf "%.1f", $1 - $2 }') s: $1 ${2:-}"
  [ "$result" = 0 ] || { echo "=== FAILED with exit status $result: $*"; status=1; }
}

# over_verbs [NAME=VALUE...] PROGRAM...: a suite that runs over several transports, over this one.
over_verbs() { limited env TEST_TRANSPORTS=verbs "$@"; }

every_device_is_listed() {
  local device
  limited tools/unisono info >/tmp/info || return
  cat /tmp/info
  for device in /sys/class/infiniband/*; do
    grep -q "${device##*/}" /tmp/info || { echo "no word of ${device##*/}"; return 1; }
  done
}

# Eight ranks as processes, two on each of four devices: everything goes over the wire between them.
ranks_with_a_device_each() {
  limited tools/unisono run -n 8 -- sh -c 'UNISONO_TRANSPORT=verbs \
    UNISONO_VERBS_DEVICES=rxe$((LOCAL_RANK % 4)) exec tests/vm/verbs_guest_test --role=matrix'
}

# ---- Several guests: every node runs the same functions in the same order --------------------

reach_other_node() {
  [ "$VM_NODE" -lt 2 ] || return 0
  if [ "$VM_NODE" = 0 ]; then timeout 60 ibv_rc_pingpong -e -d rxe0 -g 1 -n 100; return; fi
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    timeout 60 ibv_rc_pingpong -e -d rxe0 -g 1 -n 100 guest0 && return
    sleep 0.5
  done
  return 1
}

# One job over all nodes, two ranks in each.
run_on_all() {
  port=$((port + 1))
  printf '%064d\n' "$port" >/tmp/job.key
  chmod 600 /tmp/job.key
  limited tools/unisono run --nnodes "$VM_NODES" --node-rank "$VM_NODE" -n 2 \
    --master-addr guest0 --master-port "$port" --job-key-file /tmp/job.key -- "$@"
}

# all_nodes WORDS ROLE: every collective over verbs; the ranks of the last node print WORDS.
all_nodes() {
  local result=0
  run_on_all env UNISONO_TRANSPORT=verbs tests/vm/verbs_guest_test --role="$2" \
    >/tmp/job.log 2>&1 || result=$?
  cat /tmp/job.log
  [ "$VM_NODE" != "$((VM_NODES - 1))" ] || grep -Eq "$1" /tmp/job.log || result=1
  return $result
}

every_collective_of_perf() {
  local collective result=0
  for collective in all_reduce reduce broadcast all_gather all_gather_v reduce_scatter \
    reduce_scatter_v gather gather_v scatter scatter_v all_to_all all_to_all_v scan exscan \
    send_receive p2p; do
    run_on_all tools/unisono perf $collective --transport verbs -c 1 -b 64 -e 256K -f 64 -I 2 \
      -w 0 --budget-ms 50 || result=1
  done
  return $result
}

# Ranks that cannot register what verbs needs go over TCP, and say why.
nodes_without_locked_memory() {
  local result=0
  (
    ulimit -l 64
    run_on_all setpriv --reuid=65534 --regid=65534 --clear-groups \
      tests/vm/verbs_guest_test --role=matrix
  ) >/tmp/job.log 2>&1 || result=$?
  port=$((port + 1))
  cat /tmp/job.log
  grep -q 'TCP is used instead of verbs.*(memlock) is 64 KiB.*ulimit -l' /tmp/job.log || result=1
  return $result
}

# A job that has verbs on some hosts only: the others are reached over TCP.
nodes_of_which_one_has_no_port() {
  local result=0
  if [ "$VM_NODE" = 1 ]; then
    run_on_all env UNISONO_VERBS_DEVICES=^rxe0,rxe1 tests/vm/verbs_guest_test --role=matrix \
      >/tmp/job.log 2>&1 || result=$?
    grep -q 'TCP is used, not verbs: no usable port' /tmp/job.log || result=1
  else
    run_on_all tests/vm/verbs_guest_test --role=matrix >/tmp/job.log 2>&1 || result=$?
  fi
  cat /tmp/job.log
  return $result
}
