#!/usr/bin/env python3
"""Writes fixtures/torch.txt: losses, gradients, buffers and optimizer steps as PyTorch has them.

Run it by hand where PyTorch (1.12 or newer) is installed; the file is kept in the repository, so
that the test needs no PyTorch. Parameters and inputs follow pattern(), which torch_test.cc repeats.
"""
import math
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)
lines = []


def pattern(seed, shape, scale):
    """Numbers in [-scale / 2, scale / 2) that both languages make alike."""
    count = math.prod(shape)
    index = torch.arange(count, dtype=torch.int64)
    values = ((index * 37 + seed * 101) % 1009).to(torch.float64) / 1009 - 0.5
    return (values * scale).to(torch.float32).reshape(shape)


def record(name, values):
    numbers = torch.as_tensor(values, dtype=torch.float64).flatten().tolist()
    lines.append(name + " " + " ".join(f"{number:.9g}" for number in numbers))


def record_model(name, parameters, buffers, forward, targets):
    """One forward and backward; parameters and buffers in the trainer's order."""
    for number, parameter in enumerate(parameters):
        parameter.data = pattern(number, parameter.shape, 0.6)
        if parameter.dim() == 1:  # biases and the weights of norms: away from zero
            parameter.data += 0.4
    loss = functional.cross_entropy(forward(), targets)
    loss.backward()
    record(name + ".loss", loss.detach())
    for number, parameter in enumerate(parameters):
        record(f"{name}.gradient.{number}", parameter.grad)
    for number, buffer in enumerate(buffers):
        record(f"{name}.buffer.{number}", buffer)


def mlp():
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    inputs = pattern(50, (8, 6), 2)
    record_model("mlp", list(model.parameters()), [], lambda: model(inputs), torch.arange(8) % 3)


def cnn():
    def block(channels, filters):
        return [nn.Conv2d(channels, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU(),
                nn.MaxPool2d(2)]

    model = nn.Sequential(*block(2, 4), *block(4, 5), nn.Flatten(), nn.Linear(20, 3))
    inputs = pattern(50, (8, 2, 8, 8), 2)
    buffers = [b for name, b in model.named_buffers() if "running" in name]
    record_model("cnn", list(model.parameters()), buffers, lambda: model(inputs),
                 torch.arange(8) % 3)


class Attention(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def forward(self, x):
        batch, context, width = x.shape
        width //= 3
        query, key, value = (
            part.reshape(batch, context, self.heads, width // self.heads).transpose(1, 2)
            for part in x.split(width, dim=2))
        scores = query @ key.transpose(2, 3) / math.sqrt(width // self.heads)
        later = torch.ones(context, context, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        return (weights @ value).transpose(1, 2).reshape(batch, context, width)


class Gpt(nn.Module):
    def __init__(self, vocabulary, context, layers, width, heads):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.branches = nn.ModuleList()
        for _ in range(layers):
            self.branches.append(nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 3 * width), Attention(heads),
                nn.Linear(width, width)))
            self.branches.append(nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
                nn.Linear(4 * width, width)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        for branch in self.branches:
            x = x + branch(x)
        return self.head(self.norm(x)).flatten(0, 1)


def gpt():
    model = Gpt(7, 6, 2, 12, 3)
    index = torch.arange(24)
    record_model("gpt", list(model.parameters()), [],
                 lambda: model((index * index % 7).reshape(4, 6)), (index + 1) * (index + 1) % 7)


def optimizer_steps(name, make):
    parameter = nn.Parameter(pattern(60, (20,), 2))
    optimizer = make([parameter])
    for step in range(6):
        parameter.grad = pattern(70 + step, (20,), 1)
        optimizer.step()
    record("optimizer." + name, parameter.detach())


mlp()
cnn()
gpt()
optimizer_steps("sgd", lambda p: torch.optim.SGD(p, 0.1, momentum=0))
optimizer_steps("momentum", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.05))
optimizer_steps("nesterov", lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, nesterov=True))
optimizer_steps("adamw", lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.02))
target = pathlib.Path(__file__).parent / "fixtures" / "torch.txt"
target.write_text(f"# PyTorch {torch.__version__}, by make_torch_fixture.py\n" +
                  "\n".join(lines) + "\n")
sys.stdout.write(f"{target}: {target.stat().st_size} bytes\n")
