"""Steps of training a model of 10 MB. What communication costs is the difference to the same step
on a process group that moves nothing."""

import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from common import WARM_UPS, medians

LAYERS, WIDTH, BATCH = 5, 707, 32


def model():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def leave_gradients(_state, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def ddp(group):
    module = DistributedDataParallel(model(), process_group=group)
    if dist.get_backend(group) == "fake":  # whose works have no results, which DDP asks for
        module.register_comm_hook(None, leave_gradients)
    return module


def fsdp2(group):
    mesh = DeviceMesh.from_group(group, "cpu")
    module = model()
    for layer in module:
        fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def step(module, optimizer, inputs):
    optimizer.zero_grad()
    module(inputs).square().mean().backward()
    optimizer.step()


def prepared(wrap, group):
    module = wrap(group)
    optimizer = torch.optim.SGD(module.parameters(), 1e-3)
    return functools.partial(step, module, optimizer, torch.ones(BATCH, WIDTH))


def rows(groups, rounds):
    """Milliseconds of a step, and of its communication."""
    for wrap, name in ((ddp, "DDP"), (fsdp2, "FSDP2")):
        calls = {backend: prepared(wrap, group) for backend, group in groups.items()}
        spent = medians(calls, rounds, 5, WARM_UPS)
        step_ms = {backend: 1e3 * seconds for backend, seconds in spent.items()}
        yield {"name": f"{name}, step", **step_ms}
        own = {b: step_ms[b] - step_ms["nothing"] for b in ("unisono", "gloo")}
        yield {"name": f"{name}, communication", **own}
