"""Training that survives the death of a worker: torchrun starts all of them again, and they go on
from the last checkpoint.

    torchrun --nproc-per-node 2 --max-restarts 1 elastic.py CHECKPOINT
    unisono run -n 2 python elastic.py CHECKPOINT      (starts nothing again: no worker dies)

The last rank kills itself in the middle of its first life. The others are told of it at once, by an
error that names the rank. All lives find what they have in common in the file CHECKPOINT, which the
end removes.
"""

import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from checking import finish

STEPS, STEPS_BETWEEN_CHECKPOINTS, FATAL_STEP = 30, 5, 17


def checkpoint_file():
    """The same in every life."""
    if len(sys.argv) != 2:
        sys.exit("usage: elastic.py CHECKPOINT")
    return pathlib.Path(sys.argv[1])


def save(file, state):
    """At once or not at all: the death of a rank can come at any time."""
    part = file.with_suffix(".part")
    torch.save(state, part)
    part.rename(file)


file = checkpoint_file()
dist.init_process_group("unisono")
life = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
may_restart = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)) > 0
is_first, is_last = dist.get_rank() == 0, dist.get_rank() == dist.get_world_size() - 1
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

losses = []
if file.exists():
    state = torch.load(file, weights_only=True)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    losses = state["losses"]
    if is_first:
        print(f"elastic: life {life} goes on from step {len(losses)}", flush=True)

torch.manual_seed(1 + dist.get_rank())
inputs = torch.randn(256, 16)
targets = inputs.sum(1, keepdim=True) / 4
for step in range(len(losses), STEPS):
    if may_restart and life == 0 and is_last and step == FATAL_STEP:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    losses.append(mean.item())
    if is_first and (step + 1) % STEPS_BETWEEN_CHECKPOINTS == 0:
        parts = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        save(file, {**parts, "losses": losses})

dist.barrier()
if is_first:
    file.unlink()
finish("elastic", losses, model.parameters())
