"""Where the time of an all-reduce of 4 bytes goes: torch's dispatch, the adapter, the library."""

import ctypes

import torch
import torch.distributed as dist

from common import medians
from unisono_torch import _build

FLOAT32, SUM = 12, 0  # unisono_type and unisono_op
ID_BYTES = 128


class Library:
    """The C API beside the process group, in a communicator of its own."""

    def __init__(self):
        _, folder = _build.find_unisono()
        self.api = ctypes.CDLL(str(folder / "libunisono.so"))
        self.comm = ctypes.c_void_p()
        place = dist.get_rank(), dist.get_world_size()
        joined = self.api.unisono_join_by_id(self.id(), *place, None, ctypes.byref(self.comm))
        self.check(joined)
        data = torch.ones(1)
        pointer = ctypes.c_void_p(data.data_ptr())
        self.data = data
        self.arguments = (self.comm, pointer, pointer, ctypes.c_size_t(1), FLOAT32, SUM, None)

    def id(self):
        made = ctypes.create_string_buffer(ID_BYTES)
        if dist.get_rank() == 0:
            self.check(self.api.unisono_unique_id_make(made))
        told = [made.raw]
        dist.broadcast_object_list(told, 0)
        return ctypes.create_string_buffer(told[0], ID_BYTES)

    def check(self, code):
        if code != 0:
            self.api.unisono_last_error.restype = ctypes.c_char_p
            raise RuntimeError(self.api.unisono_last_error().decode())

    def all_reduce(self):
        self.api.unisono_all_reduce(*self.arguments)

    def close(self):
        self.api.unisono_comm_destroy(self.comm)


def rows(groups, rounds):
    """Microseconds."""
    data = torch.ones(1)
    library = Library()
    nothing = ctypes.CDLL(None).labs  # what it costs to call C from Python
    calls = {
        "torch": lambda: dist.all_reduce(data),
        "dispatch": lambda: dist.all_reduce(data, group=groups["nothing"]),
        "library": library.all_reduce,
        "ctypes": lambda: nothing(*library.arguments),
    }
    # Often and briefly: what else runs on the machine comes between.
    spent = {name: 1e6 * each for name, each in medians(calls, 20 * rounds, 50).items()}
    library.close()
    inside = spent["library"] - spent["ctypes"]
    yield {"name": "`dist.all_reduce` by unisono", "us": spent["torch"]}
    yield {"name": "of that torch, with a backend that does nothing", "us": spent["dispatch"]}
    yield {"name": "of that `unisono_all_reduce`", "us": inside}
    yield {"name": "of that the adapter", "us": spent["torch"] - spent["dispatch"] - inside}
