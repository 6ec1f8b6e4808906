"""What the tests of ranks have in common. Each file of tests is run by all ranks at once, by
`unisono run` or torchrun: all of them make the same calls in the same order."""

import atexit
import os
import sys
import unittest

import torch
import torch.distributed as dist

import unisono_torch  # noqa: F401

torch.set_num_threads(1)


def start():
    """The world of unisono, and beside it one of Gloo's to compare with."""
    dist.init_process_group("unisono")
    return dist.new_group(backend="gloo")


def backend():
    """What the world's calls go to: the adapter."""
    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def of_rank(shape, dtype=torch.float32, seed=0):
    """Values that differ from rank to rank, the same in every run."""
    generator = torch.Generator().manual_seed(1000 * seed + rank())
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 50, shape, generator=generator).to(dtype)


def main():
    """Runs the tests of the calling file, and ends the rank with their outcome."""
    program = unittest.main(module="__main__", exit=False, verbosity=2 if rank() == 0 else 0)
    failed = not program.result.wasSuccessful()
    if dist.is_initialized():
        dist.destroy_process_group()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread of Gloo may free its last tensor only now, which ends a process whose interpreter is
    # being taken down by std::terminate().
    os._exit(1 if failed else 0)
