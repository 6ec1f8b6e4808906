"""Training by FSDP2 (`fully_shard`): each rank keeps a part of the parameters, of their gradients
and of the optimizer's state, and has all of a layer only while it computes.

    torchrun --nproc-per-node 2 fsdp2.py
    unisono run -n 2 python fsdp2.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from checking import finish

dist.init_process_group("unisono")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
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

finish("fsdp2", losses, [parameter.full_tensor() for parameter in model.parameters()])
