# The second choice of guest: Debian's stock kernel under QEMU's emulation in software. It needs no
# build, has several CPUs and runs sanitizers, and is 10 to 30 times slower than user-mode Linux.
# Sourced by guest.sh. Expects: $cache, say, pack, unpack_package, apt_get_private, refresh_lists.

readonly guest_modules="virtio_pci virtio_mmio virtio_console 9pnet_virtio 9p overlay crc32c_generic
  crc32c_intel crc32_generic crc32_pclmul dummy veth virtio_net bridge rdma_rxe rdma_ucm ib_umad"

# packages_for NAME: what of it and its dependencies is not installed here, from apt's simulation.
packages_for() {
  local listed
  listed="$(apt-get -s install --no-install-recommends "$1" 2>/dev/null |
    awk '/^Inst/ { print $2 }')"
  if [ -z "$listed" ]; then
    refresh_lists
    listed="$(apt_get_private 60 -s install --no-install-recommends "$1" 2>/dev/null |
      awk '/^Inst/ { print $2 }')"
  fi
  echo "$listed"
}

# add_module NAME MODULES TARGET: the module and, before it, those it depends on.
add_module() {
  local name="${1//-/_}" file depends
  [ ! -e "$3/$name.ko" ] || return 0
  file="$(find "$2" -regex ".*/${name//_/[-_]}\.ko\(\.xz\|\.zst\)?" | head -n 1)"
  [ -n "$file" ] || return 0  # built in
  case "$file" in
    *.xz) xz -dc "$file" >"$3/$name.ko" ;;
    *.zst) zstd -qdc "$file" >"$3/$name.ko" ;;
    *) cp "$file" "$3/$name.ko" ;;
  esac
  for depends in $(tr '\0' '\n' <"$3/$name.ko" | sed -n 's/^depends=//p' | tr , ' '); do
    add_module "$depends" "$2" "$3"
  done
  echo "$name" >>"$3/list"
}

# unpack_stock_kernel FOLDER: vmlinuz and an archive of the modules that the guest loads.
unpack_stock_kernel() {
  local folder="$1" package modules module
  package="$(packages_for linux-image-amd64 | grep '^linux-image-[0-9]' | head -n 1)"
  [ -n "$package" ] || { why="no package linux-image-amd64"; return 1; }
  mkdir -p "$folder/tree/mods"
  unpack_package "$package" "$folder/package" 300 || return
  modules="$(find "$folder/package" -type d -path '*lib/modules/*' -name kernel | head -n 1)"
  for module in $guest_modules; do
    add_module "$module" "$modules" "$folder/tree/mods"
  done
  [ -e "$folder/tree/mods/rdma_rxe.ko" ] || { why="$package has no rdma_rxe"; return 1; }
  pack "$folder/tree" >"$folder/modules.cpio" || return
  cp "$folder"/package/boot/vmlinuz-* "$folder/vmlinuz"
  rm -rf "$folder/package" "$folder/tree"
}

# unpack_qemu FOLDER
unpack_qemu() {
  local package packages
  packages="$(packages_for qemu-system-x86)"
  [ -n "$packages" ] || { why="no package qemu-system-x86"; return 1; }
  for package in $packages; do
    unpack_package "$package" "$1" 300 || return
  done
}

# once FUNCTION FOLDER: a folder of the cache, filled completely or not there.
once() {
  [ ! -d "$2" ] || return 0
  rm -rf "$2.work"
  mkdir -p "$2.work"
  "$1" "$2.work" && mv "$2.work" "$2"
}

# prepare_qemu: sets $qemu and $stock_kernel, or is false with the reason in $why.
prepare_qemu() {
  local unpacked="$cache/qemu"
  if [ "$(uname -m)" != x86_64 ]; then
    why="the stock kernel under QEMU is set up for x86-64 only"
    return 1
  fi
  stock_kernel="$cache/stock-kernel"
  once unpack_stock_kernel "$stock_kernel" || return
  if command -v qemu-system-x86_64 >/dev/null; then
    qemu=(qemu-system-x86_64)
    return
  fi
  once unpack_qemu "$unpacked" || return
  qemu=(env "LD_LIBRARY_PATH=$unpacked/usr/lib/x86_64-linux-gnu:$unpacked/lib/x86_64-linux-gnu"
    "$unpacked/usr/bin/qemu-system-x86_64" -L "$unpacked/usr/share/qemu"
    -L "$unpacked/usr/share/seabios" -L "$unpacked/usr/lib/ipxe/qemu")
}
