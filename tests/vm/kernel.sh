# The guest's kernel: user-mode Linux, built once from Debian's kernel source package and kept in
# the cache under a key of its options. Sourced by guest.sh. Expects: $here, $cache, say,
# unpack_package.

# A polling process keeps the guest's one CPU until the next tick: 1000 a second, where this
# architecture's default of 100 costs every hop up to 20 ms.
readonly kernel_ticks=1000
readonly kernel_series="6.12 6.1"
readonly kernel_source_seconds=900

kernel_folder() {
  local key
  key="$({ sed 's/#.*//; /^ *$/d' "$here/kernel.config"; echo "$kernel_ticks $(uname -m)"; } |
    sha256sum | cut -c 1-12)"
  echo "$cache/uml-$1-$key"
}

find_kernel() {
  local series
  for series in $kernel_series; do
    kernel="$(kernel_folder "$series")/linux"
    [ -x "$kernel" ] && return
  done
  return 1
}

have_kernel_tools() {
  local tool missing=()
  if [ "$(uname -m)" != x86_64 ]; then
    why="user-mode Linux needs an x86-64 machine"
    return 1
  fi
  for tool in make gcc flex bison bc cpio tar xz perl; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  [ ${#missing[@]} -eq 0 ] && return
  why="building the guest's kernel needs ${missing[*]} (section [rdma] of packages.txt)"
  return 1
}

# configure_kernel SOURCE OBJECTS
configure_kernel() {
  local option
  sed -i "/^config HZ\$/,/default/s/default [0-9]*/default $kernel_ticks/" "$1/arch/um/Kconfig"
  make -s -C "$1" ARCH=um O="$2" KCONFIG_ALLCONFIG="$here/kernel.config" allnoconfig || return
  for option in INFINIBAND_USER_ACCESS RDMA_RXE HOSTFS OVERLAY_FS UML_NET_VECTOR VETH BRIDGE; do
    grep -q "^CONFIG_$option=y" "$2/.config" || { echo "Error: no CONFIG_$option"; return 1; }
  done
}

# build_kernel SERIES FOLDER: 4 minutes of two idle cores, 1.5 GiB of scratch.
build_kernel() {
  local series="$1" work="$2.work" tree
  rm -rf "$work"
  mkdir -p "$work/objects" "$2"
  unpack_package "linux-source-$series" "$work/package" "$kernel_source_seconds" || return
  tar -C "$work" -xf "$(find "$work/package" -name 'linux-source-*.tar.*' | head -n 1)" || return
  tree="$(find "$work" -mindepth 1 -maxdepth 1 -type d -name 'linux-source-*' | head -n 1)"
  say "building the guest's kernel $series, once: some minutes; log: $work/log"
  if ! { configure_kernel "$tree" "$work/objects" &&
    make -s -C "$tree" ARCH=um O="$work/objects" -j "$(nproc)" linux; } >"$work/log" 2>&1; then
    why="the kernel build failed: $(tail -n 1 "$work/log")"
    # A build that somebody stopped says nothing about the next one.
    ! grep -q Error "$work/log" || mv "$work/log" "$2/failed.log"
    rm -rf "$work"
    return 1
  fi
  cp "$work/objects/.config" "$2/config"
  strip -o "$2/linux.new" "$work/objects/linux" && mv "$2/linux.new" "$2/linux" || return
  rm -rf "$work"
}

# prepare_kernel: sets $kernel, or is false with the reason in $why. A build that failed once is not
# repeated by every run.
prepare_kernel() {
  local series folder
  find_kernel && return
  have_kernel_tools || return
  for series in $kernel_series; do
    folder="$(kernel_folder "$series")"
    if [ -e "$folder/failed.log" ]; then
      why="the kernel build failed before; delete $folder/failed.log to try again"
    elif build_kernel "$series" "$folder"; then
      kernel="$folder/linux"
      return
    fi
  done
  return 1
}
