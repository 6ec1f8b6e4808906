#!/bin/sh
# The C API's symbols in LIBRARY are those in LIST, of version UNISONO_1, and no others.
# Usage: c_symbols_test.sh LIBRARY LIST
set -eu
found="$(mktemp)"
trap 'rm -f "$found"' EXIT
nm --dynamic --defined-only --with-symbol-versions "$1" | awk '$3 ~ /^unisono_/ { print $3 }' |
  LC_ALL=C sort >"$found"
if ! diff "$2" "$found"; then
  echo "$2 (<) and $1 (>) differ: a symbol that was released stays for ever, a new one is added" \
    "to the list" >&2
  exit 1
fi
echo "$(wc -l <"$found") symbols"
