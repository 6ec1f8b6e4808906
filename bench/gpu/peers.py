#!/usr/bin/env python3
"""What others offer for ranks that share one GPU: from version 2.30 on NCCL, by its own interface in
one process and by PyTorch between processes, and PyTorch's Gloo and symmetric memory. Appends JSON
lines to the file that is named; run.sh starts it.

usage: peers.py FILE SECONDS

NCCL_LIBRARY=file takes another NCCL than the one that PyTorch brings.
Status 1: of one of them there is no figure. 75: none of that, and after so many seconds some had no
turn. 77: PyTorch sees no GPU.
"""
import ctypes
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
SECONDS_OF_A_JOB = 30
GLOO, SYMMETRIC, NCCL, NCCL_ALONE = "torch gloo", "torch symm_mem", "torch NCCL", "NCCL"
NCCL_FLOAT32, NCCL_SUM = 7, 0  # ncclDataType_t, ncclRedOp_t
NCCL_OF_SEVERAL_RANKS = (2, 30)

# Torch takes the NCCL that is there already. A child runs this module first, and then imports torch
# to read what it is to call.
if os.environ.get("NCCL_LIBRARY"):
    ctypes.CDLL(os.environ["NCCL_LIBRARY"], mode=ctypes.RTLD_GLOBAL)


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


def nccl_version():
    """(major, minor, patch) of the NCCL that is loaded: torch tells the one it was compiled with."""
    number = ctypes.c_int()
    try:
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    except OSError:
        return 0, 0, 0  # none, or a part of torch itself
    return number.value // 10000, number.value // 100 % 100, number.value % 100


def text_of(version):
    return ".".join(map(str, version))


def check_nccl(version):
    """Another one than the parent's must not pass for it."""
    if nccl_version() != version:
        raise RuntimeError(f"NCCL {text_of(nccl_version())} is loaded, and not {text_of(version)}")


def allow_one_gpu():
    """For the processes that are started, before they import torch."""
    os.environ["TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"] = "1"
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    os.environ.setdefault("NCCL_MAX_CTAS", "16")
    # A multicast object takes each GPU once.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")


def append_row(file, peer, ranks, ranks_as, size, us, right):
    row = {"peer": peer, "collective": "all_reduce", "type": "float32", "ranks": ranks,
           "ranks_as": ranks_as, "bytes": size, "us": us, "right": right}
    with open(file, "a") as out:
        out.write(json.dumps(row) + "\n")


def make_call(torch, dist, peer, count):
    """What all-reduces `count` floats, and the tensor that has the result."""
    rank = dist.get_rank()
    if peer == SYMMETRIC:
        import torch.distributed._symmetric_memory as symmetric

        data = symmetric.empty(count, dtype=torch.float32, device="cuda")
        symmetric.rendezvous(data, dist.group.WORLD.group_name)
        data.fill_(float(rank + 1))
        name = dist.group.WORLD.group_name
        return lambda: torch.ops.symm_mem.two_shot_all_reduce_(data, "sum", name), data
    data = torch.full((count,), float(rank + 1), device="cuda")
    return lambda: dist.all_reduce(data), data


def run_rank(rank, ranks, peer, version, store, file):
    start = time.perf_counter()

    def tell(what):
        """Where a job that does not end stands."""
        if rank == 0:
            print(f"{peer} k={ranks}: {time.perf_counter() - start:.1f} s: {what}", flush=True)

    import torch
    import torch.distributed as dist

    check_nccl(version)
    torch.cuda.set_device(0)
    tell("torch is there")
    backend = "nccl" if peer == NCCL else "gloo"
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
            append_row(file, peer, ranks, "processes", size, max(t for t, _ in times),
                       all(r for _, r in times))
        del data
    dist.destroy_process_group()


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class NcclOfOneProcess:
    """All ranks of a communicator in one thread, each with a stream of its own."""

    def __init__(self, torch, ranks):
        self.library = ctypes.CDLL("libnccl.so.2")
        self.library.ncclGetErrorString.restype = ctypes.c_char_p
        self.streams = [torch.cuda.Stream() for _ in range(ranks)]
        self.comms = [ctypes.c_void_p() for _ in range(ranks)]
        unique = UniqueId()
        self.check(self.library.ncclGetUniqueId(ctypes.byref(unique)))
        self.check(self.library.ncclGroupStart())
        for rank, comm in enumerate(self.comms):
            self.check(self.library.ncclCommInitRank(ctypes.byref(comm), ranks, unique, rank))
        self.check(self.library.ncclGroupEnd())

    def check(self, result):
        if result:
            raise RuntimeError(self.library.ncclGetErrorString(result).decode())

    def all_reduce(self, tensors):
        """In place."""
        self.check(self.library.ncclGroupStart())
        for tensor, comm, stream in zip(tensors, self.comms, self.streams):
            memory = ctypes.c_void_p(tensor.data_ptr())
            self.check(self.library.ncclAllReduce(
                memory, memory, ctypes.c_size_t(tensor.numel()), NCCL_FLOAT32, NCCL_SUM, comm,
                ctypes.c_void_p(stream.cuda_stream)))
        self.check(self.library.ncclGroupEnd())


def run_one_process(_, ranks, version, file):
    import torch

    check_nccl(version)
    torch.cuda.set_device(0)
    nccl = NcclOfOneProcess(torch, ranks)
    print(f"{NCCL_ALONE} k={ranks}: the communicator is there", flush=True)
    for size in SIZES:
        tensors = [torch.full((size // 4,), float(rank + 1), device="cuda") for rank in range(ranks)]
        torch.cuda.synchronize()
        nccl.all_reduce(tensors)
        torch.cuda.synchronize()
        right = all(bool((t == ranks * (ranks + 1) / 2).all()) for t in tensors)
        us = time_calls(torch, lambda: None, lambda: nccl.all_reduce(tensors))
        append_row(file, NCCL_ALONE, ranks, "threads", size, us, right)
    # What a communicator holds goes with the process.


def run_peer(peer, ranks, version, file, limit):
    import torch.multiprocessing as processes

    with tempfile.TemporaryDirectory() as folder:
        if peer == NCCL_ALONE:
            job = processes.spawn(run_one_process, args=(ranks, version, file), nprocs=1,
                                  join=False)
        else:
            job = processes.spawn(
                run_rank, args=(ranks, peer, version, os.path.join(folder, "store"), file),
                nprocs=ranks, join=False)
        end = time.monotonic() + limit
        try:
            while not job.join(timeout=min(limit, 1)):
                if time.monotonic() > end:
                    raise TimeoutError(f"no end within {limit:.0f} s")
        finally:
            for process in job.processes:
                if process.is_alive():
                    process.kill()


def measure_peer(peer, version, file, end):
    """The status that it makes: 1 without a figure, 75 where the time was over."""
    for ranks in RANKS:
        limit = min(SECONDS_OF_A_JOB, end - time.monotonic())
        try:
            if limit <= 0:
                raise TimeoutError("its turn did not come")
            run_peer(peer, ranks, version, file, limit)
        except Exception as error:  # whatever a peer does, the others are measured
            traceback.print_exc()
            if isinstance(error, TimeoutError) and time.monotonic() >= end:
                note(f"no time for {peer} k={ranks}")
                return 75
            note(f"{peer} k={ranks}: {type(error).__name__}")
            return 1 if ranks == RANKS[0] else 0
    return 0


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    end = time.monotonic() + float(sys.argv[2])
    allow_one_gpu()
    import torch

    if not torch.cuda.is_available():
        note("torch sees no GPU")
        return 77
    version = nccl_version()
    has_nccl = version >= NCCL_OF_SEVERAL_RANKS
    if not has_nccl:
        note(f"NCCL {text_of(version)} has no several ranks on a GPU")
    peers = ([NCCL_ALONE, NCCL] if has_nccl else []) + [GLOO, SYMMETRIC]
    # Who names an NCCL asks for its figures.
    statuses = [0 if has_nccl or not os.environ.get("NCCL_LIBRARY") else 1]
    statuses += [measure_peer(peer, version, sys.argv[1], end) for peer in peers]
    return 1 if 1 in statuses else max(statuses)


if __name__ == "__main__":
    sys.exit(main())
