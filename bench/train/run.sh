#!/usr/bin/env bash
# How well the trainer's cnn scales to two ranks, beside PyTorch's DistributedDataParallel over Gloo
# where python3 has torch. Programs take turns, medians over the rounds.
#
#   bench/train/run.sh [--rounds N] [--build FOLDER] [--data FOLDER] [--out CSV]
#
# --build: a Release build with the trainer (default build/release, which ./dev build makes).
# PYTHON names another interpreter. Close everything else first.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
rounds=5 build=$root/build/release data=/usr/share/datasets/fashion-mnist out=
python=${PYTHON:-python3}
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=$2; shift ;;
    --build) build=$2; shift ;;
    --data) data=$2; shift ;;
    --out) out=$2; shift ;;
    -h|--help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done
out=${out:-$build/ddp_step.csv}
program=$build/bench/ddp_step
[ -x "$program" ] || { echo "run.sh: no $program; ./dev build makes it" >&2; exit 2; }
torch=yes
"$python" -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null || torch=
[ -n "$torch" ] || echo "run.sh: $python has no torch with Gloo: left out" >&2

readonly turns=2 steps=12 batch=128
: > "$out"

# torch_step RANKS: one process for each rank, as torchrun starts them.
torch_step() {
  local ranks=$1 rank port pids=() status=0
  port=$(shuf -i 20000-30000 -n 1)
  for ((rank = 0; rank < ranks; ++rank)); do
    RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port OMP_NUM_THREADS=1 \
      "$python" "$here/torch_ddp_step.py" "$turns" "$steps" "$batch" "$data" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  return "$status"
}

for ((round = 1; round <= rounds; ++round)); do
  echo "run.sh: round $round of $rounds" >&2
  for ranks in 1 2; do
    "$program" "$ranks" "$turns" "$steps" "$batch" >> "$out"
    [ -z "$torch" ] || torch_step "$ranks" >> "$out"
  done
done
"$python" "$here/table.py" "$out"
