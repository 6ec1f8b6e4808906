#!/usr/bin/env bash
# Runs a program of this machine inside a throw-away guest that has real verbs devices (soft-RoCE),
# on a machine without RDMA hardware. See README.md beside this file.
#
#   tests/vm/guest.sh [options] -- COMMAND ARGUMENTS...
#
# The folder --dir is there in the guest, writable, under its own absolute path and is the working
# folder; this machine's /usr is there read-only. Standard output, standard error and the exit
# status of COMMAND come back as this script's own.
#
#   --dir FOLDER     the folder that the command works in (default: the current one)
#   --devs N         devices rxe0, rxe1, ... of addresses 10.77.0.1, .2, ... that reach each other;
#                    0 to 8 (default 1)
#   --nodes N        N guests at once on one Ethernet, named guest0, guest1, ..., each with --devs
#                    devices; addresses count on from guest to guest. COMMAND runs in each, with
#                    VM_NODE=0.. and VM_NODES=N; its lines get "[node] "; the exit status is the
#                    first that is not 0
#   --mtu N          of the Ethernet (default 4200, for an RDMA MTU of 4096; 1500 gives 1024)
#   --env K=V        set for the command (may be given again)
#   --memlock KIB    RLIMIT_MEMLOCK of the command (default unlimited; root is exempt from it)
#   --timeout S      limit of the run, without preparation, in seconds (default 300)
#   --memory MIB     of the guest (default 1024)
#   --backend B      uml: user-mode Linux, one CPU, starts in a second; qemu: software emulation,
#                    two CPUs, sanitizers run, slow; default: uml, where that is impossible qemu
#   --prepare        fill the cache (kernel and packages) and end: minutes once, then nothing
#   --verbose        the guest's console on standard error
#
# Exit status: the command's; 77 no guest is possible here (the reason is printed); 124 time-out;
# 125 the guest died or never came up.
#
# Kept in ${RDMA_GUEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/unisono-vm}, which may be deleted.
set -euo pipefail
export LC_ALL=C
script="$(realpath "${BASH_SOURCE[0]}")"
here="$(dirname "$script")"
cache="${RDMA_GUEST_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/unisono-vm}"
readonly script here

say() { echo "guest: $*" >&2; }
fail() { say "$*"; exit 125; }
skip() { say "SKIPPED: $*"; exit 77; }

# shellcheck source=tests/vm/packages.sh
. "$here/packages.sh"
# shellcheck source=tests/vm/kernel.sh
. "$here/kernel.sh"
# shellcheck source=tests/vm/initramfs.sh
. "$here/initramfs.sh"
# shellcheck source=tests/vm/qemu.sh
. "$here/qemu.sh"
# shellcheck source=tests/vm/job.sh
. "$here/job.sh"

directory="$PWD" devices=1 nodes='' mtu=4200 environment=() memlock=unlimited limit=300 memory=1024
backend=auto prepare_only='' verbose='' node='' wire=''

# Sets the variables above and $command. --node and --wire are for switch.pl.
parse() {
  while [ $# -gt 0 ]; do
    case "$1" in
      --help | -h) sed -n '2,/^set -e/{/^set -e/d;s/^# \{0,1\}//;p}' "$script"; exit 0 ;;
      --prepare) prepare_only=yes; shift; continue ;;
      --verbose) verbose=yes; shift; continue ;;
      --) shift; break ;;
    esac
    [ $# -ge 2 ] || fail "$1 needs a value; see --help"
    case "$1" in
      --dir) directory="$2" ;;
      --devs) devices="$2" ;;
      --nodes) nodes="$2" ;;
      --mtu) mtu="$2" ;;
      --env) environment+=("$2") ;;
      --memlock) memlock="$2" ;;
      --timeout) limit="$2" ;;
      --memory) memory="$2" ;;
      --backend) backend="$2" ;;
      --node) node="$2" ;;
      --wire) wire="$2" ;;
      *) fail "unknown option '$1'; see --help" ;;
    esac
    shift 2
  done
  command=("$@")
}

check_arguments() {
  local value
  for value in "$devices" "$mtu" "$limit" "$memory" "${nodes:-1}"; do
    [[ "$value" =~ ^[0-9]+$ ]] || fail "'$value' is not a number; see --help"
  done
  if [ "$devices" -gt 8 ] || [ "${nodes:-1}" -lt 1 ] || [ "${nodes:-1}" -gt 8 ]; then
    fail "0 to 8 devices, 1 to 8 nodes"
  fi
  [ -z "$nodes" ] || [ "$devices" -ge 1 ] || fail "--nodes needs devices"
  [ -n "$prepare_only" ] || [ ${#command[@]} -gt 0 ] || fail "no command; see --help"
  directory="$(cd "$directory" && pwd)" || fail "no folder $directory"
}

# Sets $backend to what the guest runs on, or ends this script with a skip.
prepare_backend() {
  local without=''
  case "$backend" in
    uml) prepare_kernel || skip "no user-mode Linux guest: $why" ;;
    qemu) prepare_qemu || skip "no QEMU guest: $why" ;;
    auto)
      if prepare_kernel; then
        backend=uml
        return
      fi
      without="$why"
      prepare_qemu || skip "no user-mode Linux guest: $without. No QEMU guest: $why"
      say "slow: QEMU, as there is no user-mode Linux guest: $without"
      backend=qemu
      ;;
    *) fail "unknown backend '$backend'; see --help" ;;
  esac
}

# One run at a time fills the cache; a finished cache costs nothing.
prepare() {
  if ! mkdir -p "$cache/debs" 2>/dev/null || [ ! -w "$cache" ]; then
    skip "cannot write to $cache"
  fi
  cache="$(cd "$cache" && pwd)"
  exec 9>"$cache/lock"
  if ! flock -w 2 9; then
    say "waiting for another run that fills $cache"
    flock -w 1700 9 || skip "another run has filled $cache for half an hour"
  fi
  prepare_initramfs || skip "no root file system for the guest: $why"
  prepare_backend
  exec 9>&-
}

main() {
  parse "$@"
  check_arguments
  prepare
  [ -z "$prepare_only" ] || exit 0
  if [ -n "$nodes" ] && [ -z "$node" ]; then
    [ "$backend" = uml ] || skip "several guests at once need user-mode Linux"
    command -v perl >/dev/null || skip "several guests at once need perl"
    exec perl "$here/switch.pl" "$nodes" "$script" "$@"
  fi
  run_job
}

main "$@"
