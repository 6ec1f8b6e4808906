"""torch.distributed by unisono and by Gloo in one run: the same processes, call after call in turns,
medians of fresh tensors.

    unisono run -n 2 python bench.py [--rounds 11] [--json FILE]     (or torchrun)

Times are of the slowest rank, from a barrier on. Ratios above 1 are in favour of unisono.
"""

import argparse
import json
import platform
import statistics
import time

import torch
import torch.distributed as dist

import unisono_torch  # noqa: F401

KIB, MB = 1024, 1_000_000


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def cases(size):
    """Name, bytes and a function that makes a call with tensors of its own."""

    def floats(count):
        return torch.ones(max(count, 1))

    def all_reduce(nbytes):
        data = floats(nbytes // 4)
        return lambda group: dist.all_reduce(data, group=group)

    def reduce_scatter(nbytes):
        data = floats(nbytes // 4 // size * size)
        out = floats(data.numel() // size)
        return lambda group: dist.reduce_scatter_tensor(out, data, group=group)

    def all_gather(nbytes):
        data = floats(nbytes // 4 // size)
        out = floats(data.numel() * size)
        return lambda group: dist.all_gather_into_tensor(out, data, group=group)

    def all_to_all(nbytes):
        data = floats(nbytes // 4 // size * size)
        out = torch.empty_like(data)
        return lambda group: dist.all_to_all_single(out, data, group=group)

    def broadcast(nbytes):
        data = floats(nbytes // 4)
        return lambda group: dist.broadcast(data, 0, group=group)

    def objects(nbytes):
        mine = b"x" * nbytes
        every = [None] * size
        return lambda group: dist.all_gather_object(every, mine, group=group)

    for nbytes in (4, 64 * KIB, 10 * MB, 100 * MB):
        yield "all_reduce", nbytes, all_reduce
    for make in (reduce_scatter, all_gather, all_to_all, broadcast):
        for nbytes in (64 * KIB, 10 * MB):
            yield make.__name__, nbytes, make
    yield "all_gather_object", 100 * MB, objects


def seconds_of(call, group, calls, world):
    dist.barrier(world)
    started = time.perf_counter()
    for _ in range(calls):
        call(group)
    spent = torch.tensor([time.perf_counter() - started])
    dist.all_reduce(spent, dist.ReduceOp.MAX, group=world)
    return spent.item() / calls


def measure(make, nbytes, groups, rounds):
    """Medians by group, taken in turns."""
    calls = 200 if nbytes <= 64 * KIB else 3
    times = {name: [] for name in groups}
    for turn in range(rounds + 1):
        for name, group in groups.items():
            spent = seconds_of(make(nbytes), group, calls, groups["unisono"])
            if turn > 0:  # the first one connects
                times[name].append(spent)
    return {name: statistics.median(each) for name, each in times.items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("unisono")
    groups = {"unisono": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    is_first = dist.get_rank() == 0
    rows = []
    if is_first:
        print(f"{dist.get_world_size()} ranks, torch {torch.__version__}, {processor()}")
        print(f"{'call':18} {'bytes':>11} {'unisono us':>12} {'gloo us':>12} {'ratio':>7}")
    for name, nbytes, make in cases(dist.get_world_size()):
        medians = measure(make, nbytes, groups, arguments.rounds)
        ours, theirs = medians["unisono"] * 1e6, medians["gloo"] * 1e6
        rows.append({"call": name, "bytes": nbytes, "unisono_us": ours, "gloo_us": theirs})
        if is_first:
            print(f"{name:18} {nbytes:11} {ours:12.1f} {theirs:12.1f} {theirs / ours:7.2f}", flush=True)
    if is_first and arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
