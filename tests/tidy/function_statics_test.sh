#!/bin/sh
# No function of LIBRARY that a job without a device may call has a static that is made at its first
# call: a child that is forked while another thread makes it waits for ever (base/per_process.h).
# What the drivers of devices need does not work in a forked child anyhow.
# Usage: function_statics_test.sh LIBRARY
set -eu
symbols="$(readelf --symbols --wide "$1")"
if ! echo "$symbols" | grep -q ' LOCAL .* _ZNK\?7unisono'; then
  echo "$1 does not show its local symbols" >&2
  exit 1
fi
guards="$(echo "$symbols" | awk '$4 != "TLS" && $8 ~ /^_ZGVZNK?7unisono/ { print $8 }')"
found="$(echo "$guards" | grep -v '7unisono\(4cuda\|5verbs\|6device\)' || true)"
if [ -n "$found" ]; then
  echo "$found" | c++filt >&2
  echo "made under a lock that a forked child may find held: use PerProcess" >&2
  exit 1
fi
