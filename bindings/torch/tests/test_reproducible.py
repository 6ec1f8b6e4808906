"""Training whose bits depend on the samples alone. Run with UNISONO_ORDER=exact."""

import os
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import main, of_rank, rank, size, start

start()


def trained(bucket_mb=25, shift=0):
    """The parameters after some steps; ranks have the parts of the batch `shift` ranks on."""
    torch.manual_seed(7)
    module = nn.Sequential(nn.Linear(40, 300), nn.Tanh(), nn.Linear(300, 10))
    module = DistributedDataParallel(module, bucket_cap_mb=bucket_mb)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        inputs = torch.randn(8 * size(), 40, generator=generator)
        targets = torch.randint(0, 10, (8 * size(),), generator=generator)
        own = (rank() + shift) % size()
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs.chunk(size())[own]), targets.chunk(size())[own]).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(module.parameters()).detach()


class Reproducible(unittest.TestCase):
    def test_the_order_is_asked_for(self):
        self.assertEqual(os.environ.get("UNISONO_ORDER"), "exact")

    def test_buckets_do_not_matter(self):
        whole = trained()
        for bucket_mb in (0.001, 0.02):
            self.assertTrue(torch.equal(trained(bucket_mb), whole), f"buckets of {bucket_mb} MB")

    def test_it_does_not_matter_which_rank_has_which_samples(self):
        whole = trained()
        for shift in range(1, size()):
            self.assertTrue(torch.equal(trained(shift=shift), whole), f"moved by {shift} ranks")

    def test_the_size_of_a_message_does_not_matter(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            whole = of_rank((300_000,), dtype)
            parts = [part.clone() for part in whole.split(999)]
            dist.all_reduce(whole)
            for part in parts:
                dist.all_reduce(part)
            self.assertTrue(torch.equal(torch.cat(parts), whole), dtype)

    def test_sparse_sums_have_the_bits_of_dense_ones(self):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            dense = of_rank((50, 300)) * (of_rank((50, 1), seed=1) > 0)
            sparse = dense.to_sparse(1)
            dist.all_reduce(dense, op)
            dist.all_reduce(sparse, op)
            self.assertTrue(torch.equal(sparse.to_dense(), dense), op)

    def test_averages_and_scattered_sums_have_the_same_bits(self):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            values = of_rank((size() * 1000,))
            out = torch.empty(1000)
            dist.reduce_scatter_tensor(out, values, op)
            parts = [part.clone() for part in values.split(99)]
            for part in parts:
                dist.all_reduce(part, op)
            dist.all_reduce(values, op)
            self.assertTrue(torch.equal(out, values.chunk(size())[rank()]), op)
            self.assertTrue(torch.equal(torch.cat(parts), values), op)


if __name__ == "__main__":
    main()
