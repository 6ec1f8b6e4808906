"""Training by torch's own wrappers: the same results as by one process, or by Gloo."""

import copy
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
except ImportError:  # torch 2.4 and 2.5, whose fully_shard needs CUDA
    from torch.distributed._tensor import Replicate, Shard, distribute_tensor

    fully_shard = None

from ranks import main, rank, size, start

GLOO = start()
SAMPLES, FEATURES = 24, 12


def model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 4))


def batch():
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    return inputs, torch.randint(0, 4, (SAMPLES,), generator=generator)


def own_part(tensor):
    return tensor.chunk(size())[rank()]


def train(module, optimizer, inputs, targets, steps=5):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_one_process():
    alone = model()
    train(alone, torch.optim.SGD(alone.parameters(), 0.1), *batch())
    return alone


class Training(unittest.TestCase):
    def assertParametersClose(self, a, b):
        for (name, x), y in zip(a.named_parameters(), b.parameters()):
            torch.testing.assert_close(x, y, msg=lambda text, name=name: f"{name}: {text}")

    def parts(self):
        return [own_part(tensor) for tensor in batch()]

    def test_ddp_is_training_by_one_process(self):
        module = DistributedDataParallel(model(), bucket_cap_mb=0.001)
        train(module, torch.optim.SGD(module.parameters(), 0.1), *self.parts())
        self.assertParametersClose(module.module, by_one_process())

    def test_ddp_without_synchronisation_and_with_unused_parameters(self):
        module = DistributedDataParallel(model(), find_unused_parameters=True)
        inputs, targets = self.parts()
        with module.no_sync():
            nn.functional.cross_entropy(module(inputs), targets).backward()
        own = [parameter.grad.clone() for parameter in module.parameters()]
        nn.functional.cross_entropy(module(inputs), targets).backward()
        for parameter, before in zip(module.parameters(), own):
            expected = before.clone()
            dist.all_reduce(expected, dist.ReduceOp.AVG, group=dist.group.WORLD)
            torch.testing.assert_close(parameter.grad, 2 * expected)
        module.module[2].requires_grad_(False)

    def test_ddp_with_a_hook_and_gradients_as_views(self):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        module = DistributedDataParallel(model(), gradient_as_bucket_view=True)
        module.register_comm_hook(None, default_hooks.fp16_compress_hook)
        train(module, torch.optim.SGD(module.parameters(), 0.1), *self.parts())
        for (_, x), y in zip(module.module.named_parameters(), by_one_process().parameters()):
            torch.testing.assert_close(x, y, rtol=2e-2, atol=2e-3)

    def test_a_hook_that_waits_for_calls_of_its_own(self):
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        module = DistributedDataParallel(model(), bucket_cap_mb=0.001)
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.1)
        module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        losses = train(module, torch.optim.SGD(module.parameters(), 0.1), *self.parts(), steps=8)
        self.assertLess(losses[-1], losses[0])

    def test_ddp_with_sparse_gradients_is_training_by_one_process(self):
        def embedding():
            torch.manual_seed(2)
            return nn.Sequential(nn.EmbeddingBag(20, 6, sparse=True), nn.Linear(6, 4))

        words = torch.randint(0, 20, (SAMPLES, 3), generator=torch.Generator().manual_seed(4))
        targets = batch()[1]
        module, alone = DistributedDataParallel(embedding()), embedding()
        train(module, torch.optim.SGD(module.parameters(), 0.1), own_part(words), own_part(targets))
        train(alone, torch.optim.SGD(alone.parameters(), 0.1), words, targets)
        self.assertTrue(module.module[0].weight.grad.is_sparse)
        self.assertParametersClose(module.module, alone)

    def test_batch_normalisation_over_all_ranks(self):
        torch.manual_seed(1)
        inputs = torch.randn(SAMPLES, 5)
        alone = nn.BatchNorm1d(5)
        expected = alone(inputs)
        try:
            out = nn.SyncBatchNorm(5)(own_part(inputs))
        except ValueError as error:
            if "to be on GPU" not in str(error):
                raise
            self.skipTest(f"SyncBatchNorm: {error}")
        torch.testing.assert_close(out, own_part(expected))

    @unittest.skipIf(fully_shard is None, "this torch's fully_shard needs CUDA")
    def test_fully_shard_is_training_by_one_process(self):
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (size(),))
        module = model()
        fully_shard(module[0], mesh=mesh)
        fully_shard(module, mesh=mesh)
        train(module, torch.optim.SGD(module.parameters(), 0.1), *self.parts())
        for x, y in zip(module.parameters(), by_one_process().parameters()):
            torch.testing.assert_close(x.full_tensor(), y)

    def test_fsdp1_is_training_by_one_process(self):
        from torch.distributed.fsdp import FullyShardedDataParallel

        module = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
        train(module, torch.optim.SGD(module.parameters(), 0.1), *self.parts())
        with FullyShardedDataParallel.summon_full_params(module):
            self.assertParametersClose(module.module, by_one_process())

    def test_zero_redundancy_optimizer(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        module = DistributedDataParallel(model())
        optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.SGD, lr=0.1)
        train(module, optimizer, *self.parts())
        self.assertParametersClose(module.module, by_one_process())

    def test_dtensor(self):
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (size(),))
        torch.manual_seed(5)
        a, b = torch.randn(6 * size(), 8), torch.randn(8, 4 * size())
        rows = distribute_tensor(a, mesh, [Shard(0)])
        columns = distribute_tensor(b, mesh, [Shard(1)])
        product = rows.redistribute(mesh, [Replicate()]) @ columns
        torch.testing.assert_close(product.full_tensor(), a @ b)
        inner = distribute_tensor(a, mesh, [Shard(1)]) @ distribute_tensor(b, mesh, [Shard(0)])
        torch.testing.assert_close(inner.full_tensor(), a @ b)
        torch.testing.assert_close(
            rows.redistribute(mesh, [Shard(1)]).full_tensor(), a, rtol=0, atol=0
        )

    def test_tensor_parallel_layers(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        mesh = init_device_mesh("cpu", (size(),))
        torch.manual_seed(9)
        layers = nn.Sequential(nn.Linear(6, 12 * size()), nn.ReLU(), nn.Linear(12 * size(), 6))
        expected = copy.deepcopy(layers)
        parallelize_module(layers, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        inputs = torch.randn(4, 6)
        torch.testing.assert_close(layers(inputs), expected(inputs))

    def test_checkpoints_of_shards(self):
        import torch.distributed.checkpoint as checkpoint
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (size(),))
        torch.manual_seed(4)
        value = torch.randn(5 * size(), 3)
        loaded = {"v": distribute_tensor(torch.zeros_like(value), mesh, [Shard(0)])}
        with tempfile.TemporaryDirectory() as own:
            folder = [own]
            dist.broadcast_object_list(folder, 0)
            checkpoint.save({"v": distribute_tensor(value, mesh, [Shard(0)])}, checkpoint_id=folder[0])
            checkpoint.load(loaded, checkpoint_id=folder[0])
            dist.barrier()
        torch.testing.assert_close(loaded["v"].full_tensor(), value, rtol=0, atol=0)


if __name__ == "__main__":
    main()
