"""Calls on the tensors of a GPU: the same results as on the host's, in the order of torch's streams.
Ranks share the GPUs that there are."""

import copy
import os
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import main, of_rank, rank, size

LONG = 200_000_000  # cycles: some 100 ms

torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
dist.init_process_group("unisono")


class OnGpu(unittest.TestCase):
    def assertSameOnGpu(self, call, make):
        """`make` gives the tensors, whose last ones `call` writes."""
        here, there = make(), [tensor.cuda() for tensor in make()]
        call(*here)
        call(*there)
        for a, b in zip(here, there):
            loose = {"rtol": 3e-2, "atol": 3e-2} if a.dtype.itemsize == 2 else {}
            torch.testing.assert_close(b.cpu(), a, **loose)

    def test_reductions(self):
        for dtype in [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8]:
            for op in [dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]:
                for count in [1, 1000, 300_000]:
                    with self.subTest(dtype=dtype, op=op, count=count):
                        make = lambda: [of_rank((count,), dtype)]  # noqa: E731, B023
                        self.assertSameOnGpu(lambda t: dist.all_reduce(t, op), make)  # noqa: B023

    def test_average_and_premultiplied_sum(self):
        for op in [dist.ReduceOp.AVG, dist._make_nccl_premul_sum(0.25)]:
            self.assertSameOnGpu(lambda t: dist.all_reduce(t, op), lambda: [of_rank((5000,))])  # noqa: B023

    def test_moves(self):
        count = 4096
        self.assertSameOnGpu(lambda t: dist.broadcast(t, size() - 1), lambda: [of_rank((count,))])
        into = lambda: [of_rank((count,)), torch.zeros(size() * count)]  # noqa: E731
        self.assertSameOnGpu(lambda a, b: dist.all_gather_into_tensor(b, a), into)
        self.assertSameOnGpu(lambda a, b: dist.all_gather(list(b.chunk(size())), a), into)
        self.assertSameOnGpu(
            lambda a, b: dist.reduce_scatter_tensor(b, a),
            lambda: [of_rank((size() * count,)), torch.zeros(count)],
        )
        self.assertSameOnGpu(
            lambda a, b: dist.all_to_all_single(b, a),
            lambda: [of_rank((size() * count,)), torch.zeros(size() * count)],
        )

    def test_lists_that_do_not_lie_end_to_end(self):
        def call(own, *all_of_them):
            dist.all_gather(list(all_of_them), own)

        self.assertSameOnGpu(
            call, lambda: [of_rank((33,))] + [torch.zeros(33) for _ in range(size())]
        )

    def test_tensors_with_gaps(self):
        def call(tensor):
            dist.all_reduce(tensor.t())

        self.assertSameOnGpu(call, lambda: [of_rank((30, 40))])

    def test_a_call_comes_after_what_is_in_the_stream_and_before_what_follows(self):
        for stream in [torch.cuda.default_stream(), torch.cuda.Stream()]:
            for is_async in [False, True]:
                with self.subTest(stream=stream, is_async=is_async), torch.cuda.stream(stream):
                    data = torch.zeros(100_000, device="cuda")
                    torch.cuda._sleep(LONG)
                    data += rank() + 1
                    work = dist.all_reduce(data, async_op=is_async)
                    if is_async:
                        work.wait()
                    data *= 2
                    expected = size() * (size() + 1)
                    self.assertTrue(bool((data == expected).all()), f"{data[0]} not {expected}")

    def test_waiting_is_the_stream_s(self):
        data = torch.ones(1000, device="cuda")
        dist.all_reduce(data)
        torch.cuda.synchronize()
        torch.cuda._sleep(5 * LONG)
        dist.all_reduce(data, async_op=True).wait()
        is_over = torch.cuda.current_stream().query()
        self.assertEqual(data[0].item(), size() ** 2)
        self.assertFalse(is_over, "the caller waited for the GPU")

    def test_computing_goes_on_beside_a_call(self):
        data = torch.ones(1000, device="cuda")
        for _ in range(20):
            work = dist.all_reduce(data, async_op=True)
            other = torch.ones(1000, device="cuda") * 3
            work.wait()
            data /= size()
            self.assertEqual((data + other)[0].item(), 4)

    def test_tensors_that_nobody_keeps_stay_until_the_call_is_over(self):
        total = torch.zeros(1, device="cuda")
        for _ in range(20):
            torch.cuda._sleep(LONG // 20)
            gathered = torch.empty(size() * 50_000, device="cuda")
            work = dist.all_gather_into_tensor(
                gathered, torch.full((50_000,), 1.0, device="cuda"), async_op=True
            )
            # It may get the memory of what was gathered, where nobody keeps that.
            torch.full((50_000,), 7.0, device="cuda")
            work.wait()
            total += gathered.sum()
        self.assertEqual(total.item(), 20 * size() * 50_000)

    def test_futures(self):
        data = torch.full((1000,), 2.0, device="cuda")
        torch.cuda._sleep(LONG)
        future = dist.all_reduce(data, async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        self.assertEqual(doubled.wait()[0].item(), 4.0 * size())

    def test_coalesced_calls(self):
        parts = [torch.full((10 + i,), float(i + 1), device="cuda") for i in range(4)]
        with dist._coalescing_manager(device=torch.device("cuda"), async_ops=True) as manager:
            for part in parts:
                dist.all_reduce(part)
        manager.wait()
        for i, part in enumerate(parts):
            self.assertTrue(bool((part == (i + 1) * size()).all()))

    def test_messages_in_any_order(self):
        right, left = (rank() + 1) % size(), (rank() - 1) % size()
        for stream in [torch.cuda.default_stream(), torch.cuda.Stream()]:
            with self.subTest(stream=stream), torch.cuda.stream(stream):
                got = torch.zeros(300_000, device="cuda")
                receiving = dist.irecv(got, left)
                torch.cuda._sleep(LONG // 10)
                mine = torch.full((300_000,), float(rank()), device="cuda")
                sending = dist.isend(mine, right)
                receiving.wait()
                sending.wait()
                self.assertTrue(bool((got == left).all()))
                works = dist.batch_isend_irecv(
                    [dist.P2POp(dist.irecv, got, left), dist.P2POp(dist.isend, mine * 2, right)]
                )
                for work in works:
                    work.wait()
                self.assertTrue(bool((got == 2 * left).all()))

    def test_a_message_is_copied_out_in_one_stream_and_used_in_another(self):
        right, left = (rank() + 1) % size(), (rank() - 1) % size()
        got = torch.zeros(1 << 20, 2, device="cuda")[:, 0]
        mine = torch.full((1 << 20,), rank() + 1.0, device="cuda")
        torch.cuda.synchronize()
        receiving, sending = dist.irecv(got, left), dist.isend(mine, right)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(LONG)
            while not receiving.is_completed():
                pass
        with torch.cuda.stream(torch.cuda.Stream()):
            receiving.synchronize()
            self.assertTrue(bool((got == left + 1).all()))
        sending.wait()

    def test_subgroups(self):
        group = dist.new_group(list(range(size()))[::-1], backend="unisono")
        for _ in range(3):
            data = torch.ones(2000, device="cuda")
            dist.all_reduce(data)
            dist.all_reduce(data, group=group)
            self.assertEqual(data[0].item(), size() ** 2)

    def trained(self, wrap, steps=5):
        torch.manual_seed(7)
        alone = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 10)).cuda()
        ours = wrap(copy.deepcopy(alone))
        generator = torch.Generator().manual_seed(3)
        inputs = torch.randn(24 * size(), 64, generator=generator).cuda()
        targets = torch.randint(0, 10, (24 * size(),), generator=generator).cuda()
        for model, x, y in [
            (alone, inputs, targets),
            (ours, inputs.chunk(size())[rank()], targets.chunk(size())[rank()]),
        ]:
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(steps):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        return alone, ours

    def test_ddp_is_training_by_one_process(self):
        alone, ours = self.trained(lambda model: DistributedDataParallel(model, bucket_cap_mb=0.01))
        for a, b in zip(alone.parameters(), ours.parameters()):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)

    def test_fsdp_is_training_by_one_process(self):
        from torch.distributed.fsdp import fully_shard

        alone, ours = self.trained(fully_shard)
        for a, b in zip(alone.parameters(), ours.parameters()):
            torch.testing.assert_close(b.full_tensor(), a, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main()
