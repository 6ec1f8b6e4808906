#!/usr/bin/env bash
# Tests the PyTorch backend against an installed library, in an environment of its own:
# test.sh PREFIX [ENVIRONMENT [suite]]. Exit status 77, with the reason, where Python or torch cannot
# be had. PYTHON chooses the interpreter, TORCH_VERSION the version of torch. `suite`: all of
# PyTorch's own tests and no others, beside Gloo's results, which takes half an hour and needs
# TEST_FULL=1.
set -euo pipefail

usage="usage: $0 PREFIX [ENVIRONMENT [suite]]"
prefix=${1:?$usage}
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
environment=${2:-}
tests=${3:-some}
torch=${TORCH_VERSION:-2.11.0}
subject="the tests of the PyTorch backend"
. "$folder/environment.sh"

[ "$tests" != suite ] || [ "${TEST_FULL:-0}" = 1 ] || skip "all of PyTorch's own need TEST_FULL=1"
make_environment
# Without a GPU torch without the CUDA libraries that it depends on, five times its size.
without=--no-deps
[ ! -e /dev/nvidia0 ] || without=''
if ! "${pip[@]}" $without "torch==$torch" >"$log" 2>&1 ||
  ! "${pip[@]}" filelock typing-extensions sympy networkx jinja2 fsspec numpy expecttest setuptools \
    >"$log" 2>&1; then
  skip "pip cannot install torch $torch"
fi
export OMP_NUM_THREADS=1
install_package torch "$torch"

status=0
cd "$folder/tests"
suite() { "$run" -B distributed_suite.py "$@" || status=1; }
if [ "$tests" = suite ]; then
  rm -rf "$environment/suites"
  "$run" -B suite_table.py --folder "$environment/suites" || status=1
  exit "$status"
fi
for ranks in 2 3; do
  for file in test_collectives.py test_training.py test_ops.py; do
    echo "torch: $file, $ranks ranks"
    "$prefix/bin/unisono" run -n "$ranks" --keep-going "$run" -B "$file" || status=1
  done
done
if [ -n "$has_cuda" ]; then
  echo "torch: test_cuda.py"
  "$prefix/bin/unisono" run -n 2 --keep-going "$run" -B test_cuda.py || status=1
else
  echo "SKIPPED: torch: test_cuda.py: no GPU here, or no CUDA libraries for torch"
fi
echo "torch: test_reproducible.py"
UNISONO_TRANSPORT=tcp UNISONO_ORDER=exact "$prefix/bin/unisono" run -n 3 --keep-going \
  "$run" -B test_reproducible.py || status=1
files=(test_build.py test_plugins.py test_failures.py test_ops_failures.py)
if "$run" -c 'import sys, torch.distributed as d; sys.exit(not hasattr(d, "_reconfigure"))'; then
  files+=(test_reconfigure.py)
else
  echo "SKIPPED: torch: test_reconfigure.py: torch $torch has no reconfigure() (TORCH_VERSION=2.15.0)"
fi
for file in "${files[@]}"; do
  echo "torch: $file"
  "$run" -B "$file" || status=1
done
echo "torch: bench_inference.py starts"
"$run" -B "$folder/bench_inference.py" --help >/dev/null || status=1

cd "$folder/../../examples/torch"
example() {
  echo "torch: $*"
  "$@" || status=1
}
by_unisono() { example "$prefix/bin/unisono" run -n 2 "$run" -B "$@"; }
by_torchrun() { example "$run" -B -m torch.distributed.run --nproc-per-node 2 "$@"; }
by_unisono fsdp2.py
by_torchrun --max-restarts 1 elastic.py "$work/by_torchrun.pt"
if [ "${TEST_FULL:-0}" = 1 ]; then
  for file in ddp fsdp1 zero tensor_parallel; do
    by_unisono "$file.py"
    by_torchrun "$file.py"
  done
  by_unisono elastic.py "$work/by_unisono.pt"
fi

# Of PyTorch's own: what our tests do not do.
cd "$folder/tests"
suite --as gloo test_all_gather_coalesced_complex test_all_reduce_coalesced_max_complex_unsupported \
  test_accumulate_gradients_no_sync_allreduce_with_then_hook test_batch_isend_irecv_gloo_tags \
  test_monitored_barrier_gloo test_send_recv_any_source_autograd_profiler test_get_future \
  test_DistributedDataParallelCPU test_ddp_logging_data_cpu test_ddp_comparison \
  test_all_gather_object_subgroup test_barrier_timeout_full_group
suite --as mpi test_all_to_all_single_unequal_split
exit "$status"
