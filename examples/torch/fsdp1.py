"""Training by FullyShardedDataParallel, the elder of torch's two ways to shard a model. New
programs take `fully_shard` (fsdp2.py).

    torchrun --nproc-per-node 2 fsdp1.py
    unisono run -n 2 python fsdp1.py
"""

import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

from checking import finish

dist.init_process_group("unisono")
torch.manual_seed(0)
layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
model = FullyShardedDataParallel(
    layers,
    auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=1000),
    device_id=torch.device("cpu"),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

torch.manual_seed(1 + dist.get_rank())
inputs = torch.randn(256, 16)
targets = inputs.sum(1, keepdim=True) / 4
losses = []
for _ in range(40):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    losses.append(mean.item())

with FullyShardedDataParallel.summon_full_params(model):
    parameters = [parameter.clone() for parameter in model.parameters()]
finish("fsdp1", losses, parameters)
