#!/usr/bin/env bash
# Holds what `unisono plan --cost` predicts against SimGrid (Debian and Ubuntu: libsimgrid-dev), on
# the same networks. Prints a table; every figure is in simgrid.csv of --out.
#
#   bench/simgrid/run.sh [--build FOLDER] [--out FOLDER] [--ranks 8,64] [--messages-max N]
#
# --build: a build with the command (default build/release, which ./dev build makes).
# --messages-max: plans with more messages are left out (default 100000). PYTHON names another
# interpreter. Takes minutes; times are simulated, so the machine may be busy.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build/release out=$root/build/simgrid more=()
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2; shift ;;
    --out) out=$2; shift ;;
    --ranks|--messages-max) more+=("$1" "$2"); shift ;;
    -h|--help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done
[ -x "$build/tools/unisono" ] || { echo "run.sh: no $build/tools/unisono; ./dev build makes it" >&2; exit 2; }
[ -e /usr/include/simgrid/s4u.hpp ] || { echo "run.sh: no SimGrid: apt-get install libsimgrid-dev" >&2; exit 2; }
mkdir -p "$out"
g++ -std=c++20 -O2 -Wall -Wextra "$here/replay.cc" -lsimgrid -o "$out/replay"
"${PYTHON:-python3}" "$here/compare.py" --unisono "$build/tools/unisono" --replay "$out/replay" \
  --folder "$out" "${more[@]}"
