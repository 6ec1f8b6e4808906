"""Data-parallel training by DistributedDataParallel: each rank has data of its own, and all have
the same model.

    torchrun --nproc-per-node 2 ddp.py
    unisono run -n 2 python ddp.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from checking import finish

dist.init_process_group("unisono")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

torch.manual_seed(1 + dist.get_rank())
inputs = torch.randn(256, 16)
targets = inputs.sum(1, keepdim=True) / 4
losses = []
for _ in range(30):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()  # averages the gradients of all ranks
    optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    losses.append(mean.item())

finish("ddp", losses, model.parameters())
