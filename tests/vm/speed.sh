#!/usr/bin/env bash
# The verbs transport beside bare verbs in the same guest and boot: starts a guest with four
# devices, measures in turns and prints the ratios. Takes about two minutes; leave the machine alone
# meanwhile.
#
#   tests/vm/speed.sh BUILD-FOLDER [ROUNDS]
#
# The build folder must be a release build. The figures are those of software in a virtual machine:
# only the ratios mean something.
set -euo pipefail
here="$(dirname "$(realpath "${BASH_SOURCE[0]}")")"
build="$(realpath "${1:?build folder}")"
rounds="${2:-5}"
results="$(mktemp "$build/rdma-speed.XXXXXX")"
trap 'rm -f "$results"' EXIT

# In the guest, in the build folder.
measure() {
  cat <<SHELL
perf() { tools/unisono run -n "\$1" --no-prefix -- sh -c \
  'UNISONO_VERBS_DEVICES=rxe\$RANK exec tools/unisono perf "\$@" --transport verbs --json' perf \
  "\$2" \$3; }
for round in \$(seq $rounds); do
  tests/vm/bare_rdma --stream-bytes 4194304 --ping-pong-bytes 8 --repeats 3
  perf 2 p2p '-b 8 -e 8'
  perf 2 p2p '-b 16M -e 16M'
  perf 4 all_reduce '-b 4M -e 4M'
done
perftest() {
  echo "# \$*"
  "\$@" -d rxe0 -x 1 -F >/dev/null 2>&1 & sleep 1
  "\$@" -d rxe1 -x 1 -F 10.77.0.1 2>/dev/null | grep -A1 '#bytes' || echo "# no figures from \$1"
  wait
}
perftest ib_write_bw -s 1048576 -n 100
perftest ib_read_lat -s 8 -n 1000
echo "# ibv_rc_pingpong -e -s 8 -n 1000"
ibv_rc_pingpong -e -d rxe0 -g 1 -s 8 -n 1000 >/dev/null & sleep 1
ibv_rc_pingpong -e -d rxe1 -g 1 -s 8 -n 1000 10.77.0.1 | tail -1
SHELL
}

status=0
bash "$here/guest.sh" --dir "$build" --devs 4 --timeout 900 -- sh -c "$(measure)" \
  >"$results" || status=$?
[ "$status" -eq 0 ] || { cat "$results" >&2; exit "$status"; }
python3 "$here/speed_table.py" "$results"
