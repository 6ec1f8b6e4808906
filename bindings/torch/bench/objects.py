"""`all_gather_object` of 100 MB on each rank: milliseconds, and how far memory rises."""

import torch.distributed as dist

from common import MB, medians, peak_of
from unisono_torch.objects import all_gather_object


OBJECT = b"x" * (100 * MB)


def gather(function, group):
    every = [None] * dist.get_world_size()
    function(every, OBJECT, group=group)


def calls_of(groups):
    torchs = dist.all_gather_object
    calls = {name: lambda g=group: gather(torchs, g) for name, group in groups.items()}
    calls["own"] = lambda: gather(all_gather_object, None)
    return calls


def rows(groups, rounds):
    calls = calls_of(groups)
    spent = medians(calls, rounds, 1)
    yield {"name": "ms", **{name: 1e3 * seconds for name, seconds in spent.items()}}
    yield {"name": "MB at the peak", **{name: peak_of(call) / MB for name, call in calls.items()}}
