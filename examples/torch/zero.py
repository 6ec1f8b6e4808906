"""Data-parallel training with a part of the optimizer's state on each rank.

    torchrun --nproc-per-node 2 zero.py
    unisono run -n 2 python zero.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from checking import finish

dist.init_process_group("unisono")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)

torch.manual_seed(1 + dist.get_rank())
inputs = torch.randn(256, 16)
targets = inputs.sum(1, keepdim=True) / 4
losses = []
for _ in range(40):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()  # each rank updates its own parameters, and broadcasts them
    mean = loss.detach()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    losses.append(mean.item())

finish("zero", losses, model.parameters())
