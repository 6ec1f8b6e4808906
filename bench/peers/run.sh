#!/usr/bin/env bash
# Builds and runs unisono and its peers on the same work, interleaved, and prints who is faster.
#
#   bench/peers/run.sh [--quick | --full | --busy | --fault | --limits] [options]
#
#   --quick            few sizes, three rounds: about 5 minutes (default)
#   --full             all sizes and rank counts, three rounds: some hours
#   --busy             4-byte all-reduces beside a busy process, pinned to core 0 and floating
#   --fault            one rank is killed in the middle of all_reduce: what do the others see?
#   --limits           what the machine can do without any library
#
#   --only REGEX       only where "transport ranks collective peer" matches
#   --rounds N         how often every peer gets its turn
#   --kills N          with --fault: so many kills of a random rank at a random moment, each with at
#                      most 10 s; bench/reliability/peers.py makes a table of them
#   --out CSV          where the figures go
#   --build FOLDER     where programs are built (default: build/peers of this repository)
#   --wheels           Open MPI 5, MPICH 5 and Intel MPI too, fetched from PyPI into --build (0.5 GB)
#   --unisono FOLDER   an installed or built unisono: FOLDER/bin/unisono or FOLDER/tools/unisono
#   --extra LABEL=COMMAND
#                      another peer; {n} in COMMAND is the number of ranks, {t} the transport, and
#                      the arguments of a harness follow. May be given again.
#
# Needs g++ and, of the peers, what is there: openmpi-bin libopenmpi-dev, mpich libmpich-dev,
# libgloo-dev. A peer that is missing is left out, and said so. Close everything else first.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build/peers
mode=quick only=. out= rounds= unisono= with_wheels= kills=
extras=()
while [ $# -gt 0 ]; do
  case $1 in
    --quick|--full|--busy|--fault|--limits) mode=${1#--} ;;
    --only) only=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --kills) kills=$2; shift ;;
    --out) out=$2; shift ;;
    --build) build=$2; shift ;;
    --wheels) with_wheels=yes ;;
    --unisono) unisono=$2; shift ;;
    --extra) extras+=("$2"); shift ;;
    -h|--help) sed -n '2,29s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done
mkdir -p "$build" || exit 2
out=${out:-$build/$mode.csv}
log=${out%.csv}.log
: > "$log"
began=$(date +%s)
cores=$(nproc)
say() { echo "$@" | tee -a "$log" >&2; }

# --- programs ------------------------------------------------------------------------------------
compile() { # binary "sources" compiler flags...
  local binary=$build/$1 sources=$2 compiler=$3 source stale=
  shift 3
  for source in $sources "$here"/*.h "$root"/tools/perf/lockstep.h "$root"/tools/perf/slots.h; do
    [ "$source" -nt "$binary" ] && stale=yes
  done
  [ -e "$binary" ] && [ -z "$stale" ] && return 0
  # shellcheck disable=SC2086
  "$compiler" -std=c++20 -O3 -march=native -Wall -Wextra -I"$root" -o "$binary" $sources "$@" 2>> "$log" && return 0
  say "not built: $1 (see $log)"
  return 1
}

build_unisono() {
  if [ -z "$unisono" ]; then
    unisono=$build/unisono
    cmake -S "$root" -B "$unisono" -DCMAKE_BUILD_TYPE=Release -DUNISONO_BUILD_TESTS=OFF \
      -DUNISONO_BUILD_BENCH=OFF >> "$log" 2>&1 || return 1
  fi
  [ -d "$unisono" ] || { say "no folder $unisono"; return 1; }
  unisono=$(cd "$unisono" && pwd)
  # Only these places: a build tree holds other copies, installed by its own tests.
  local library candidate source=$root includes=(-I"$unisono/include")
  if [ -e "$unisono/CMakeCache.txt" ]; then
    # What is there may be older than its sources, and `./dev perf` builds the command alone.
    cmake --build "$unisono" --target unisono unisono_cli -j "$cores" >> "$log" 2>&1 || return 1
    source=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$unisono/CMakeCache.txt")
  fi
  if [ -x "$unisono/tools/unisono" ]; then
    command_line=$unisono/tools/unisono library=$unisono/src/comm/libunisono.so
    includes+=(-I"$source/include")
  else
    command_line=$unisono/bin/unisono library=
    for candidate in "$unisono"/lib/libunisono.so "$unisono"/lib64/libunisono.so \
      "$unisono"/lib/*/libunisono.so; do
      [ -e "$candidate" ] && library=$candidate && break
    done
  fi
  if [ ! -x "$command_line" ] || [ ! -e "$library" ]; then
    say "no unisono in $unisono: neither tools/unisono and src/comm/libunisono.so (a build) nor" \
      "bin/unisono and lib/libunisono.so (installed)"
    return 1
  fi
  # Another library than last time, or a newer one, has another header as well.
  if [ "$library" -nt "$build/unisono_bench" ] ||
    [ "$(cat "$build/unisono_bench.library" 2> /dev/null)" != "$library" ]; then
    rm -f "$build/unisono_bench"
  fi
  echo "$library" > "$build/unisono_bench.library"
  say "unisono: $command_line, $library"
  compile unisono_bench "$here/unisono_bench.cc" g++ "${includes[@]}" "$library" \
    -Wl,-rpath,"$(dirname "$library")"
}

have_ompi= have_mpich= have_gloo= have_unisono= command_line=
if [ "$mode" = limits ]; then
  compile limits "$(echo "$here"/limits*.cc)" g++ -lpthread || exit 1
  timeout -k 5 900 "$build/limits" > "$out" 2>> "$log" || { say "limits failed: status $?"; exit 1; }
  say "limits: $(($(date +%s) - began)) s; figures in $out"
  exit
fi
failed='' tried=0
if build_unisono; then
  have_unisono=yes
else
  failed=yes
  say "unisono does not build: peers only (see $log)"
fi
command -v mpicxx.openmpi > /dev/null &&
  compile mpi_bench.openmpi "$here/mpi_bench.cc" mpicxx.openmpi && have_ompi=yes
command -v mpicxx.mpich > /dev/null &&
  compile mpi_bench.mpich "$here/mpi_bench.cc" mpicxx.mpich && have_mpich=yes
[ -e /usr/include/gloo/algorithm.h ] &&
  compile gloo_bench "$here/gloo_bench.cc" g++ -lgloo -lpthread && have_gloo=yes
[ -n "$have_ompi" ] || say "left out: Open MPI"
[ -n "$have_mpich" ] || say "left out: MPICH"
[ -n "$have_gloo" ] || say "left out: Gloo"
# shellcheck source=bench/peers/wheels.sh
. "$here/wheels.sh"
[ -z "$with_wheels" ] || prepare_wheels

# --- peers ---------------------------------------------------------------------------------------
# command_of PEER TRANSPORT RANKS sets the array `start`; false where the peer has no such transport.
command_of() {
  local peer=$1 transport=$2 n=$3 bind_ompi="--bind-to none" bind_mpich=
  [ "$n" -le "$cores" ] && bind_ompi="--bind-to core" && bind_mpich="-bind-to core"
  local yield=0
  [ "$n" -gt "$cores" ] && yield=1
  start=()
  # shellcheck disable=SC2206
  case $peer/$transport in
    openmpi/shm) start=(mpirun.openmpi --allow-run-as-root --oversubscribe $bind_ompi --mca pml ob1
      --mca btl vader,self --mca mpi_yield_when_idle $yield -np "$n" "$build/mpi_bench.openmpi") ;;
    openmpi/tcp) start=(mpirun.openmpi --allow-run-as-root --oversubscribe $bind_ompi --mca pml ob1
      --mca btl tcp,self --mca btl_tcp_if_include lo --mca mpi_yield_when_idle $yield -np "$n"
      "$build/mpi_bench.openmpi") ;;
    mpich/shm) start=(mpiexec.hydra $bind_mpich -np "$n" "$build/mpi_bench.mpich") ;;
    mpich/tcp) start=(env MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self UCX_NET_DEVICES=lo mpiexec.hydra
      $bind_mpich -np "$n" "$build/mpi_bench.mpich") ;;
    gloo/tcp) start=("$build/gloo_bench" --ranks "$n") ;;
    unisono/*) start=("$command_line" run -n "$n" --no-prefix -- "$build/unisono_bench") ;;
    *) wheel_command "$peer" "$transport" "$n" && return
      local extra
      for extra in "${extras[@]}"; do
        [ "${extra%%=*}" = "$peer" ] || continue
        local words=${extra#*=}
        words=${words//\{n\}/$n}
        start=(${words//\{t\}/$transport})
      done ;;
  esac
  [ ${#start[@]} -gt 0 ]
}

# The turns of one point: "peer transport buffers".
turns_of() { # wire
  local extra wheel
  [ -n "$have_ompi" ] && echo "openmpi $1 private"
  [ -n "$have_mpich" ] && echo "mpich $1 private"
  [ -n "$have_gloo" ] && [ "$1" = tcp ] && echo "gloo tcp private"
  for wheel in $wheel_peers; do echo "$wheel $1 private"; done
  for extra in "${extras[@]}"; do echo "${extra%%=*} $1 private"; done
  [ -n "$have_unisono" ] || return 0
  echo "unisono $1 private"
  [ "$1" = shm ] && echo "unisono shm allocated"
  [ "$1" = tcp ] && echo "unisono unix private"
  return 0
}

# turn PEER TRANSPORT BUFFERS RANKS COLLECTIVE harness arguments...   adds rows to $out
turn() {
  local peer=$1 transport=$2 buffers=$3 n=$4 collective=$5 status lines
  shift 5
  echo "$transport $n $collective $peer" | grep -qE "$only" || return 0
  command_of "$peer" "$transport" "$n" || return 0
  echo "## ${start[*]} $*" >> "$log"
  [ "$peer" = unisono ] && tried=1
  lines=$(wc -l < "$log")
  # The deadline is that of one algorithm; Gloo has four.
  timeout -k 5 $((4 * deadline + 30)) "${start[@]}" --peer "$peer" --transport "$transport" \
    --buffers "$buffers" --collectives "$collective" --deadline-s "$deadline" "$@" \
    >> "$out" 2>> "$log" < /dev/null
  status=$?
  grep -q '^WRONG' "$log" && wrong=yes
  tail -n +$((lines + 1)) "$log" | grep '^CUT SHORT' >&2
  [ $status = 0 ] || [ "$peer" != unisono ] || failed=yes
  [ $status = 0 ] || say "status $status: $peer $transport $buffers $n ranks $collective (see $log)"
}

# point WIRE RANKS COLLECTIVE SIZES   all peers in turn, round after round, so drift hits all alike
point() {
  local round who
  for round in $(seq 1 "$rounds"); do
    while read -r who; do
      # shellcheck disable=SC2086
      turn $who "$2" "$3" --sizes "$4" --modes hot,cold --budget-ms "$budget" --round "$round"
    done < <(turns_of "$1")
  done
  done_points=$((done_points + 1))
  say "$(printf '%4d s  point %d: %s, %s ranks, %s, %s' $(($(date +%s) - began)) $done_points "$@")"
}

header() {
  echo "peer,transport,ranks,collective,mode,buffers,bytes,iterations,time_us_median,time_us_min,time_us_p99,time_us_loop,busbw_GBps,empty_us,round" > "$out"
}

done_points=0 wrong= deadline=10 budget=10
collectives="all_reduce reduce_scatter broadcast all_gather gather scatter all_to_all send_receive"

run_quick() {
  local collective
  rounds=${rounds:-3} budget=5
  for collective in barrier $collectives; do
    point shm 2 "$collective" 4,1K,4K,16K,64K,1M,16M,64M
  done
  for collective in all_reduce all_gather; do point shm 4 "$collective" 4,4K,64K,1M; done
  for collective in barrier all_reduce broadcast all_gather; do
    point tcp 2 "$collective" 4,4K,64K,1M,16M
  done
}

run_full() {
  local collective sizes n
  local small=4,16,64,256,1K,4K,16K middle=64K,256K,1M,4M large=16M,64M,256M
  rounds=${rounds:-3}
  for collective in barrier p2p $collectives; do
    for sizes in $small $middle $large; do
      [ "$collective" = barrier ] && [ $sizes != $small ] && continue
      point shm 2 "$collective" $sizes
      point tcp 2 "$collective" "${sizes%,256M}"
    done
    [ "$collective" = p2p ] && continue
    for sizes in $small $middle 16M,64M; do
      [ "$collective" = barrier ] && [ $sizes != $small ] && continue
      point shm 4 "$collective" $sizes
      point tcp 4 "$collective" $sizes
    done
    for sizes in $small 64K,256K,1M; do
      [ "$collective" = barrier ] && [ $sizes != $small ] && continue
      point shm 8 "$collective" $sizes
    done
    # As many cores most often lie in several caches or NUMA nodes.
    [ "$cores" -ge 16 ] && point shm 16 "$collective" 64K,256K,1M,4M,16M
  done
}

# One core is kept busy by a process that never waits: it stays on core 0, or goes where the kernel
# puts it.
run_busy() {
  local round who place
  rounds=${rounds:-3}
  trap 'kill "$burner" 2> /dev/null' EXIT
  for place in pinned floating; do
    local where=()
    [ $place = pinned ] && where=(taskset -c 0)
    "${where[@]}" bash -c 'while :; do :; done' &
    burner=$!
    for round in $(seq 1 "$rounds"); do
      while read -r who; do
        [ "${who##* }" = private ] || continue
        # shellcheck disable=SC2086
        turn $who 2 all_reduce --sizes 4 --modes $place --busy-s 5 --round "$round"
      done < <(turns_of shm; [ -n "$have_gloo" ] && echo "gloo tcp private")
    done
    kill "$burner"
  done
  trap - EXIT
}

# Launchers end the survivors of a failure unless told otherwise: adds that to `start`.
keeps_going() { [ "$1" = unisono ] && echo yes; }
let_survivors_speak() {
  local word changed=()
  for word in "${start[@]}"; do
    changed+=("$word")
    case $word in
      mpirun.openmpi) changed+=(--enable-recovery) ;;
      mpiexec.hydra) changed+=(-disable-auto-cleanup) ;;
      run) changed+=(--keep-going) ;;
    esac
  done
  start=("${changed[@]}")
}

# People read the first lines, a table wants all that ranks say.
what_counts() { if [ -n "$kills" ]; then grep -a '^FAULT'; else head -30; fi; }

# one_fault PEER TRANSPORT SIZE RANK flags...   what the survivors say
one_fault() {
  local peer=$1 transport=$2 size=$3 victim=$4
  shift 4
  command_of "$peer" "$transport" 4 || return 0
  [[ " $* " == *" --errors-return "* || -n $(keeps_going "$peer") ]] && let_survivors_speak
  timeout -k 5 70 "${start[@]}" --transport "$transport" --sizes "$size" --fault-rank "$victim" "$@" \
    2>&1 < /dev/null | grep -v '^$' | cut -c1-240 | what_counts
  echo "   exit status ${PIPESTATUS[0]}"
}

run_fault() {
  local size peer transport buffers flags trial
  : > "$out"
  while read -r peer transport buffers; do
    [ "$buffers" = private ] || continue
    for flags in "" "--errors-return"; do
      [ -n "$flags" ] && [ "$peer" != openmpi ] && [ "$peer" != mpich ] && continue
      echo "$transport 4 all_reduce $peer" | grep -qE "$only" || continue
      if [ -z "$kills" ]; then
        for size in 4K 4M; do
          echo "== $peer $transport, $size, ${flags:-defaults}"
          # shellcheck disable=SC2086
          one_fault "$peer" "$transport" $size 1 $flags
        done
        continue
      fi
      for trial in $(seq 1 "$kills"); do
        local victim=$((RANDOM % 4)) moment=0.$((RANDOM % 800 + 100))
        size=4K
        [ $((trial % 2)) = 0 ] && size=4M
        echo "== $peer $transport, $size, ${flags:-defaults}, rank $victim killed"
        # shellcheck disable=SC2086
        one_fault "$peer" "$transport" $size $victim $flags --fault-after-s $moment --hang-after-s 10
      done
    done
  done < <(turns_of shm; turns_of tcp) | tee -a "$out"
}

case $mode in
  quick) header; run_quick ;;
  full) header; run_full ;;
  busy) header; run_busy ;;
  fault) run_fault ;;
esac
say "$mode: $(($(date +%s) - began)) s; figures in $out, messages in $log"
verdict=0
# Without a turn of unisono (--only says so, or nobody built it) there is nothing to judge.
[ "$mode" = fault ] || python3 "$here/table.py" "$out" || verdict=$tried
[ -z "$wrong" ] || { say "a result was WRONG: grep WRONG $log"; verdict=1; }
[ -z "$failed" ] || { say "unisono FAILED: grep -E 'unisono|status' $log"; verdict=1; }
exit $verdict
