import torch


def empty(count, dtype, device):
    torch.enter("symmetric")
    return torch.Tensor()


def rendezvous(data, name):
    pass
