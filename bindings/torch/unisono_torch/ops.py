"""Collectives on CPU tensors as operators: blocking, one-shot, for inference.

    from unisono_torch import ops

    group = ops.group(dist.group.WORLD)   # over any process group; or ops.init(), ops.join()
    ops.all_reduce_(hidden, group=group)

torch.compile takes the calls into its graph, and keeps all of them in their order. Without `group`
a call is made on the default group: the first one that was made and is open, unless
set_default_group() chose another.

Tensors are dense, contiguous and on the CPU. What is written is written in place, and nothing is
allocated but where a function says so. There are no gradients: a tensor that requires grad is
refused unless it is under torch.no_grad() or inference_mode(). Code that AOTAutograd or Inductor
compiled is not told of that, and its gradients leave out the other ranks. All ranks make the same
calls with the same sizes and types in the same order, and one thread at a time uses a group.

What fails is raised on every rank: a rank that was killed or is late, or calls that differ, as
torch.distributed.DistBackendError, whose text names the rank at fault by its number in the group;
the group is of no use afterwards. What is wrong with the arguments of this rank alone is a ValueError, IndexError,
TypeError, RuntimeError (the tensor requires grad, or an argument is of no type that the operator
takes) or NotImplementedError (another device), before anything is sent. A message of another size
than the tensor's is a ValueError of receive_() after it has come: the message is lost, and the
group stays of use.
"""

import atexit

import torch

from . import _build

SUM, PRODUCT, MIN, MAX, AVERAGE = range(5)
BIT_AND, BIT_OR, BIT_XOR = range(6, 9)
ANY_RANK = -1

_adapter = _build.load()
atexit.register(_adapter.group_close_all)

_ops = torch.ops.unisono
_all_reduce_ = _ops.all_reduce_.default
_reduce_scatter_tensor = _ops.reduce_scatter_tensor.default
_all_gather_into_tensor = _ops.all_gather_into_tensor.default
_gather_into_tensor = _ops.gather_into_tensor.default
_broadcast_ = _ops.broadcast_.default
_send = _ops.send.default
_receive_ = _ops.receive_.default
_barrier = _ops.barrier.default

_open = []  # groups, in the order in which they were made
_default = None


class Group:
    """Ranks that make calls together, on a communicator of their own. Made by group(), init() or
    join(); collective."""

    def __init__(self, handle):
        self.rank = _adapter.group_rank(handle)
        self.size = _adapter.group_size(handle)
        # What the operators take. Compiled code has it as an input, never as a constant.
        self.handle = torch.tensor([handle], dtype=torch.int64, device="cpu")
        _open.append(self)
        if _default is None:
            set_default_group(self)

    def __repr__(self):
        return f"<unisono group: {_adapter.group_describe(self.handle.item())}>"

    def close(self):
        """Leaves the group. Not collective; calls of the others that need this rank fail."""
        if self in _open:
            _open.remove(self)
        if _default is self:
            set_default_group(_open[0] if _open else None)
        _adapter.group_close(self.handle.item())


def set_default_group(group):
    """The group of calls that name none."""
    global _default
    _default = group


def default_group():
    """The group of calls that name none, or None."""
    return _default


def init(timeout=0.0):
    """The world that a launcher started (`unisono run`, torchrun, mpirun, srun), without
    torch.distributed. `timeout` is of joining and of each call, in seconds; 0: UNISONO_TIMEOUT."""
    return Group(_adapter.group_init(timeout))


def join(store, rank, size, timeout=300.0):
    """Ranks that share a store of torch.distributed. A store serves one group; give a
    PrefixStore for each."""
    return Group(_adapter.group_join(store, rank, size, timeout))


def group(process_group=None, timeout=0.0):
    """The ranks of a process group of torch.distributed of any backend (default: the world), which
    only carries the id by which they meet. Collective over its ranks. Calls of both are
    independent, and so are their ends."""
    import torch.distributed as dist

    process_group = process_group or dist.group.WORLD
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    if rank < 0:
        raise ValueError("unisono: ops.group(): this rank is not in the process group")
    told = [_made_id() if rank == 0 else None]
    dist.broadcast_object_list(told, dist.get_global_rank(process_group, 0), process_group)
    if isinstance(told[0], str):
        raise RuntimeError(told[0])
    return Group(_adapter.group_join_by_id(told[0], rank, size, timeout))


def _made_id():
    """An id, or the text of why there is none, which the others are told too."""
    try:
        return _adapter.group_make_id()
    except RuntimeError as error:
        return str(error)


def _or_default(group):
    if group is None:
        group = _default
        if group is None:
            raise RuntimeError("unisono: there is no group yet: call ops.group(), init() or join()")
    return group


def _handle(group):
    return _or_default(group).handle


def all_reduce_(tensor, op=SUM, group=None):
    """Every rank's `tensor` becomes the reduction of all, with the same bits on each. Returns it."""
    _all_reduce_(tensor, _handle(group), op)
    return tensor


def reduce_scatter_tensor(output, input, op=SUM, group=None):
    """Block r of the reduction of all `input`s, which have as many blocks of the size of `output`
    as there are ranks, goes to rank r's `output`. Returns it."""
    _reduce_scatter_tensor(output, input, _handle(group), op)
    return output


def all_gather_into_tensor(output, input, group=None):
    """Every rank's `input` to every rank's `output`, in the order of ranks. Returns `output`."""
    _all_gather_into_tensor(output, input, _handle(group))
    return output


def all_gather(tensor, dim=-1, group=None):
    """Every rank's `tensor`, of one dimension at least, along `dim`, as a new tensor."""
    group = _or_default(group)
    size, dimensions = group.size, tensor.dim()
    if not -dimensions <= dim < dimensions:
        raise IndexError(f"unisono: all_gather: a tensor of {dimensions} dimensions has none of number {dim}")
    dim %= dimensions
    every = tensor.new_empty((size, *tensor.shape))
    all_gather_into_tensor(every, tensor.contiguous(), group)
    shape = list(tensor.shape)
    shape[dim] *= size
    return every.movedim(0, dim).reshape(shape)


def gather_into_tensor(output, input, root=0, group=None):
    """Every rank's `input` to `output` of `root`, in the order of ranks. The others may give None,
    and theirs is left alone. Returns `output`."""
    _gather_into_tensor(output, input, _handle(group), root)
    return output


def broadcast_(tensor, root=0, group=None):
    """Root's `tensor` to everyone's. Returns it."""
    _broadcast_(tensor, _handle(group), root)
    return tensor


def send(tensor, peer, tag=0, group=None):
    """Returns when `tensor` may be changed: perhaps before `peer` has it."""
    _send(tensor, _handle(group), peer, tag)


def receive_(tensor, peer, tag=0, group=None):
    """The next message of `peer` (ANY_RANK: whichever comes) with `tag`, whose bytes are as many as
    those of `tensor`. Returns it. Another number of bytes is a ValueError, and the message is lost."""
    _receive_(tensor, _handle(group), peer, tag)
    return tensor


def barrier(group=None):
    """Returns when all ranks have come."""
    _barrier(_handle(group))
