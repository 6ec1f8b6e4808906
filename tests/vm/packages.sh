# Debian packages that only the guest needs: downloaded once into the cache and unpacked there,
# never installed on this machine. Sourced by guest.sh; works as any user. Expects: $cache, say.

readonly list_seconds=120

# apt-get with package lists of its own, for a machine whose lists are missing or out of date.
apt_get_private() {
  mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial"
  timeout -k 5 "$1" apt-get -qq -o Dir::State::Lists="$cache/apt/lists" \
    -o Dir::Cache="$cache/apt" -o Acquire::Retries=1 -o Acquire::http::Timeout=20 "${@:2}"
}

# Once a run: without a network every attempt costs its time limit.
refresh_lists() {
  [ -z "${lists_refreshed:-}" ] || return 0
  lists_refreshed=yes
  apt_get_private "$list_seconds" update >>"$cache/apt.log" 2>&1 || true
}

package_file() {
  compgen -G "$cache/debs/$1_*.deb" | sort -V | tail -n 1 || true
}

# download_package NAME SECONDS: once more with fresh lists where the system's own do not do. In a
# folder of its own, since a download that was cut short leaves half a file.
download_package() {
  local folder="$cache/debs.new" log="$cache/apt.log"
  rm -rf "$folder"
  mkdir -p "$folder" "$cache/debs"
  if ! (cd "$folder" && timeout -k 5 "$2" apt-get -qq -o Acquire::Retries=1 \
    -o Acquire::http::Timeout=20 download "$1") >"$log" 2>&1; then
    refresh_lists
    (cd "$folder" && apt_get_private "$2" download "$1") >>"$log" 2>&1 || return
  fi
  mv "$folder"/*.deb "$cache/debs/"
}

# unpack_package NAME FOLDER [SECONDS]: false, with the reason in $why, where it cannot be had.
unpack_package() {
  local name="$1" folder="$2" file log="$cache/apt.log"
  if [ -z "$(package_file "$name")" ]; then
    if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
      why="package $name needs apt-get and dpkg, which this system lacks"
      return 1
    fi
    say "downloading $name"
    if ! download_package "$name" "${3:-120}"; then
      why="no package $name: $(grep -m 1 '^E:' "$log" || echo "see $log")"
      return 1
    fi
  fi
  file="$(package_file "$name")"
  mkdir -p "$folder"
  dpkg -x "$file" "$folder" || { why="$file cannot be unpacked: delete it"; return 1; }
}
