"""The same steps as ddp_step.cc in PyTorch, with DistributedDataParallel over Gloo.

    torchrun-like: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are in the environment.
    torch_ddp_step.py ROUNDS STEPS BATCH DATA

DATA is the folder of the IDX files.
"""
import gzip
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

BATCHES = 8
RATE = 0.01


def read_idx(path, header):
    with gzip.open(path) as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


def batches_of(folder, batch, rank, ranks):
    images = read_idx(f"{folder}/train-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
    labels = read_idx(f"{folder}/train-labels-idx1-ubyte.gz", 8)
    result = []
    for b in range(BATCHES):
        begin = (b * ranks + rank) * batch
        result.append((images[begin:begin + batch].float() / 255,
                       labels[begin:begin + batch].long()))
    return result


def make_cnn():
    def block(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
                nn.MaxPool2d(2)]
    return nn.Sequential(*block(1, 16), *block(16, 32), nn.Flatten(), nn.Linear(32 * 49, 10))


class Way:
    def __init__(self, name, model):
        self.name = name
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
        self.milliseconds = []

    def step(self, batch):
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(batch[0]), batch[1]).backward()
        self.optimizer.step()


class Average:
    """The gradients' all-reduce by itself."""

    def __init__(self, model):
        self.name = "average"
        self.gradients = torch.zeros(sum(p.numel() for p in model.parameters()))
        self.milliseconds = []

    def step(self, _):
        dist.all_reduce(self.gradients)
        self.gradients /= dist.get_world_size()


def main():
    rounds, steps, batch, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    ways = [Way("alone", make_cnn())]
    if ranks > 1:
        ways += [Way("ddp", nn.parallel.DistributedDataParallel(make_cnn())),
                 Average(make_cnn())]
    batches = batches_of(folder, batch, rank, ranks)
    for turn in range(rounds + 1):
        for way in ways:
            for step in range(steps):
                dist.barrier()
                begin = time.perf_counter()
                way.step(batches[step % BATCHES])
                took = torch.tensor([(time.perf_counter() - begin) * 1e3])
                dist.all_reduce(took, op=dist.ReduceOp.MAX)
                if turn > 0:
                    way.milliseconds.append(took.item())
    if rank == 0:
        for way in ways:
            print(f"torch,{ranks},{way.name},{statistics.median(way.milliseconds):.4f}")


main()
