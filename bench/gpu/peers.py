#!/usr/bin/env python3
"""What PyTorch offers for ranks that share one GPU: symmetric memory, Gloo and, from version 2.30
on, NCCL. Ranks are processes. Appends JSON lines to the file that is named; run.sh starts it.

usage: peers.py FILE
"""
import json
import os
import sys
import tempfile
import time
import traceback

SIZES = (1 << 20, 16 << 20, 256 << 20)
RANKS = (2, 4, 8)
SECONDS_OF_A_POINT = 0.2
# Of a job: its processes import torch, which takes half of a minute where its files are not cached.
SECONDS_OF_A_JOB = 40


def note(text):
    print(text, flush=True)
    try:
        os.write(3, (text + "; ").encode())
    except OSError:
        pass


def time_calls(torch, barrier, call):
    """Microseconds of one of many calls, until the GPU is done."""
    call()
    torch.cuda.synchronize()
    barrier()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    once = max(time.perf_counter() - start, 1e-6)
    loops = int(max(3, min(200, SECONDS_OF_A_POINT / once)))
    barrier()
    start = time.perf_counter()
    for _ in range(loops):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / loops * 1e6


def make_call(torch, dist, peer, count):
    """What all-reduces `count` floats, and the tensor that has the result."""
    rank = dist.get_rank()
    if peer == "torch symm_mem":
        import torch.distributed._symmetric_memory as symmetric

        data = symmetric.empty(count, dtype=torch.float32, device="cuda")
        symmetric.rendezvous(data, dist.group.WORLD.group_name)
        data.fill_(float(rank + 1))
        name = dist.group.WORLD.group_name
        return lambda: torch.ops.symm_mem.two_shot_all_reduce_(data, "sum", name), data
    data = torch.full((count,), float(rank + 1), device="cuda")
    return lambda: dist.all_reduce(data), data


def run_rank(rank, ranks, peer, store, file):
    start = time.perf_counter()

    def tell(what):
        """Where a job that does not end stands."""
        if rank == 0:
            print(f"{peer} k={ranks}: {time.perf_counter() - start:.1f} s: {what}", flush=True)

    # Before torch is asked for the first collective.
    os.environ["TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"] = "1"
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    os.environ.setdefault("NCCL_MAX_CTAS", "16")
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    tell("torch is there")
    backend = "nccl" if peer == "torch NCCL" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=ranks)
    tell("the ranks have met")
    for size in SIZES:
        call, data = make_call(torch, dist, peer, size // 4)
        tell(f"{size} bytes are there")
        call()
        torch.cuda.synchronize()
        tell("the first call is over")
        right = bool((data == ranks * (ranks + 1) / 2).all())
        us = time_calls(torch, dist.barrier, call)
        times = [None] * ranks
        dist.all_gather_object(times, (us, right))
        if rank == 0:
            row = {"peer": peer, "collective": "all_reduce", "type": "float32", "ranks": ranks,
                   "ranks_as": "processes", "bytes": size, "us": max(t for t, _ in times),
                   "right": all(r for _, r in times)}
            with open(file, "a") as out:
                out.write(json.dumps(row) + "\n")
        del data
    dist.destroy_process_group()


def run_peer(torch, peer, ranks, file, limit):
    import torch.multiprocessing as processes

    with tempfile.TemporaryDirectory() as folder:
        job = processes.spawn(
            run_rank, args=(ranks, peer, os.path.join(folder, "store"), file), nprocs=ranks,
            join=False)
        end = time.monotonic() + limit
        try:
            while not job.join(timeout=1):
                if time.monotonic() > end:
                    raise TimeoutError(f"no end within {limit} s")
        finally:
            for process in job.processes:
                if process.is_alive():
                    process.kill()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    import torch

    if not torch.cuda.is_available():
        note("torch sees no GPU")
        return 77
    peers = ["torch symm_mem", "torch gloo"]
    version = torch.cuda.nccl.version()
    if version >= (2, 30):
        peers.append("torch NCCL")
    else:
        note(f"NCCL {'.'.join(map(str, version))} has no several ranks on a GPU")
    measured = 0
    for peer in peers:
        for ranks in RANKS:
            try:
                run_peer(torch, peer, ranks, sys.argv[1], SECONDS_OF_A_JOB)
                measured += 1
            except Exception as error:  # whatever a peer does, the others are measured
                traceback.print_exc()
                note(f"{peer} k={ranks}: {type(error).__name__}")
                break
    return 0 if measured else 77


if __name__ == "__main__":
    sys.exit(main())
