"""Plug-in of SGLang (`sglang.srt.plugins`): all-reduces and all-gathers of CPU tensors run on unisono
instead of SGLang's shared-memory kernels or Gloo.

SGLANG_PLUGINS=unisono turns it on, where unisono-torch is installed; without that variable SGLang is
left alone.
"""

_MODULE, _COORDINATOR = "sglang.srt.distributed.parallel_state", "GroupCoordinator"


def _init(original, self, *args, **kwargs):
    from . import ops

    original(self, *args, **kwargs)
    is_used = self.world_size > 1 and self.device.type == "cpu"
    self.unisono_group = ops.group(self.device_group) if is_used else None


def _all_reduce(original, self, input_, *args, **kwargs):
    from . import ops

    if self.unisono_group is None or not input_.is_contiguous():
        return original(self, input_, *args, **kwargs)
    return ops.all_reduce_(input_, group=self.unisono_group)


def _all_gather(original, self, input_, dim=-1, output_tensor_list=None):
    from . import ops

    if self.unisono_group is None or output_tensor_list is not None:
        return original(self, input_, dim, output_tensor_list)
    return ops.all_gather(input_, dim, self.unisono_group)


def register():
    """SGLang calls this in each of its processes."""
    import importlib
    import os

    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    # SGLang's own reading of the variable takes blanks around names.
    if "unisono" not in map(str.strip, os.environ.get("SGLANG_PLUGINS", "").split(",")):
        return
    hooks = {"__init__": _init, "all_reduce": _all_reduce, "all_gather": _all_gather}
    coordinator = getattr(importlib.import_module(_MODULE), _COORDINATOR, None)
    for method in hooks:
        if not hasattr(coordinator, method):
            raise RuntimeError(f"unisono: this SGLang has no {_MODULE}.{_COORDINATOR}.{method} to replace")
    for method, hook in hooks.items():
        HookRegistry.register(f"{_MODULE}.{_COORDINATOR}.{method}", hook, HookType.AROUND)
