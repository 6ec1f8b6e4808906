# One run of a guest: its job folder, its start, its output and how it ended. Sourced by guest.sh.
# Expects the variables that guest.sh parsed and prepared.

job='' memory_folder='' guest='' processor='' readers=()

# quote WORD...: for a shell to read.
quote() {
  local word
  for word in "$@"; do printf "'%s' " "${word//\'/\'\\\'\'}"; done
}

clean_up() {
  if [ -n "$guest" ]; then
    # User-mode Linux leaves the process group that `timeout` leads, and notes its number.
    disown "$guest"
    kill -KILL -- "-$guest" $(cat "$job"/uml/*/pid 2>/dev/null) 2>/dev/null || true
  fi
  [ ${#readers[@]} -eq 0 ] || kill "${readers[@]}" 2>/dev/null || true
  rm -rf "$job" ${memory_folder:+"$memory_folder"}
}

write_job() {
  local pair file
  mkdir -p "$job/tree/.host-etc"
  {
    for pair in "${environment[@]}"; do
      echo "export ${pair%%=*}=$(quote "${pair#*=}")"
    done
    # By way of env, because busybox's shell prefers its own commands to those in the path.
    echo "exec /usr/bin/env -- $(quote "${command[@]}")"
  } >"$job/command"
  {
    echo "J_DIR=$(quote "$directory")"
    echo "J_DEVS=$devices J_MTU=$mtu J_MEMLOCK=$memlock"
    echo "J_NODE=${node:-0} J_NODES=${nodes:-1}"
  } >"$job/vars"
  for file in ld.so.cache ld.so.conf ld.so.conf.d alternatives; do
    [ ! -e "/etc/$file" ] || cp -a "/etc/$file" "$job/tree/.host-etc/"
  done
  echo "$job" >"$job/tree/.job-path"
  grep -m 1 'cpu MHz' /proc/cpuinfo >"$job/mhz" || true
}

# The guest's memory is a file that gets mapped, executable. /dev/shm spares the disk, but
# containers often have a small one, without execution.
choose_memory_folder() {
  local free
  [ -z "${TMPDIR:-}" ] || return 0
  free="$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')"
  [ -w /dev/shm ] && [ "${free:-0}" -gt "$memory" ] || return 0
  ! grep -Eq '^[^ ]+ /dev/shm [^ ]+ [^ ]*noexec' /proc/mounts || return 0
  memory_folder="$(mktemp -d /dev/shm/unisono-vm.XXXXXX)"
}

# User-mode Linux is two processes in turns for every system call of the guest. On two processors
# each turn wakes the other one up: four times as slow, and not always. Sets $processor to one that
# no other guest has, as long as there is one; a lock keeps it until this script and its guest end.
choose_processor() {
  local allowed candidate
  mapfile -t allowed < <(awk '/^Cpus_allowed_list:/ {
    for (n = split($2, parts, ","); n > 0; --n) {
      split(parts[n] "-" parts[n], ends, "-")
      for (cpu = ends[1]; cpu <= ends[2]; ++cpu) print cpu
    }
  }' /proc/self/status)
  for candidate in "${allowed[@]}"; do
    processor="$candidate"
    exec 8>"$cache/processor-$processor.lock"
    ! flock -n 8 || return 0
  done
}

start_uml() {
  local console="$job/console" quiet=quiet network=()
  if [ -n "$verbose" ]; then
    console=/dev/stderr quiet=loglevel=7
  fi
  [ -z "$wire" ] || network=("vec0:transport=fd,fd=$wire,mtu=$mtu")
  choose_memory_folder
  choose_processor
  : >"$job/out"
  : >"$job/err"
  TMPDIR="${memory_folder:-$job}" taskset -c "$processor" timeout -k 5 "$limit" "$kernel" "mem=${memory}M" \
    "initrd=$job/initrd" rdinit=/init con=null con0=null,fd:2 "${network[@]}" \
    $quiet ssl=null panic=-1 dummy.numdummies=0 "uml_dir=$job/uml/" guest.backend=uml \
    </dev/null >/dev/null 2>"$console" &
  guest=$!
  tail -q -c+1 -s 0.05 -f --pid="$guest" "$job/out" &
  readers=($!)
  tail -q -c+1 -s 0.05 -f --pid="$guest" "$job/err" >&2 &
  readers+=($!)
}

# share NAME FOLDER [OPTION]: a folder of this machine, for the guest to mount by name.
share() {
  qemu_options+=(-fsdev "local,id=$1,path=$2,security_model=none,multidevs=remap${3:+,$3}"
    -device "virtio-9p-pci,fsdev=$1,mount_tag=$1")
}

# Pipes, because QEMU truncates and reopens a plain file.
output_port() {
  mkfifo "$job/$1"
  qemu_options+=(-chardev "file,id=$1,path=$job/$1"
    -device "virtserialport,chardev=$1,name=guest.$1")
}

start_qemu() {
  local qemu_options=(-nodefaults -no-user-config -no-reboot -display none -accel tcg,thread=multi
    -cpu max -M "pc,i8042=off,usb=off" -m "$memory" -smp 2 -device virtio-serial-pci)
  local kernel_line="console=ttyS0 panic=-1 reboot=t mitigations=off nokaslr tsc=reliable"
  kernel_line+=" no_timer_check rdinit=/init"
  share job "$job"
  share usr /usr readonly=on
  share work "$directory"
  output_port out
  output_port err
  cat "$job/out" &
  readers=($!)
  cat "$job/err" >&2 &
  readers+=($!)
  if [ -n "$verbose" ]; then
    qemu_options+=(-serial file:/dev/stderr)
  else
    qemu_options+=(-serial "file:$job/console")
    kernel_line+=" quiet"
  fi
  timeout -k 5 "$limit" "${qemu[@]}" "${qemu_options[@]}" -kernel "$stock_kernel/vmlinuz" \
    -initrd "$job/initrd" -append "$kernel_line" </dev/null &
  guest=$!
}

# run_once: sets $ended to the guest's own status and $elapsed.
run_once() {
  local modules=()
  ended=0
  job="$(mktemp -d "${TMPDIR:-/tmp}/unisono-vm.XXXXXX")"
  write_job
  [ "$backend" != qemu ] || modules=("$stock_kernel/modules.cpio")
  { cat "$initramfs" "${modules[@]}"; pack "$job/tree"; } >"$job/initrd"
  SECONDS=0
  "start_$backend"
  wait "$guest" || ended=$?
  guest=''
  wait "${readers[@]}" || true  # all of the output is out
  readers=()
}

# True where the guest's first process died at its first step, of a host's registers that are larger
# than the guest's kernel knows.
dies_of_amx() {
  [ ! -e "$job/up" ] && grep -qw amx_tile /proc/cpuinfo && grep -q fatal_sigsegv "$job/console"
}

# run_job: the whole of guest.sh but the preparation; ends with the command's status.
run_job() {
  local tries
  if [ -n "$node" ]; then
    exec > >(exec sed -u "s/^/[$node] /") 2> >(exec sed -u "s/^/[$node] /" >&2)
    environment+=("VM_NODE=$node" "VM_NODES=$nodes")
  fi
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  for tries in 1 2; do
    run_once
    [ ! -s "$job/status" ] || exit "$(cat "$job/status")"
    if [ "$ended" = 124 ] || { [ "$ended" = 137 ] && [ "$SECONDS" -ge "$limit" ]; }; then
      say "time-out after $limit s"
      exit 124
    fi
    tail -n 15 "$job/console" >&2 2>/dev/null || true
    if [ "$backend" = uml ] && dies_of_amx; then
      skip "no user-mode Linux guest: its kernel cannot set the registers of a processor with AMX"
    fi
    # Seen once in 40 starts under QEMU; a second start has always worked.
    [ "$tries" = 1 ] && [ "$ended" = 0 ] && [ ! -e "$job/up" ] && [ -z "$node" ] || break
    say "the guest went down before it was up; trying once more"
    clean_up
  done
  fail "the guest ended ($ended) without the command's exit status"
}
