"""What bench/gpu/peers.py asks of PyTorch, without a GPU: its tensors are equal to everything, and
its library loads an NCCL as the real one does.

STUB_TORCH_LIBRARY  that library
STUB_TORCH_FAILS    the backend, "gloo", "nccl" or "symmetric", that takes no group or no memory
STUB_TORCH_HANGS    the one that comes to no end; "gpu": the question whether there is one
"""
import ctypes
import os
import time
from types import SimpleNamespace

library = ctypes.CDLL(os.environ["STUB_TORCH_LIBRARY"])
float32 = "float32"


def enter(place):
    if os.environ.get("STUB_TORCH_HANGS") == place:
        time.sleep(1000)
    if os.environ.get("STUB_TORCH_FAILS") == place:
        raise RuntimeError(f"{place} fails")


def is_available():
    enter("gpu")
    return True


class Truth:
    def all(self):
        return True


class Tensor:
    def __eq__(self, other):
        return Truth()

    def fill_(self, value):
        pass

    def data_ptr(self):
        return 0

    def numel(self):
        return 1


def full(shape, value, device):
    return Tensor()


cuda = SimpleNamespace(
    is_available=is_available, set_device=lambda device: None, synchronize=lambda: None,
    Stream=lambda: SimpleNamespace(cuda_stream=0))
ops = SimpleNamespace(symm_mem=SimpleNamespace(two_shot_all_reduce_=lambda data, op, name: None))
