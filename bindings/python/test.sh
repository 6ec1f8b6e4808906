#!/usr/bin/env bash
# Installs the Python package against an installed library, in an environment of its own, and runs
# its tests: test.sh PREFIX [ENVIRONMENT]. Exit status 77, with the reason, where Python or its
# packages cannot be had. PYTHON chooses the interpreter.
set -euo pipefail

usage="usage: $0 PREFIX [ENVIRONMENT]"
prefix=${1:?$usage}
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environment=${2:-$work/environment}
log=$work/log

skip() {
  echo "SKIPPED: the tests of the Python package: $1"
  [ ! -s "$log" ] || tail -n 5 "$log"
  exit 77
}

if [ ! -e "$prefix/lib/cmake/unisono/unisono-config.cmake" ] &&
   ! ls "$prefix"/lib*/*/cmake/unisono/unisono-config.cmake >/dev/null 2>&1 &&
   [ ! -e "$prefix/lib64/cmake/unisono/unisono-config.cmake" ]; then
  echo "$0: no library is installed in $prefix" >&2
  exit 2
fi
command -v "$python" >/dev/null || skip "there is no $python"
[ -x "$environment/bin/python" ] || "$python" -m venv "$environment" >"$log" 2>&1 ||
  skip "$python makes no virtual environment (apt install python3-venv)"
run=$environment/bin/python
"$run" -c 'import sysconfig, os, sys
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
  skip "there is no Python.h (apt install python3-dev)"
"$run" -m pip install --quiet --disable-pip-version-check \
  'scikit-build-core>=0.10' 'nanobind>=2.2' pathspec ninja numpy pytest ml_dtypes "mypy<2.5" >"$log" 2>&1 ||
  skip "pip cannot install what they need"

CMAKE_PREFIX_PATH=$prefix "$run" -m pip install --quiet --disable-pip-version-check \
  --no-build-isolation --no-deps --force-reinstall "$folder"

# What is tested is the installed package: the tests' own folder has none of that name.
cd "$folder/tests"
status=0
pytest() { "$run" -B -m pytest -p no:cacheprovider -q --tb=short "$@" || status=1; }
echo "python: one process"
pytest alone
for ranks in 2 3; do
  echo "python: $ranks ranks"
  "$environment/bin/python" -B -m unisono.run -n "$ranks" --keep-going \
    "$run" -B -m pytest -p no:cacheprovider -q --tb=short ranks || status=1
done
exit "$status"
