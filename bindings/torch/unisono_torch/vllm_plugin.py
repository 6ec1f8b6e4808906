"""Plug-in of vLLM (`vllm.general_plugins`): the CPU communicator's tensor-parallel and pipeline
groups run on unisono instead of vLLM's shared-memory kernels.

VLLM_PLUGINS=unisono turns it on, where unisono-torch is installed; without that variable vLLM is
left alone. vLLM's caches of compiled models depend on it, so none is used with the other kernels.
"""

import pickle

_MODULE = "vllm.distributed.device_communicators.cpu_communicator"
_REPLACED = "_CPUSHMDistributed"


class Distributed:
    """In the place of vLLM's `_CPUSHMDistributed`: the same methods, for any number of ranks, hosts
    and types. The group meets by an id that vLLM's own process group carries."""

    def __init__(self, communicator):
        from vllm.logger import init_logger

        from . import ops

        self._ops = ops
        self._group = ops.group(communicator.device_group)
        init_logger("vllm.unisono").info("%s is %s", communicator.unique_name, self._group)

    @staticmethod
    def make_group_name(_communicator):
        """The same everywhere: which ranks share memory is found out by trying, not by names."""
        return "unisono"

    def all_reduce(self, input, group=None):
        self._ops.all_reduce_(input, group=self._group)

    def gather(self, input, gather_list, dst=-1, group=None):
        import torch
        import torch.distributed as dist

        root = dist.get_group_rank(group, dst)
        if self._group.rank != root:
            self._ops.gather_into_tensor(None, input, root, self._group)
            return
        every = input.new_empty((len(gather_list), *input.shape))
        self._ops.gather_into_tensor(every, input, root, self._group)
        torch._foreach_copy_(gather_list, list(every.unbind()))

    def all_gather_into_tensor(self, output, input, group=None):
        self._ops.all_gather_into_tensor(output, input, self._group)

    def send_tensor_dict(self, tensor_dict, dst):
        """The sizes of what follows, then names, types and shapes, then the tensors."""
        import torch

        kept = {name: tensor.contiguous() for name, tensor in tensor_dict.items()}
        head = pickle.dumps([(name, each.dtype, each.shape) for name, each in kept.items()])
        self._ops.send(torch.tensor([len(head)]), dst, group=self._group)
        self._ops.send(torch.frombuffer(bytearray(head), dtype=torch.uint8), dst, group=self._group)
        for tensor in kept.values():
            self._ops.send(tensor, dst, group=self._group)

    def recv_tensor_dict(self, src):
        import torch

        size = self._ops.receive_(torch.empty(1, dtype=torch.int64), src, group=self._group)
        head = torch.empty(size.item(), dtype=torch.uint8)
        self._ops.receive_(head, src, group=self._group)
        return {
            name: self._ops.receive_(torch.empty(shape, dtype=dtype), src, group=self._group)
            for name, dtype, shape in pickle.loads(head.numpy().tobytes())
        }


def register():
    """vLLM calls this in each of its processes, any number of times."""
    import importlib

    from vllm import envs
    from vllm.platforms import current_platform

    if "unisono" in (envs.VLLM_PLUGINS or ()) and current_platform.is_cpu():
        module = importlib.import_module(_MODULE)
        if not hasattr(module, _REPLACED):
            raise RuntimeError(f"unisono: this vLLM has no {_MODULE}.{_REPLACED} to replace")
        setattr(module, _REPLACED, Distributed)
