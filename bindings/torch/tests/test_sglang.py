"""SGLang's GroupCoordinator on two ranks with the plug-in, as SGLang itself loads it: what Gloo gives
it without.

    python -m torch.distributed.run --nproc-per-node 2 test_sglang.py

A whole engine needs a build of sgl-kernel for CPUs, which PyPI does not have.
"""

import os
import sys
import unittest
from unittest import mock

os.environ.update(SGLANG_PLUGINS="unisono", SGLANG_USE_CPU_ENGINE="1")

import torch
import torch.distributed as dist
from sglang.srt.distributed import parallel_state
from sglang.srt.plugins import load_plugins

from unisono_torch import ops

torch.set_num_threads(1)
TYPES = (torch.bfloat16, torch.float16, torch.float32, torch.int32)


def coordinator():
    return parallel_state.GroupCoordinator(
        group_ranks=[[0, 1]],
        local_rank=dist.get_rank(),
        torch_distributed_backend="gloo",
        use_pynccl=False,
        use_mscclpp=False,
        use_custom_allreduce=False,
        use_torch_symm_mem_all_reduce=False,
        use_hpu_communicator=False,
        use_xpu_communicator=False,
        group_name="tp",
    )


def of_rank(dtype):
    generator = torch.Generator().manual_seed(dist.get_rank())
    return torch.randint(-50, 50, (6, 33), generator=generator).to(dtype)


class Sglang(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.own = coordinator()
        load_plugins()
        cls.ours = coordinator()

    def test_the_plugin_is_loaded(self):
        self.assertFalse(hasattr(self.own, "unisono_group"))
        self.assertIsNotNone(self.ours.unisono_group)

    def test_all_reduce(self):
        for dtype in TYPES:
            expected = of_rank(dtype)
            dist.all_reduce(expected, group=self.own.device_group)
            with mock.patch.object(ops, "all_reduce_", wraps=ops.all_reduce_) as called:
                self.assertTrue(torch.equal(self.ours.all_reduce(of_rank(dtype)), expected), dtype)
            called.assert_called_once()

    def test_all_gather(self):
        for dtype in TYPES:
            for dim in (0, 1, -1):
                parts = [torch.empty(6, 33, dtype=dtype) for _ in range(2)]
                dist.all_gather(parts, of_rank(dtype), group=self.own.device_group)
                with mock.patch.object(ops, "all_gather", wraps=ops.all_gather) as called:
                    gathered = self.ours.all_gather(of_rank(dtype), dim)
                self.assertTrue(torch.equal(gathered, torch.cat(parts, dim)), (dtype, dim))
                called.assert_called_once()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    program = unittest.main(exit=False, verbosity=2 if dist.get_rank() == 0 else 0)
    dist.destroy_process_group()
    sys.exit(not program.result.wasSuccessful())
