# The guest's root file system: busybox, the verbs tools and libraries of Debian, and init.sh, as
# one cpio archive in the cache. Everything else a program needs is this machine's own /usr, mounted
# read-only. Sourced by guest.sh. Expects: $here, $cache, unpack_package.

# Of perftest, iproute2 and the verbs tools with all they link to, so that a machine without them
# will do; what this machine has installed goes first.
readonly guest_packages="busybox-static ibverbs-utils ibverbs-providers rdmacm-utils perftest
  iproute2 libibverbs1 librdmacm1 libibumad3 libnl-3-200 libnl-route-3-200 libmnl0 libpci3 libbpf1
  libelf1 libbsd0 libmd0 libcap2 libudev1 zlib1g"

# pack FOLDER: its content as a cpio archive on standard output, owned by root.
pack() {
  (cd "$1" && find . -print0 | cpio --null -o -H newc --quiet -R 0:0)
}

# unpack_root FOLDER: the packages, with /bin, /sbin and /lib moved into /usr.
unpack_root() {
  local package part
  for package in $guest_packages; do
    unpack_package "$package" "$1" || return
  done
  rm -rf "$1"/usr/share/{doc,man,bash-completion,lintian,locale}
  for part in bin sbin lib; do
    [ -d "$1/$part" ] || continue
    mkdir -p "$1/usr/$part"
    cp -a "$1/$part/." "$1/usr/$part/"
    rm -rf "${1:?}/$part"
  done
}

# lay_out TREE ROOT: the tree that the guest boots into.
lay_out() {
  local tree="$1" part
  mkdir -p "$tree"/{bb,proc,sys,dev,run,tmp,root,etc,usr,var,opt,mods} \
    "$tree"/{.usr,.job,.packages,.host-etc}
  for part in bin sbin lib lib64; do
    ln -s "usr/$part" "$tree/$part"
  done
  cp "$2/usr/bin/busybox" "$tree/bb/busybox"
  cp -a "$2/usr" "$tree/.packages/"
  cp -a "$2/etc/." "$tree/etc/"
  printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' \
    'nobody:x:65534:65534:nobody:/:/bin/false' >"$tree/etc/passwd"
  printf '%s\n' 'root:x:0:' 'nogroup:x:65534:' >"$tree/etc/group"
  install -m 755 "$here/init.sh" "$tree/init"
  install -m 755 "$here/port.sh" "$tree/bb/guest-port"
}

# prepare_initramfs: sets $initramfs, or is false with the reason in $why.
prepare_initramfs() {
  local work="$cache/root.work"
  initramfs="$cache/initramfs-$(cat "$here"/{init,port,initramfs}.sh | sha256sum | cut -c 1-12)"
  [ ! -s "$initramfs" ] || return 0
  command -v cpio >/dev/null || { why="cpio is needed"; return 1; }
  rm -rf "$work"
  mkdir -p "$work/tree"
  unpack_root "$work/root" || return
  lay_out "$work/tree" "$work/root" || return
  pack "$work/tree" >"$initramfs.new" || return
  mv "$initramfs.new" "$initramfs"
  rm -rf "$work"
}
