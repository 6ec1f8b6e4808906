"""Calls of torch.distributed, by unisono and by Gloo."""

import functools

import torch
import torch.distributed as dist

from common import KIB, MB, WARM_UPS, medians


def all_reduce(nbytes, _size):
    data = torch.ones(nbytes // 4)
    return lambda group: dist.all_reduce(data, group=group)


def reduce_scatter(nbytes, size):
    out = torch.ones(nbytes // 4 // size)
    data = torch.ones(out.numel() * size)
    return lambda group: dist.reduce_scatter_tensor(out, data, group=group)


def all_gather(nbytes, size):
    data = torch.ones(nbytes // 4 // size)
    out = torch.ones(data.numel() * size)
    return lambda group: dist.all_gather_into_tensor(out, data, group=group)


def all_to_all(nbytes, size):
    data = torch.ones(nbytes // 4 // size * size)
    out = torch.empty_like(data)
    return lambda group: dist.all_to_all_single(out, data, group=group)


def broadcast(nbytes, _size):
    data = torch.ones(nbytes // 4)
    return lambda group: dist.broadcast(data, 0, group=group)


CASES = [(all_reduce, nbytes) for nbytes in (4, 64 * KIB, 10 * MB, 100 * MB)]
CASES += [
    (make, nbytes)
    for make in (reduce_scatter, all_gather, all_to_all, broadcast)
    for nbytes in (64 * KIB, 10 * MB)
]


def rows(groups, rounds):
    """Microseconds."""
    for make, nbytes in CASES:
        call = make(nbytes, dist.get_world_size())
        calls = {name: functools.partial(call, groups[name]) for name in ("unisono", "gloo")}
        spent = medians(calls, rounds, 200 if nbytes <= 64 * KIB else 3, WARM_UPS)
        yield {
            "name": f"`{make.__name__}`, {size_text(nbytes)}",
            **{name: 1e6 * seconds for name, seconds in spent.items()},
        }


def size_text(nbytes):
    if nbytes % MB == 0:
        return f"{nbytes // MB} MB"
    return f"{nbytes // KIB} KiB" if nbytes % KIB == 0 else f"{nbytes} B"
