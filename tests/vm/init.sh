#!/bb/busybox sh
# The guest's init: mounts the folders of the host machine, makes the soft-RoCE devices, runs the
# one command and leaves its exit status in the job folder. Runs under busybox out of the initramfs;
# job.sh writes what is wanted into /.job: `vars`, `command`.

power_off() {
  sync
  if [ -n "$uml" ]; then poweroff -f; else reboot -f; fi
  sleep 60
}

note() { echo "init: $*" >/dev/console; }

# mount_host NAME HOST-FOLDER FOLDER CACHE [OPTION]
mount_host() {
  if [ -n "$uml" ]; then
    mount -t hostfs -o "$2${5:+,$5}" none "$3"
  else
    mount -t 9p -o "trans=virtio,version=9p2000.L,msize=524288,cache=$4${5:+,$5}" "$1" "$3"
  fi
}

mount_kernel_folders() {
  mount -t proc proc /proc
  mount -t sysfs sys /sys
  mount -t devtmpfs dev /dev 2>/dev/null
  mkdir -p /dev/pts /dev/shm
  mount -t devpts pts /dev/pts
  mount -t tmpfs -o mode=1777 shm /dev/shm
  mount -t tmpfs -o mode=1777 tmp /tmp
  mount -t tmpfs run /run
  [ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
}

# Only Debian's own kernel has modules.
load_modules() {
  local module options
  while read -r module; do
    options=
    [ "$module" != dummy ] || options=numdummies=0
    insmod "/mods/$module.ko" $options || note "insmod $module failed"
  done </mods/list
}

# The first mount of a 9p folder has been seen to fail right after the start.
mount_job() {
  local tries=0
  until mount_host job "$(cat /.job-path 2>/dev/null)" /.job none; do
    tries=$((tries + 1))
    note "no job folder ($tries)"
    [ $tries -lt 20 ] || power_off
    usleep 200000
  done
}

mount_host_folders() {
  # The loader's view of the host: ld.so.cache and the alternatives.
  cp -a /.host-etc/. /etc/ 2>/dev/null
  mount_host usr /usr /.usr loose ro || note "no /usr"
  mount -t overlay -o lowerdir=/.usr:/.packages/usr none /usr || mount -o bind /.usr /usr
  mkdir -p "$J_DIR"
  mount_host work "$J_DIR" "$J_DIR" mmap || note "no $J_DIR"
}

# Devices count through all guests: the first of guest 1 comes after the last of guest 0.
address_of() { echo "10.77.0.$(($1 + 1))"; }
hardware_address_of() { printf '02:00:00:00:00:%02x' $(($1 + 1)); }

# make_nic NAME NUMBER: on a dummy where it is the only one, else on a veth that a bridge joins with
# all others, so that any reaches any.
make_nic() {
  if [ "$total" -eq 1 ]; then
    ip link add "$1" address "$(hardware_address_of 0)" type dummy
    return
  fi
  ip link add "$1" address "$(hardware_address_of "$2")" type veth peer name "$1-port"
  ip link set "$1-port" mtu "$J_MTU" master br0 up
}

# add_device NAME NIC NUMBER
add_device() {
  local peer=0
  ip link set "$2" mtu "$J_MTU" up
  ip addr add "$(address_of "$3")/24" dev "$2"
  echo 1 >"/proc/sys/net/ipv4/conf/$2/accept_local"
  echo 0 >"/proc/sys/net/ipv4/conf/$2/rp_filter"
  # Soft-RoCE waits seconds for a neighbour that is not resolved yet.
  while [ $peer -lt "$total" ]; do
    [ $peer = "$3" ] || ip neigh replace "$(address_of $peer)" \
      lladdr "$(hardware_address_of $peer)" dev "$2" nud permanent
    peer=$((peer + 1))
  done
  /usr/bin/rdma link add "$1" type rxe netdev "$2"
}

# The bridge is the wire too: user-mode Linux's own NIC does not come up again once it was down.
make_bridge() {
  ip link add br0 type bridge
  ip link set br0 mtu "$J_MTU" up
  [ "$J_NODES" -eq 1 ] || ip link set vec0 mtu "$J_MTU" master br0 up
}

make_devices() {
  local i=0 number
  [ "$total" -lt 2 ] || make_bridge
  while [ $i -lt "$J_DEVS" ]; do
    number=$((J_NODE * J_DEVS + i))
    make_nic "nic$i" $number
    add_device "rxe$i" "nic$i" $number
    i=$((i + 1))
  done
}

make_network() {
  local scope node=0 total=$((J_NODES * J_DEVS))
  hostname "guest$J_NODE"
  echo "127.0.0.1 localhost" >/etc/hosts
  while [ $node -lt "$J_NODES" ]; do
    echo "$(address_of $((node * J_DEVS))) guest$node" >>/etc/hosts
    node=$((node + 1))
  done
  ip link set lo up
  for scope in all default; do
    echo 0 >/proc/sys/net/ipv4/conf/$scope/rp_filter
  done
  make_devices
}

# Where the command's output goes: files of the host, or ports of the emulated machine.
find_outputs() {
  local tries=0 port
  out=/.job/out err=/.job/err
  if [ -n "$uml" ]; then
    # perftest scales by the "cpu MHz" line, which user-mode Linux lacks.
    { cat /proc/cpuinfo; cat /.job/mhz; } >/run/cpuinfo
    mount -o bind /run/cpuinfo /proc/cpuinfo
    return
  fi
  while [ ! -e /dev/vport0p2 ] && [ $tries -lt 100 ]; do
    usleep 20000
    tries=$((tries + 1))
  done
  for port in /sys/class/virtio-ports/*; do
    ln -s "/dev/${port##*/}" "/dev/$(cat "$port/name")"
  done
  out=/dev/guest.out err=/dev/guest.err
}

# A process that the command left behind may hold its output open: not waited for longer than 1 s.
run_command() {
  local tries=0 status=0
  mkfifo /run/out /run/err
  { cat /run/out >"$out"; : >/run/out.done; } &
  { cat /run/err >"$err"; : >/run/err.done; } &
  cd "$J_DIR" || note "no folder $J_DIR"
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/bb
  (
    ulimit -l "$J_MEMLOCK"
    exec /bb/setsid /bb/sh /.job/command
  ) </dev/null >/run/out 2>/run/err || status=$?
  PATH=/bb
  until { [ -e /run/out.done ] && [ -e /run/err.done ]; } || [ $tries -ge 50 ]; do
    usleep 20000
    tries=$((tries + 1))
  done
  echo $status >/.job/status.new
  mv /.job/status.new /.job/status
}

/bb/busybox --install -s /bb
export PATH=/bb HOME=/root
mount_kernel_folders
uml=
grep -q guest.backend=uml /proc/cmdline && uml=1
[ -n "$uml" ] || load_modules
mount_job
. /.job/vars
mount_host_folders
ip() { /usr/bin/ip "$@"; }
make_network
find_outputs
cut -d ' ' -f 1 /proc/uptime >/.job/up
run_command
power_off
