"""Tensor parallelism by DTensor: each rank has some columns of the first layer and the rows of the
second one that belong to them. All ranks have the same data.

    torchrun --nproc-per-node 2 tensor_parallel.py
    unisono run -n 2 python tensor_parallel.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from checking import finish

dist.init_process_group("unisono")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
width = 32 * dist.get_world_size()  # the same number of columns on every rank
model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 1))
parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

inputs = torch.randn(256, 16)
targets = inputs.sum(1, keepdim=True) / 4
losses = []
for _ in range(30):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
finish("tensor_parallel", losses, [parameter.full_tensor() for parameter in model.parameters()])
