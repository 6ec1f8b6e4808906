"""The group in Python beside the adapter: the same calls have the same results, to the bit."""

import unittest

import torch
import torch.distributed as dist

from ranks import main, of_rank, rank, size
from unisono_torch import _pure_python

NAME = "unisono_in_python"


def create(options, _group_options):
    return _pure_python.PurePythonGroup(
        options.store, options.group_rank, options.group_size, options.timeout, NAME
    )


dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])
dist.init_process_group("unisono")
PYTHON = dist.new_group(backend=NAME)
SHAPES = [(), (1,), (1000,), (3, 4, 5)]
TYPES = [torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex64]


class Beside(unittest.TestCase):
    def assertSameOnBoth(self, call):
        """`call(group)` returns tensors."""
        for ours, theirs in zip(call(None), call(PYTHON)):
            self.assertEqual(ours.shape, theirs.shape)
            self.assertTrue(torch.equal(ours, theirs), f"{ours} is not {theirs}")

    def test_they_are_two(self):
        self.assertIsInstance(PYTHON, _pure_python.PurePythonGroup)
        self.assertNotIsInstance(
            dist.distributed_c10d._get_default_group(), _pure_python.PurePythonGroup
        )

    def test_reductions(self):
        def call(group):
            tensor = of_rank(shape, dtype)
            dist.all_reduce(tensor, op, group=group)
            yield tensor
            tensor = of_rank((size(), *shape), dtype)
            out = torch.empty((1, *shape), dtype=dtype)
            dist.reduce_scatter_tensor(out, tensor, op, group=group)
            yield out
            tensor = of_rank(shape, dtype)
            dist.reduce(tensor, size() - 1, op, group=group)
            yield tensor

        for dtype in TYPES:
            ops = [dist.ReduceOp.SUM]
            if not dtype.is_complex:
                ops += [dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]
            for op in ops:
                for shape in SHAPES:
                    with self.subTest(dtype=dtype, op=op, shape=shape):
                        self.assertSameOnBoth(call)

    def test_data_that_moves(self):
        def call(group):
            mine = of_rank(shape, dtype)
            yield broadcast(mine.clone(), group)
            every = [torch.empty_like(mine) for _ in range(size())]
            dist.all_gather(every, mine, group=group)
            yield from every
            flat = torch.empty((size(), *shape), dtype=dtype)
            dist.all_gather_into_tensor(flat, mine.unsqueeze(0), group=group)
            yield flat
            part = torch.empty_like(mine)
            dist.scatter(part, every if rank() == 1 else None, 1, group=group)
            yield part
            swapped = torch.empty_like(flat)
            dist.all_to_all_single(swapped, flat.contiguous(), group=group)
            yield swapped

        def broadcast(tensor, group):
            dist.broadcast(tensor, 1, group=group)
            return tensor

        for dtype in [*TYPES, torch.bool]:
            for shape in SHAPES:
                with self.subTest(dtype=dtype, shape=shape):
                    self.assertSameOnBoth(call)

    def test_errors_have_the_same_words(self):
        for group in (None, PYTHON):
            with self.assertRaisesRegex(RuntimeError, "AVG needs floating-point"):
                dist.all_reduce(torch.ones(1, dtype=torch.int32), dist.ReduceOp.AVG, group=group)
            with self.assertRaisesRegex(RuntimeError, "differ in type"):
                dist.all_gather_into_tensor(
                    torch.empty(size(), dtype=torch.int32), torch.ones(1), group=group
                )
        # A group of its own, which this is the end of.
        group = dist.new_group(backend=NAME)
        with self.assertRaisesRegex(dist.DistBackendError, "differ"):
            dist.all_reduce(torch.ones(10 + rank()), group=group)
            dist.barrier(group=group)


if __name__ == "__main__":
    main()
