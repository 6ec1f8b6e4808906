# What matters most, in the order in which it matters; last what may hang. Sourced by run.sh.
# shellcheck shell=bash disable=SC2034,SC2154

first_call() {
  run_part probe 75
  run_part kernels 90
  run_part brief 60
  run_part memcheck 45
  run_part correctness 110
  run_part goals 200
  run_part ncu 70
  run_part graph 45
  run_part waits 150
}

part_probe() {
  local file
  attempt probe 35 "$probe" attributes freed_handle > "$raw/probe.jsonl"
  # What calls of processes rest on.
  attempt memory_operations 35 "$probe" memory_operations >> "$raw/probe.jsonl"
  case $? in
    0|75) ;;
    *) echo memory_operations > "$raw/processes_hang" ;;
  esac
  cat "$raw/probe.jsonl"
  for file in nvidia-cuda-mps-control nvidia-cuda-mps-server; do
    command -v $file || echo "no $file"
  done
  conclude "run of gpu_probe"
}

# The tests of what all others stand on.
part_kernels() {
  local name names='cuda_driver_table_test cuda_kernels_test cuda_memory_test'
  # The double has these tests of its own.
  [ -z "$rehearsal" ] || names=${REHEARSE_TESTS:-cuda_pieces_test}
  for name in $names; do run_suites "$name" 40; done
  conclude "suites, $(count_tests "$raw/kernels.log")"
}

part_brief() {
  local ranks as rank_counts='2 4 8' sizes='-b 4K -e 64M -f 16384'
  [ -z "$rehearsal" ] || { rank_counts=2 sizes='-b 4K -e 64K -f 16 -I 2 -w 0'; }
  for as in threads processes; do
    for ranks in $rank_counts; do
      # In the log it shows whether calls are staged, and why.
      # shellcheck disable=SC2086
      UNISONO_LOG=debug measure brief.jsonl "$as/$ranks" 30 all_reduce -n "$ranks" --as $as --place in --mode hot \
        --budget-ms 40 $sizes
    done
  done
  conclude "runs of all_reduce at two sizes"
}

# check_memory TOOL WHAT: one tool of compute-sanitizer over a few calls of threads, which it sees
# all of.
check_memory() {
  local is_slow=yes
  # shellcheck disable=SC2086
  attempt "$1/${2%% *}" 40 "$sanitizer" --tool "$1" --error-exitcode 9 "$unisono" perf $2 \
    --as threads --memory cuda --place both -b 65540 -e 65540 -I 2 -w 0 --timeout 40
}
part_memcheck() {
  local sanitizer
  sanitizer=$(find_sanitizer) || { echo "compute-sanitizer is not installed" >&3; return 77; }
  check_memory memcheck "all_reduce -n 2"
  ! refused memcheck 'Device not supported' "compute-sanitizer does not support this device" ||
    return 77
  conclude "run of memcheck"
}

part_correctness() {
  local ranks as collective types=all operators=all rank_counts='2 4 8' few=4
  [ -z "$rehearsal" ] || { types=float32 operators=sum rank_counts=2 few=2; }
  check() { # collective ranks as arguments...
    local name=$1/$2/$3
    measure correctness.jsonl "$name" 60 "$1" -n "$2" --as "$3" "${@:4}" -b 100000 -e 100000 \
      -I 1 -w 0 --place both
  }
  for as in threads processes; do
    for ranks in $rank_counts; do
      check all_reduce "$ranks" $as -d $types -o $operators
    done
    for collective in reduce broadcast all_gather reduce_scatter gather scatter all_to_all scan \
      send_receive; do
      [ -n "$rehearsal" ] && [ $collective != broadcast ] && continue
      check $collective $few $as -d bfloat16
    done
  done
  conclude "runs, $(wc -l < "$raw/correctness.jsonl") rows checked"
}

# Large before small and threads before processes: should the time run out, the goals that most
# depends on have their figures.
part_goals() {
  local ranks rank_counts='2 4 8' small='-b 4M -e 256M -f 4' large='-b 64M -e 256M -f 4'
  [ -z "$rehearsal" ] || { rank_counts=2 small='-b 64K -e 64K -I 2 -w 0'; large=$small; }
  goal() { # as sizes arguments...
    local as=$1 sizes=$2
    shift 2
    for ranks in $rank_counts; do
      # shellcheck disable=SC2086
      measure timing.jsonl "$1/$as/$ranks" 40 "$@" -n "$ranks" --as "$as" --floor --mode cold \
        --budget-ms 40 $sizes
    done
  }
  goal threads "$small" all_reduce -d float32 --place in
  if [ -z "$rehearsal" ]; then
    goal threads "$large" all_reduce -d bfloat16 --place in
    goal threads "$large" all_gather --place out
    goal threads "$large" reduce_scatter --place out
    goal threads "$large" broadcast
  fi
  goal processes "$large" all_reduce -d float32 --place in
  if [ -z "$rehearsal" ]; then
    goal processes "$large" all_reduce -d bfloat16 --place in
    goal threads '-b 1G -e 1G -c 0' all_reduce -d float32 --place in
  fi
  conclude "runs, $(grep -c '"collective"' "$raw/timing.jsonl") rows"
}

part_ncu() {
  local ranks bytes=256M rank_counts='2 4 8' ncu
  ncu=$(find_ncu) || { echo "ncu is not installed" >&3; return 77; }
  [ -z "$rehearsal" ] || { bytes=64K rank_counts=2; }
  for ranks in $rank_counts; do
    # The clocks stay as they are.
    attempt "$ranks" 60 "$ncu" --clock-control none --csv --page raw \
      --metrics dram__bytes_read.sum,dram__bytes_write.sum --log-file "$raw/ncu_$ranks.csv" \
      "$unisono" perf all_reduce -n "$ranks" --as threads --memory cuda --place in \
      -b $bytes -e $bytes -c 0 -I 1 -w 0 --timeout 60
  done
  ! refused ncu 'ERR_NVGPUCTRPERM\|LibraryNotLoaded' "ncu may not read the counters here" ||
    return 77
  conclude "runs under ncu"
}

part_graph() {
  local graph ranks bytes replays=1000 rank_counts='2 4 8' sizes='4096 65536 67108864'
  graph=$(find_program gpu_graph)
  [ -n "$graph" ] || { echo "gpu_graph was not built" >&3; return 77; }
  [ -z "$rehearsal" ] || { replays=5 rank_counts=2 sizes=4096; }
  for ranks in $rank_counts; do
    for bytes in $sizes; do
      attempt "$ranks/$bytes" 30 "$graph" "$ranks" $replays "$bytes" >> "$raw/graph.jsonl"
    done
  done
  cat "$raw/graph.jsonl"
  conclude "graphs of $replays replays"
}

# Streams that wait for other processes' streams, and few hardware queues for many streams.
part_waits() {
  local name ranks sizes='-b 64K -e 1M -f 16'
  [ -z "$rehearsal" ] || sizes='-b 4K -e 4K -I 2 -w 0'
  for ranks in 2 8; do
    [ -n "$rehearsal" ] && [ $ranks = 8 ] && continue
    # shellcheck disable=SC2086
    CUDA_DEVICE_MAX_CONNECTIONS=1 measure waits.jsonl "processes/$ranks" 30 all_reduce -n $ranks \
      --as processes --place in $sizes
    # shellcheck disable=SC2086
    CUDA_DEVICE_MAX_CONNECTIONS=1 measure waits.jsonl "threads/$ranks" 30 all_reduce -n $ranks \
      --as threads --place in $sizes
  done
  # More threads than share device memory: their calls are staged.
  # shellcheck disable=SC2086
  [ -n "$rehearsal" ] ||
    measure waits.jsonl staged/17 30 all_reduce -n 17 --as threads --place in $sizes
  # Of processes with gates.
  # shellcheck disable=SC2086
  [ -n "$rehearsal" ] || CUDA_DEVICE_MAX_CONNECTIONS=1 \
    measure waits.jsonl gates/17 30 all_reduce -n 17 --as processes --place in $sizes
  for name in cuda_capture_test cuda_replay_test cuda_kill_test; do
    [ -z "$rehearsal" ] || break
    run_suites $name 40
  done
  conclude "runs, $(count_tests "$raw/waits.log")"
}
