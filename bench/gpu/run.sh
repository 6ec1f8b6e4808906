#!/usr/bin/env bash
# Everything about GPU buffers that only a GPU can show, in one run of at most ten minutes.
#
#   bench/gpu/run.sh [options]
#
#   --out FOLDER       where all output goes (default: $OUT, else build/gpu-results)
#   --build FOLDER     where programs are built (default: build/gpu of this repository)
#   --pack FOLDER      only build, and put the programs with the libraries they need into FOLDER,
#                      for a machine that has a GPU but not what building takes
#   --programs FOLDER  build nothing: the programs of a build tree, or of --pack
#   --only "PART ..."  of: probe conformance correctness timing sanitizer ncu graph train peers
#   --seconds N        end after about this time (default 570)
#   --rehearse         the whole script with the driver DRIVER=file, a double of the tests', and tiny
#                      sizes: what is then measured means nothing
#
# Without a GPU it says "no GPU here: ..." and ends with status 77 before anything is built. A part
# that fails or cannot run says so, and the rest goes on. The last lines are a short table; status 1
# when a part failed or a goal was missed. Needs python3; see README.md for the rest.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build/gpu out=${OUT:-$root/build/gpu-results}
only="probe conformance correctness timing sanitizer ncu graph train peers"
programs='' pack='' seconds=570 rehearsal=''
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2; shift ;;
    --build) build=$2; shift ;;
    --pack) pack=$2; shift ;;
    --programs) programs=$2; shift ;;
    --only) only=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --rehearse) rehearsal=yes ;;
    -h|--help) sed -n '2,22s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done
PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin
began=$(date +%s)
left() { echo $((began + seconds - $(date +%s))); }
say() { echo "$*" >&2; }

# --- is there a GPU? -----------------------------------------------------------------------------
driver=${UNISONO_CUDA_LIBRARY:-libcuda.so.1}
ask_driver() { # file: how many devices, or why none
  python3 - "$1" << 'END'
import ctypes, sys
try:
    library = ctypes.CDLL(sys.argv[1])
    status = library.cuInit(0)
    count = ctypes.c_int(0)
    status = status or library.cuDeviceGetCount(ctypes.byref(count))
except (OSError, AttributeError) as error:
    sys.exit(f"no driver ({error})")
if status:
    sys.exit(f"the driver's answer is error {status}")
if count.value == 0:
    sys.exit("the driver has no device; see CUDA_VISIBLE_DEVICES")
END
}
if [ -n "$rehearsal" ]; then
  driver=${DRIVER:?--rehearse needs DRIVER=file, the driver of the tests}
  export FAKE_CUDA_DELAY_US=0 FAKE_CUDA_MEMORY=${FAKE_CUDA_MEMORY:-1G}
elif [ -z "$pack" ]; then
  # Some containers have the driver in a folder of its own that the loader does not know.
  candidates=("$driver")
  [ -n "${UNISONO_CUDA_LIBRARY:-}" ] ||
    candidates+=(/usr/local/nvidia/lib64/libcuda.so.1 /usr/lib/wsl/lib/libcuda.so.1)
  reason='' why=''
  for file in "${candidates[@]}"; do
    why=$(ask_driver "$file" 2>&1) && driver=$file && break
    reason=${reason:-$why}
  done
  [ -z "$why" ] || { echo "no GPU here: $reason"; exit 77; }
fi
export UNISONO_CUDA_LIBRARY=$driver
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
rm -f "$out"/train_*.txt "$out"/*.jsonl "$out"/*.log "$out"/*.csv "$out"/parts.tsv

# --- programs ------------------------------------------------------------------------------------
build_programs() {
  local generator=() tests train=OFF
  # The trainer needs Eigen and zlib; all else goes without.
  [ -d /usr/include/eigen3 ] && [ -f /usr/include/zlib.h ] && train=ON
  command -v ninja > /dev/null && generator=(-G Ninja)
  cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DUNISONO_WITH_CUDA=ON \
    -DUNISONO_CUDA_ARCHITECTURES="${ARCHITECTURES:-90}" -DUNISONO_BUILD_TRAIN=$train \
    -DUNISONO_BUILD_BENCH=OFF || return 1
  tests=$(cmake --build "$build" --target help | grep -oE '(train_)?cuda_[a-z_]+_test' | sort -u)
  # shellcheck disable=SC2086
  cmake --build "$build" -j "$(nproc)" --target unisono_cli gpu_probe gpu_graph $tests
}

find_program() { # name
  local place
  for place in "$programs" "$programs/tools" "$programs/bench/gpu" "$programs/tests/cuda"; do
    [ -f "$place/$1" ] && [ -x "$place/$1" ] && { echo "$place/$1"; return; }
  done
}
list_tests() {
  local file
  for file in "$programs"/{,train_}cuda_*_test "$programs"/tests/{,train/}cuda/{,train_}cuda_*_test; do
    [ -x "$file" ] && echo "$file"
  done
}

pack_programs() {
  mkdir -p "$pack/lib" || return 1
  local file library
  for file in $(find_program unisono) $(find_program gpu_probe) $(find_program gpu_graph) \
    $(list_tests); do
    strip -o "$pack/${file##*/}" "$file" || return 1
    # What every system with a C++ compiler has stays there.
    ldd "$file" | awk '$3 ~ /^\// { print $3 }' |
      grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so' |
      while read -r library; do cp -Lu "$library" "$pack/lib/"; done
  done
  du -sh "$pack" | awk '{ print "packed: " $1 " in '"$pack"'" }'
}

if [ -z "$programs" ]; then
  say "building (log: $out/build.log) ..."
  if ! timeout "$([ -n "$pack" ] && echo 7200 || left)" bash -c "$(declare -f build_programs)
      root='$root' build='$build'; build_programs" > "$out/build.log" 2>&1; then
    tail -n 15 "$out/build.log"
    echo "run.sh: the build failed or took too long; --pack builds on another machine"
    exit 1
  fi
  programs=$build
fi
programs=$(cd "$programs" && pwd) || exit 2
[ -n "$pack" ] && { pack_programs; exit; }
unisono=$(find_program unisono)
[ -n "$unisono" ] || { echo "run.sh: there is no program unisono in $programs"; exit 2; }
# Only for our own programs: others have libraries of these names too.
ours() {
  if [ -d "$programs/lib" ]; then
    LD_LIBRARY_PATH=$programs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"
  else
    "$@"
  fi
}

# --- parts ---------------------------------------------------------------------------------------
# run_part NAME LIMIT: runs part_NAME with all its output in NAME.log. What it prints on
# descriptor 3 is its note in the table. Status 77: it cannot run here.
run_part() {
  local name=$1 limit=$2 status start note
  case " $only " in *" $name "*) ;; *) return ;; esac
  [ "$limit" -le "$(left)" ] || limit=$(left)
  start=$(date +%s)
  if [ "$limit" -lt 1 ]; then
    printf '%s\tmissing\t0\tno time was left\n' "$name" >> "$out/parts.tsv"
    return
  fi
  say "$name (at most $limit s) ..."
  # Process groups of their own, so that a limit ends all of a part.
  set -m
  (deadline=$(($(date +%s) + limit)); "part_$name") > "$out/$name.log" 2>&1 3> "$out/note" &
  local job=$!
  (sleep "$limit"; kill -TERM -- "-$job"; sleep 5; kill -KILL -- "-$job") > /dev/null 2>&1 &
  local guard=$!
  set +m
  wait "$job"
  status=$?
  kill -- "-$guard" 2> /dev/null
  wait "$guard" 2> /dev/null
  note=$(tr '\n\t' '  ' < "$out/note")
  rm -f "$out/note"
  local verdict=pass
  [ "$status" = 0 ] || verdict=FAIL
  [ "$status" = 77 ] && verdict=missing
  [ "$status" -gt 128 ] && note="stopped after $limit s; $note"
  printf '%s\t%s\t%s\t%s\n' "$name" "$verdict" "$(($(date +%s) - start))" "$note" \
    >> "$out/parts.tsv"
}
# Of the part that runs: no one program may take all of its time.
limited() { # seconds command...
  local limit=$1 rest=$((deadline - $(date +%s)))
  shift
  [ "$limit" -le "$rest" ] || limit=$rest
  [ "$limit" -ge 1 ] || return 124
  ours timeout -k 3 "$limit" "$@"
}
perf() { # seconds arguments...
  local limit=$1
  shift
  echo "+ unisono perf $*" >&2
  limited "$limit" "$unisono" perf "$@" --memory cuda --timeout "$limit" --json
}

part_probe() {
  local probe status file
  probe=$(find_program gpu_probe)
  [ -n "$probe" ] || { echo "gpu_probe was not built" >&3; return 77; }
  limited 100 "$probe" > "$out/probe.jsonl"
  status=$?
  cat "$out/probe.jsonl"
  for file in nvidia-cuda-mps-control nvidia-cuda-mps-server; do
    command -v $file || echo "no $file"
  done
  nvidia-smi
  return $status
}

part_conformance() {
  local test failed='' run=0 status filter=()
  # The programs are tests of the double themselves elsewhere; here only that the script works.
  [ -n "$rehearsal" ] && filter=(--gtest_filter="${REHEARSE_TESTS:-Pieces*}")
  for test in $(list_tests); do
    case $test in
      *cuda_fake_driver_test) continue ;;
      *cuda_pieces_test) ;;
      *) [ -n "$rehearsal" ] && continue ;;
    esac
    run=$((run + 1))
    echo "=== ${test##*/}"
    limited 90 "$test" "${filter[@]}"
    status=$?
    [ $status = 0 ] || failed="$failed ${test##*/}:$status"
  done
  [ $run -gt 0 ] || { echo "no test programs were built" >&3; return 77; }
  echo "$run programs${failed:+, failed:$failed}" >&3
  [ -z "$failed" ]
}

part_correctness() {
  local ranks as collective failed=0 run=0 types=all operators=all sizes='1 2 4 8' few=4
  [ -n "$rehearsal" ] && types=float32 operators=sum sizes=2 few=2
  check() {
    run=$((run + 1))
    perf 60 "$@" -b 100000 -e 100000 -I 1 -w 0 >> "$out/correctness.jsonl" ||
      { failed=$((failed + 1)); echo "FAILED: $*"; }
  }
  for as in threads processes; do
    for ranks in $sizes; do
      check all_reduce -n "$ranks" --as $as -d $types -o $operators --place both
    done
    for collective in reduce broadcast all_gather reduce_scatter gather scatter all_to_all scan \
      send_receive; do
      [ -n "$rehearsal" ] && [ $collective != broadcast ] && continue
      check $collective -n $few --as $as -d bfloat16 --place both
    done
  done 2>&1
  echo "$run runs, $failed failed; $(wc -l < "$out/correctness.jsonl") rows right or wrong" >&3
  [ $failed = 0 ]
}

part_timing() {
  local ranks as what failed='' rank_counts='2 4 8' budget=40
  [ -n "$rehearsal" ] && rank_counts=2 budget=2
  # Large before small: should the time run out, the goals have their figures.
  for what in "all_reduce -d float32 --place in" "all_reduce -d bfloat16 --place in" \
    "all_gather --place out" "reduce_scatter --place out" "broadcast"; do
    for ranks in $rank_counts; do
      for as in threads processes; do
        local sizes="-b 4K -e 256M -f 4" large="-b 1G -e 1G -c 0"
        [ $as = processes ] && sizes="-b 4K -e 256M -f 16"
        [ -n "$rehearsal" ] && sizes="-b 4K -e 64K -f 16 -I 2 -w 0" large=
        # shellcheck disable=SC2086
        perf 40 $what -n "$ranks" --as $as --floor --mode both --budget-ms $budget $sizes \
          >> "$out/timing.jsonl" || failed="$failed ${what%% *}/$ranks/$as"
        [ -n "$large" ] && [ $as = threads ] || continue
        # shellcheck disable=SC2086
        perf 30 $what -n "$ranks" --as $as --floor --mode cold --budget-ms $budget $large \
          >> "$out/timing.jsonl" || failed="$failed ${what%% *}/$ranks/$as/1G"
      done
    done
    [ -n "$rehearsal" ] && [ "${what%% *}" != all_reduce ] && break
  done
  echo "$(wc -l < "$out/timing.jsonl") rows${failed:+; failed:$failed}" >&3
  [ -z "$failed" ]
}

part_sanitizer() {
  local tool what failed='' tools='memcheck racecheck initcheck'
  local sanitizer=${COMPUTE_SANITIZER:-compute-sanitizer}
  command -v "$sanitizer" || { echo "compute-sanitizer is not installed" >&3; return 77; }
  [ -n "$rehearsal" ] && tools=memcheck
  for tool in $tools; do
    for what in "all_reduce -n 2" "reduce_scatter -n 4 -d bfloat16" "all_gather -n 3 -d int8"; do
      echo "=== $tool: $what"
      # Threads: the tool then sees all ranks.
      # shellcheck disable=SC2086
      limited 40 "$sanitizer" --tool $tool --error-exitcode 9 "$unisono" perf $what --as threads \
        --memory cuda --place both -b 65540 -e 65540 -I 2 -w 0 --timeout 40 ||
        failed="$failed $tool/${what%% *}:$?"
      [ -n "$rehearsal" ] && break
    done
  done
  echo "$tools${failed:+; failed:$failed}" >&3
  [ -z "$failed" ]
}

part_ncu() {
  local ranks failed='' bytes=256M rank_counts='2 4 8' ncu=${NCU:-ncu}
  command -v "$ncu" || { echo "ncu is not installed" >&3; return 77; }
  [ -n "$rehearsal" ] && bytes=64K rank_counts=2
  for ranks in $rank_counts; do
    # Five calls: three timed ones and two back to back. The clocks stay as they are.
    limited 60 "$ncu" --clock-control none --csv --page raw \
      --metrics dram__bytes_read.sum,dram__bytes_write.sum --log-file "$out/ncu_$ranks.csv" \
      "$unisono" perf all_reduce -n "$ranks" --as threads --memory cuda --place in \
      -b $bytes -e $bytes -c 0 -I 1 -w 0 --timeout 60 || failed="$failed k=$ranks:$?"
  done
  echo "${failed:+failed:$failed}" >&3
  [ -z "$failed" ]
}

part_graph() {
  local graph ranks bytes failed='' replays=1000 rank_counts='2 4 8' sizes='65536 67108864'
  graph=$(find_program gpu_graph)
  [ -n "$graph" ] || { echo "gpu_graph was not built" >&3; return 77; }
  [ -n "$rehearsal" ] && replays=5 rank_counts=2 sizes=65536
  for ranks in $rank_counts; do
    for bytes in $sizes; do
      limited 30 "$graph" "$ranks" $replays "$bytes" >> "$out/graph.jsonl" ||
        failed="$failed k=$ranks:$?"
    done
  done
  cat "$out/graph.jsonl"
  echo "$replays replays${failed:+; failed:$failed}" >&3
  [ -z "$failed" ]
}

part_train() {
  local model ranks failed='' steps=200 batch=128
  "$unisono" train --help > /dev/null 2>&1 || { echo "the trainer was not built" >&3; return 77; }
  [ -n "$rehearsal" ] && steps=2 batch=8
  for model in mlp cnn; do
    for ranks in 2 4; do
      echo "=== $model, $ranks ranks on one GPU"
      limited 40 "$unisono" train --compare --device cuda --device-map 0 -n $ranks \
        --model $model --batch $batch --limit-steps $steps > "$out/train_${model}_$ranks.txt" ||
        failed="$failed $model/$ranks:$?"
      cat "$out/train_${model}_$ranks.txt"
    done
    [ -n "$rehearsal" ] && break
  done
  echo "strategies compared${failed:+; failed:$failed}" >&3
  [ -z "$failed" ]
}

part_peers() {
  [ -z "$rehearsal" ] || { echo "peers have no double" >&3; return 77; }
  python3 -c 'import torch' || { echo "no torch here" >&3; return 77; }
  # Not ours(): torch brings its own libraries.
  timeout -k 3 $((deadline - $(date +%s))) python3 "$here/peers.py" "$out/peers.jsonl" 3>&3
}

run_part probe 110
run_part conformance 150
run_part correctness 100
run_part timing 240
run_part sanitizer 90
run_part ncu 70
run_part graph 40
run_part train 60
run_part peers 90
python3 "$here/table.py" "$out" ${rehearsal:+--rehearsal} > "$out/table.txt"
verdict=$?
cat "$out/table.txt"
exit $verdict
