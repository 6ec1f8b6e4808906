from types import SimpleNamespace

import torch

group = SimpleNamespace(WORLD=SimpleNamespace(group_name="world"))
_rank = 0


def init_process_group(backend, init_method, rank, world_size):
    global _rank
    torch.enter(backend)
    if backend == "nccl" and torch.library.version_of_nccl() < 23000:
        raise RuntimeError("Duplicate GPU detected")
    _rank = rank


def get_rank():
    return _rank


def all_reduce(data):
    pass


def barrier():
    pass


def all_gather_object(objects, mine):
    objects[:] = [mine] * len(objects)


def destroy_process_group():
    pass
