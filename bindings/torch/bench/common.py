"""What the measurements have in common."""

import platform
import statistics
import time

import torch
import torch.distributed as dist

KIB, MB = 1024, 1_000_000
WARM_UPS = 32  # unisono tries its paths in the first calls of each kind


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            names = (line.split(":")[1].strip() for line in file if line.startswith("model name"))
            return next(names)
    except (OSError, StopIteration):
        return platform.processor()


def start():
    """The same ranks by unisono, by Gloo, and by a backend of torch's tests that moves nothing."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  registers "fake"

    torch.set_num_threads(1)
    dist.init_process_group("unisono")
    return {
        "unisono": dist.group.WORLD,
        "gloo": dist.new_group(backend="gloo"),
        "nothing": dist.new_group(backend="fake"),
    }


def of_slowest(value):
    largest = torch.tensor([float(value)], dtype=torch.float64)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest.item()


def medians(calls, rounds, repeats, warm_ups=0):
    """Seconds that each of `calls` takes on the slowest rank. They take turns.

    The first turn, of at least `warm_ups` calls, does not count.
    """
    times = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            dist.barrier()
            started = time.perf_counter()
            for _ in range(repeats if turn > 0 else max(repeats, warm_ups)):
                call()
            spent = of_slowest(time.perf_counter() - started)
            if turn > 0:
                times[name].append(spent / repeats)
    return {name: statistics.median(each) for name, each in times.items()}


def resident(field):
    """A line of /proc/self/status in bytes: VmRSS, or VmHWM, its highest value."""
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(field + ":"))


def peak_of(call):
    """Bytes by which `call` raises the resident memory at most, on the rank where that is most."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the highest value begins anew
    before = resident("VmRSS")
    call()
    return of_slowest(resident("VmHWM") - before)


