"""Every call of the process group beside Gloo's, where Gloo has it, and beside the definition."""

import datetime
import time
import unittest

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

from ranks import backend, main, of_rank, rank, size, start
from unisono_torch import objects
from unisono_torch.objects import all_gather_object

GLOO = start()
BACKEND = backend()
INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OTHERS = [torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]


def eventually(condition):
    """Whether it comes true in 20 s."""
    end = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def bits(tensor):
    return tensor.contiguous().view(torch.uint8) if tensor.numel() else tensor.flatten()


class AtHome:
    """An object that only the rank that made it can unpickle."""

    def __init__(self):
        self.home = rank()

    def __setstate__(self, state):
        if state["home"] != rank():
            raise ValueError("not at home")


def refused_calls():
    """Of each method one that its first checks refuse."""
    one, two = torch.ones(1), torch.ones(2)
    sparse, ints = torch.eye(2).to_sparse(), torch.ones(2, dtype=torch.int32)
    world = dist.distributed_c10d._get_default_group()
    return [
        lambda: BACKEND.broadcast([one, two]),
        lambda: BACKEND.allreduce([one, two]),
        lambda: BACKEND.allreduce([sparse.to("meta")]),
        lambda: BACKEND.allreduce_coalesced([one, sparse]),
        lambda: BACKEND.reduce([one, two], dist.ReduceOptions()),
        lambda: BACKEND.allgather([[one]], [one, two]),
        lambda: BACKEND._allgather_base(one, sparse),
        lambda: BACKEND.allgather_coalesced([], [one]),
        lambda: world.allgather_into_tensor_coalesced([two], [one, two]),
        lambda: BACKEND.gather([], [one, two], dist.GatherOptions()),
        lambda: BACKEND.scatter([one, two], [], dist.ScatterOptions()),
        lambda: BACKEND.reduce_scatter([one], [[one]], dist.ReduceScatterOptions()),
        lambda: BACKEND._reduce_scatter_base(one, sparse),
        lambda: world.reduce_scatter_tensor_coalesced([one], [two, two]),
        lambda: BACKEND.alltoall_base(one, ints, [], []),
        lambda: BACKEND.alltoall([one], [one]),
        lambda: BACKEND.recv([one, two], 0, 0),
    ]


class Collectives(unittest.TestCase):
    def assertSame(self, a, b):
        self.assertEqual(a.shape, b.shape)
        self.assertTrue(torch.equal(bits(a), bits(b)), f"{a} is not {b}")

    def gathered(self, tensor):
        """All ranks' tensors by unisono, as bytes."""
        out = [torch.empty_like(tensor) for _ in range(size())]
        dist.all_gather(out, tensor)
        return out

    def test_reductions_are_those_of_gloo(self):
        ops = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
        for dtype in INTEGERS + FLOATS:
            for op in ops:
                for shape in [(), (1,), (1000,), (3, 4, 5)]:
                    with self.subTest(dtype=dtype, op=op, shape=shape):
                        mine, other = of_rank(shape, dtype), of_rank(shape, dtype)
                        dist.all_reduce(mine, op)
                        dist.all_reduce(other, op, group=GLOO)
                        # The order of additions differs.
                        loose = {"rtol": 3e-2, "atol": 3e-2} if dtype.itemsize == 2 else {}
                        torch.testing.assert_close(mine, other, **loose)

    def test_average(self):
        for dtype in [torch.float32, torch.float64, torch.bfloat16]:
            mine = of_rank((100,), dtype)
            expected = torch.stack(self.gathered(mine)).double().mean(0)
            dist.all_reduce(mine, dist.ReduceOp.AVG)
            torch.testing.assert_close(mine.double(), expected, rtol=1e-2, atol=1e-2)
        with self.assertRaisesRegex(RuntimeError, "AVG needs floating-point"):
            dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG)

    def test_premultiplied_sum(self):
        mine = of_rank((100,))
        expected = torch.stack(self.gathered(mine)).sum(0) * 0.25
        dist.all_reduce(mine, dist._make_nccl_premul_sum(0.25))
        torch.testing.assert_close(mine, expected)

    def test_bits_and_truth(self):
        for op, function in [
            (dist.ReduceOp.BAND, torch.bitwise_and),
            (dist.ReduceOp.BOR, torch.bitwise_or),
            (dist.ReduceOp.BXOR, torch.bitwise_xor),
        ]:
            mine = of_rank((50,), torch.int64)
            all_of_them = self.gathered(mine)
            expected = all_of_them[0]
            for other in all_of_them[1:]:
                expected = function(expected, other)
            dist.all_reduce(mine, op)
            self.assertSame(mine, expected)
        for op, function in [(dist.ReduceOp.SUM, torch.any), (dist.ReduceOp.PRODUCT, torch.all)]:
            mine = of_rank((50,), torch.bool)
            expected = function(torch.stack(self.gathered(mine)), dim=0)
            dist.all_reduce(mine, op)
            self.assertSame(mine, expected)

    def test_complex_sums(self):
        mine = of_rank((50,), torch.complex64)
        expected = torch.stack(self.gathered(mine)).sum(0)
        dist.all_reduce(mine)
        torch.testing.assert_close(mine, expected)
        parts = of_rank((size(), 50), torch.complex64)
        total = torch.stack(self.gathered(parts)).sum(0)
        out = torch.empty(50, dtype=torch.complex64)
        dist.reduce_scatter_tensor(out, parts.flatten())
        torch.testing.assert_close(out, total[rank()])

    def test_data_of_every_type_arrives_as_it_was(self):
        for dtype in INTEGERS + FLOATS + OTHERS:
            with self.subTest(dtype=dtype):
                mine = of_rank((7, 3), torch.float32).to(dtype) if dtype in OTHERS[3:] else of_rank(
                    (7, 3), dtype
                )
                every = self.gathered(mine)
                self.assertSame(every[rank()], mine)
                copy = mine.clone()
                dist.broadcast(copy, 1)
                self.assertSame(copy, every[1])
                flat = torch.empty(7 * size(), 3, dtype=dtype)
                dist.all_gather_into_tensor(flat, mine)
                self.assertSame(flat, torch.cat([each.view(torch.uint8) for each in every]).view(
                    dtype).reshape(flat.shape))

    def test_rooted_calls(self):
        root = size() - 1
        mine = of_rank((5,))
        every = self.gathered(mine)
        reduced = mine.clone()
        dist.reduce(reduced, root)
        if rank() == root:
            torch.testing.assert_close(reduced, torch.stack(every).sum(0))
        else:
            self.assertSame(reduced, mine)
        out = [torch.empty(5) for _ in range(size())] if rank() == root else None
        dist.gather(mine, out, dst=root)
        if rank() == root:
            for a, b in zip(out, every):
                self.assertSame(a, b)
        part = torch.empty(5)
        dist.scatter(part, every if rank() == root else None, src=root)
        self.assertSame(part, mine)

    def test_unequal_sizes(self):
        out = [torch.empty(3 * (r + 1)) for r in range(size())]
        dist.all_gather(out, torch.full((3 * (rank() + 1),), float(rank())))
        for r, each in enumerate(out):
            self.assertSame(each, torch.full((3 * (r + 1),), float(r)))
        parts = [torch.full((r + 1,), float(rank())) for r in range(size())]
        mine = torch.empty(rank() + 1)
        dist.reduce_scatter(mine, parts)
        self.assertSame(mine, torch.full((rank() + 1,), float(sum(range(size())))))

    def test_reduce_scatter(self):
        mine = of_rank((size(), 6))
        total = torch.stack(self.gathered(mine)).sum(0)
        out = torch.empty(6)
        dist.reduce_scatter_tensor(out, mine.clone())
        torch.testing.assert_close(out, total[rank()])
        out = torch.empty(6)
        dist.reduce_scatter(out, list(mine))
        torch.testing.assert_close(out, total[rank()])

    def test_all_to_all(self):
        mine = torch.arange(2 * size()).reshape(size(), 2) + 100 * rank()
        out = torch.empty_like(mine)
        dist.all_to_all_single(out, mine)
        expected = torch.stack([mine[rank()] - 100 * rank() + 100 * r for r in range(size())])
        self.assertSame(out, expected)
        lists = [torch.empty(2, dtype=mine.dtype) for _ in range(size())]
        dist.all_to_all(lists, list(mine))
        self.assertSame(torch.stack(lists), expected)
        # Rank r sends r + 1 rows to each.
        rows = torch.full(((rank() + 1) * size(), 3), float(rank()))
        got = torch.empty(sum(r + 1 for r in range(size())), 3)
        dist.all_to_all_single(
            got, rows, [r + 1 for r in range(size())], [rank() + 1] * size()
        )
        self.assertSame(got, torch.cat([torch.full((r + 1, 3), float(r)) for r in range(size())]))
        with self.assertRaisesRegex(RuntimeError, "add up to"):
            dist.all_to_all_single(got, rows, [1] * size(), [rank() + 1] * size())

    def test_messages(self):
        after, before = (rank() + 1) % size(), (rank() - 1) % size()
        mine, got = of_rank((10,)), torch.empty(10)
        works = [dist.isend(mine, after, tag=5), dist.irecv(got, before, tag=5)]
        for work in works:
            work.wait()
        self.assertSame(got, self.gathered(mine)[before])
        ops = [dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, got.zero_(), before)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        self.assertSame(got, self.gathered(mine)[before])
        if rank() == 0:
            seen = {dist.recv(torch.empty(1)) for _ in range(size() - 1)}
            self.assertEqual(seen, set(range(1, size())))
        else:
            dist.send(torch.ones(1), 0)

    def test_a_message_that_is_shorter_than_its_room_is_told(self):
        if rank() == 0:
            dist.send(torch.ones(5), 1)
        elif rank() == 1:
            with self.assertRaisesRegex(RuntimeError, "rank 0 sent 20 bytes.*has 40"):
                dist.recv(torch.zeros(10), 0)
        dist.barrier()

    def test_a_short_message_for_a_dropped_work_leaves_the_rest_of_a_tensor_with_gaps(self):
        column = torch.full((100, 2), 3.0)[:, 0]
        if rank() == 0:
            dist.send(torch.ones(4), 1)
            dist.send(torch.ones(1), 1)
        elif rank() == 1:
            dist.irecv(column, 0)
            dist.recv(torch.empty(1), 0)
        received = 4 if rank() == 1 else 0
        # The thread that finds the end of the first message may copy it later.
        eventually(lambda: (column[:received] == 1).all())
        dist.barrier()
        self.assertEqual(column.tolist(), [1.0] * received + [3.0] * (100 - received))

    def test_refused_calls_end_the_coalescing(self):
        with self.assertRaisesRegex((RuntimeError, TypeError), "[sS]parse"):
            BACKEND._start_coalescing()
            BACKEND.send([torch.eye(3).to_sparse()], (rank() + 1) % size(), 0)
        after, before = (rank() + 1) % size(), (rank() - 1) % size()
        works = [dist.isend(of_rank((3,)), after), dist.irecv(torch.zeros(3), before)]
        for work in works:
            work.wait()
        self.assertEqual(BACKEND._end_coalescing().result(), [])
        # One that the library refuses and not the adapter.
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.BAND
        BACKEND._start_coalescing()
        with self.assertRaises(RuntimeError):
            BACKEND.allreduce([torch.ones(3)], options)
        dist.all_reduce(torch.ones(3))
        self.assertEqual(BACKEND._end_coalescing().result(), [])

    def test_calls_refused_before_they_begin_end_the_coalescing(self):
        # What began before is not kept for whoever coalesces next, nor is what comes after.
        for refused in refused_calls():
            BACKEND._start_coalescing()
            BACKEND.allreduce([torch.ones(3)])
            with self.assertRaisesRegex(RuntimeError, "unisono: "):
                refused()
            BACKEND.allreduce([torch.ones(3)]).wait()
            self.assertEqual(BACKEND._end_coalescing().result(), [])

    def test_tensors_that_are_not_contiguous(self):
        mine = of_rank((6, 4)).t()
        expected = torch.stack(self.gathered(mine.contiguous())).sum(0)
        dist.all_reduce(mine)
        torch.testing.assert_close(mine, expected)
        holder = torch.full((8, 2), 1.0 + rank())
        dist.broadcast(holder[:, 0], 0)
        self.assertSame(holder, torch.tensor([[1.0, 1.0 + rank()]] * 8))
        out = torch.zeros(3, 2 * size()).t()
        dist.all_gather_into_tensor(out, torch.full((2, 3), float(rank())))
        self.assertSame(out.contiguous(), torch.cat([torch.full((2, 3), float(r)) for r in range(size())]))

    def test_outputs_whose_elements_share_memory_are_refused(self):
        def shared():
            return torch.ones(1).expand(2 * size())

        pieces = [torch.ones(1).expand(2) for _ in range(size())]
        for call, arguments in [
            (dist.all_reduce, [shared()]),
            (dist.broadcast, [shared(), 0]),
            (dist.recv, [shared(), 1]),
            (dist.all_gather_into_tensor, [shared(), torch.ones(2)]),
            (dist.all_gather, [pieces, torch.ones(2)]),
            (dist.all_to_all_single, [shared(), torch.ones(2 * size())]),
            (BACKEND.allreduce_coalesced, [[torch.ones(2), shared()]]),
        ]:
            with self.subTest(call=call):
                self.assertRefused("share memory.*clone", call, *arguments)

    def test_empty_tensors(self):
        empty = torch.empty(0)
        dist.all_reduce(empty)
        dist.broadcast(empty, 0)
        out = torch.empty(0)
        dist.all_gather_into_tensor(out, empty)
        self.assertEqual(out.numel(), 0)
        outs = [torch.empty(0) for _ in range(size())]
        dist.all_gather(outs, empty)

    def test_lists_of_views_some_of_which_are_empty(self):
        # Parts of one tensor, in an order that is not their place in it.
        whole = torch.arange(10.0 * size()) + 100 * rank()
        parts = [whole[4 + 3 * r : 4 + 3 * r + 2] for r in range(size())]
        parts[0] = whole[7:7]
        sizes = [0] + [2] * (size() - 1)
        room = torch.full((10 * size(),), -1.0)
        outs = [room[3 * r + 1 : 3 * r + 1 + sizes[rank()]] for r in range(size())]
        dist.all_to_all(outs, parts)
        for r, out in enumerate(outs):
            first = 4 + 3 * rank() + 100.0 * r
            self.assertSame(out, torch.tensor([first, first + 1])[: sizes[rank()]])
        self.assertEqual((room >= 0).sum().item(), size() * sizes[rank()])
        # End to end behind an empty one.
        ends = [room[0:0]] + [room[3 * r : 3 * r + 3] for r in range(1, size())]
        dist.all_gather(ends, torch.full((3 if rank() else 0,), 7.0 + rank()))
        for r in range(1, size()):
            self.assertSame(room[3 * r : 3 * r + 3], torch.full((3,), 7.0 + r))

    def test_coalesced(self):
        tensors = [of_rank((n,), seed=n) for n in (1, 10, 1000)]
        expected = [torch.stack(self.gathered(t)).sum(0) for t in tensors]
        with dist._coalescing_manager():
            for tensor in tensors:
                dist.all_reduce(tensor)
        for tensor, wanted in zip(tensors, expected):
            torch.testing.assert_close(tensor, wanted)
        outs = [torch.empty(size() * n) for n in (2, 3)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for out in outs:
                dist.all_gather_into_tensor(out, torch.full((out.numel() // size(),), float(rank())))
        manager.wait()
        for out in outs:
            self.assertEqual(out[-1].item(), size() - 1)

    def test_work_and_future(self):
        tensor = torch.ones(1000)
        work = dist.all_reduce(tensor, async_op=True)
        value = work.get_future().wait()
        self.assertSame(value[0], torch.full((1000,), float(size())))
        self.assertTrue(work.is_completed())
        self.assertTrue(work.is_success())
        self.assertEqual(work.result()[0].data_ptr(), tensor.data_ptr())
        tensor = torch.ones(1000)
        twice = dist.all_reduce(tensor, async_op=True).get_future().then(
            lambda future: 2 * future.value()[0]
        )
        self.assertSame(twice.wait(), torch.full((1000,), 2.0 * size()))
        for _ in range(20):
            dist.all_reduce(torch.ones(100_000), async_op=True)  # dropped at once
        outputs = [torch.zeros(1000) for _ in range(size())]
        dist.all_gather(outputs, torch.full((1000,), 1.0 + rank()), async_op=True)
        # The thread that finds its end copies what has to be copied, perhaps later.
        self.assertTrue(
            eventually(lambda: all(output[-1] == 1.0 + r for r, output in enumerate(outputs))),
            "a work that was dropped left no results",
        )
        dist.barrier()

    def test_what_follows_a_future_may_make_calls(self):
        inner = []

        def follow(future):
            inner.append(dist.all_reduce(torch.ones(5), async_op=True))
            inner[-1].get_future().wait()
            return future.value()

        first = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(follow)
        first.wait()
        self.assertSame(inner[0].result()[0], torch.full((5,), float(size())))
        dist.barrier()

    def test_tensors_of_inference_mode(self):
        with torch.inference_mode():
            out = [torch.zeros(4) for _ in range(size())]
            dist.all_gather(out, torch.full((4,), float(rank())), async_op=True).get_future().wait()
            for r, each in enumerate(out):
                self.assertEqual(each[0].item(), r)

    def test_views_that_change_values_are_sent_as_they_read(self):
        mine = torch._neg_view(torch.ones(3)) if rank() == 0 else torch.zeros(3)
        dist.broadcast(mine, 0)
        self.assertSame(mine.clone(), torch.full((3,), -1.0))

    def test_sub_groups(self):
        # By all ranks in one order, and by its members alone.
        pairs = [(a, b) for a in range(size()) for b in range(a + 1, size())]
        groups = [dist.new_group(list(pair)) for pair in pairs]
        if rank() in (0, 1):
            pairs.append((0, 1))
            groups.append(dist.new_group([0, 1], use_local_synchronization=True))
        for pair, group in zip(pairs, groups):
            if rank() not in pair:
                continue
            tensor = torch.full((3,), float(rank()))
            dist.all_reduce(tensor, group=group)
            self.assertSame(tensor, torch.full((3,), float(sum(pair))))

    def test_groups_that_are_split(self):
        world = dist.distributed_c10d._get_default_group()
        if not hasattr(world, "split_group"):
            self.skipTest("this torch has no split_group()")
        # The last rank is by itself; the others are in their order.
        last = size() - 1
        parts = [list(range(last)), [last]]
        own = parts[1] if rank() == last else parts[0]
        group = world.split_group(own, group_name="parts")
        self.assertEqual(group.size(), len(own))
        self.assertEqual(group.rank(), own.index(rank()))
        tensor = torch.full((3,), float(rank()))
        group.allreduce([tensor]).wait()
        self.assertSame(tensor, torch.full((3,), float(sum(own))))
        # Whoever is in no part takes part and gets none.
        group = world.split_group([0], group_name="rank 0")
        self.assertEqual(group is None, rank() != 0)
        with self.assertRaisesRegex(RuntimeError, "duplicates"):
            world.split_group([0, 0])
        try:
            group = dist.split_group(split_ranks=parts)
        except RuntimeError as error:
            if "No device associated" not in str(error):  # older versions of torch want a GPU
                raise
        else:
            tensor = torch.full((3,), float(rank()))
            dist.all_reduce(tensor, group=group)
            self.assertSame(tensor, torch.full((3,), float(sum(own))))
        dist.barrier()

    def test_groups_that_are_merged(self):
        alone = [dist.new_group([r]) for r in range(size())][rank()]
        if not hasattr(alone, "merge_remote_group"):
            self.skipTest("this torch has no merge_remote_group()")
        store = dist.PrefixStore("merging", dist.distributed_c10d._get_default_store())
        merged = alone.merge_remote_group(store, size(), datetime.timedelta(seconds=20), "all")
        self.assertEqual(merged.size(), size())
        tensor = torch.full((3,), float(rank()))
        merged.allreduce([tensor]).wait()
        self.assertSame(tensor, torch.full((3,), float(sum(range(size())))))

    def sparse(self, elements, dtype=torch.float32, dense=(4,)):
        """Some indices are the same, on one rank and on several."""
        indices = of_rank((2, elements), torch.int64, seed=elements) % 7
        return torch.sparse_coo_tensor(indices, of_rank((elements, *dense), dtype), (7, 7, *dense))

    def test_sparse_sums_are_those_of_gloo(self):
        counts = [5 * (rank() + 1), 5 * rank(), 0, 30]
        for dtype in [torch.float32, torch.float64, torch.int64]:
            for elements in counts:
                for dense in [(), (4,)]:
                    with self.subTest(dtype=dtype, elements=elements, dense=dense):
                        mine = self.sparse(elements, dtype, dense)
                        other = mine.clone()
                        dist.all_reduce(mine)
                        dist.all_reduce(other, group=GLOO)
                        self.assertEqual(mine.layout, torch.sparse_coo)
                        torch.testing.assert_close(mine.to_dense(), other.to_dense())
                        torch.testing.assert_close(
                            mine.coalesce().indices(), other.coalesce().indices()
                        )

    def test_sparse_sums_have_equal_bits_and_a_future(self):
        mine = self.sparse(50)
        before = torch.stack(self.gathered(mine.to_dense())).mean(0)
        work = dist.all_reduce(mine, dist.ReduceOp.AVG, async_op=True)
        (value,) = work.get_future().wait()
        self.assertTrue(work.is_completed())
        torch.testing.assert_close(value.to_dense(), before)
        for other in self.gathered(value.to_dense()):
            self.assertSame(other, value.to_dense())

    def test_sparse_tensors_that_no_call_takes(self):
        for op in [dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT, dist.ReduceOp.BAND]:
            with self.assertRaisesRegex(RuntimeError, "supported are SUM and AVG"):
                dist.all_reduce(self.sparse(3), op)
        with self.assertRaisesRegex(RuntimeError, "AVG needs floating-point"):
            dist.all_reduce(self.sparse(3, torch.int64), dist.ReduceOp.AVG)
        shape = (3 + (rank() == 0), 3)
        with self.assertRaisesRegex(RuntimeError, "shape of rank 1's tensor differ"):
            dist.all_reduce(torch.sparse_coo_tensor(torch.zeros(2, 1), torch.ones(1), shape))
        dist.barrier()

    def test_objects(self):
        every = [None] * size()
        dist.all_gather_object(every, {"rank": rank(), "text": "x" * (1000 * rank())})
        self.assertEqual([len(each["text"]) for each in every], [1000 * r for r in range(size())])
        objects = [rank(), "of the root"] if rank() == 0 else [None, None]
        dist.broadcast_object_list(objects, 0)
        self.assertEqual(objects, [0, "of the root"])

    def test_objects_that_are_not_copied(self):
        large = b"z" * (3 << 20)
        for mine in (None, large, [large, "y" * (2 << 20), rank()], large[: rank() << 20],
                     {"tensor": torch.full((600_000,), float(rank())), "parts": [large] * 2}):
            expected, every = [None] * size(), [None] * size()
            dist.all_gather_object(expected, mine)
            all_gather_object(every, mine)
            self.assertEqual(str(every), str(expected))

    def test_an_object_that_cannot_be_unpickled_is_told_and_leaves_the_group_usable(self):
        every = [None] * size()
        with self.assertRaisesRegex(ValueError, "not at home"):
            all_gather_object(every, [AtHome(), b"z" * (2 << 20)])
        all_gather_object(every, rank())
        self.assertEqual(every, list(range(size())))

    def test_torchs_function_of_objects_can_be_replaced(self):
        theirs, every = dist.all_gather_object, [None] * size()
        objects.install()
        try:
            for group in (None, GLOO):
                dist.all_gather_object(every, [rank()], group=group)
                self.assertEqual(every, [[each] for each in range(size())])
            self.assertIs(dist.all_gather_object.__wrapped__, theirs)
        finally:
            dist.all_gather_object = dist.distributed_c10d.all_gather_object = theirs

    def test_what_replaces_torchs_function_of_objects_passes_on_what_it_does_not_know(self):
        every, asked = [None] * size(), []

        def newer(object_list, obj, group=None, *, weights_only=False):
            asked.append(weights_only)
            theirs(object_list, obj, group)

        theirs = dist.all_gather_object
        dist.all_gather_object = newer
        objects.install()
        try:
            for group, weights_only in [(GLOO, True), (GLOO, False), (None, True), (None, False)]:
                dist.all_gather_object(every, rank(), group=group, weights_only=weights_only)
                self.assertEqual(every, list(range(size())))
        finally:
            dist.all_gather_object = dist.distributed_c10d.all_gather_object = theirs
        self.assertEqual(asked, [True, False, True])

    def test_sequence_numbers_agree(self):
        number = torch.tensor([BACKEND._get_sequence_number_for_group()])
        self.assertTrue(all(each == number for each in self.gathered(number)))
        dist.barrier()
        before = BACKEND._get_sequence_number_for_group()
        self.assertGreater(before, number.item())
        with self.assertRaises((RuntimeError, ValueError)):
            BACKEND._allgather_base(torch.empty(1 + size()), torch.ones(1))
        self.assertEqual(BACKEND._get_sequence_number_for_group(), before)

    def test_memory_of_no_possible_size_is_refused(self):
        if not hasattr(BACKEND, "allocate_tensor"):
            self.skipTest("this torch asks no group for memory")
        self.assertTrue(BACKEND.supports_tensor_alloc(torch.device("cpu")))
        for elements in (1 << 61, -1):
            with self.assertRaises((RuntimeError, ValueError)):
                BACKEND.allocate_tensor(elements, dtype=torch.float64, device=torch.device("cpu"))
        tensor = BACKEND.allocate_tensor(1000, dtype=torch.float64, device=torch.device("cpu"))
        self.assertEqual(tensor.fill_(1.0).sum().item(), 1000)

    def test_monitored_barrier_of_all_passes(self):
        BACKEND.monitored_barrier(datetime.timedelta(seconds=20))

    def test_bad_arguments_leave_the_group_in_order(self):
        with self.assertRaisesRegex(RuntimeError, "root (is )?99|not part of group|Invalid"):
            dist.broadcast(torch.ones(1), 99)
        with self.assertRaisesRegex(RuntimeError, "[sS]parse"):
            dist.broadcast(torch.eye(3).to_sparse(), 0)
        with self.assertRaises((RuntimeError, TypeError)):
            dist.all_reduce(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8))
        # torch has an answer of its own for these, so the group is asked.
        with self.assertRaisesRegex(RuntimeError, "the tensor is on meta"):
            BACKEND.allreduce([torch.ones(3, device="meta")], dist.AllreduceOptions())
        with self.assertRaisesRegex(RuntimeError, "differ in type"):
            BACKEND._allgather_base(torch.empty(size(), dtype=torch.int32), torch.ones(1))
        with self.assertRaisesRegex((RuntimeError, ValueError), "output"):
            dist.all_gather_into_tensor(torch.empty(1 + size()), torch.ones(1))
        dist.barrier()

    def test_which_types_are_reduced(self):
        types = {kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}
        others = [torch.int16, torch.uint16, torch.uint32, torch.uint64]
        reduced = {*INTEGERS, *FLOATS, *OTHERS, *others}
        for kind in sorted(types, key=str):
            try:
                tensor = torch.empty(4, dtype=kind)
            except (NotImplementedError, RuntimeError, TypeError):
                continue  # torch itself makes none
            with self.subTest(kind):
                if kind in reduced:
                    BACKEND.allreduce([tensor.zero_()], dist.AllreduceOptions()).wait()
                    continue
                with self.assertRaisesRegex(TypeError, "cannot be reduced"):
                    BACKEND.allreduce([tensor], dist.AllreduceOptions())
        dist.barrier()

    def assertRefused(self, words, call, *arguments):
        """By one rank alone: nothing has been started where the others' next call is in order."""
        if rank() == 0:
            with self.assertRaisesRegex((RuntimeError, TypeError), words):
                call(*arguments)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.tolist(), [size()] * 3)

    def test_sizes_that_do_not_fit_are_refused(self):
        four = [torch.zeros(4) for _ in range(size())]
        short = torch.zeros(1)
        words = "has 1 elements, .* (4|4 are to fit)$"
        self.assertRefused(words, dist.reduce_scatter, short, four)
        self.assertRefused(words, dist.all_gather, four, short)
        self.assertRefused(words, BACKEND._reduce_scatter_base, torch.zeros(4), short)
        self.assertRefused(words, BACKEND._allgather_base, short, torch.zeros(4))
        self.assertRefused("own count is 1", dist.gather, short, four)
        self.assertRefused("own count is 1", dist.scatter, short, four)

    def test_of_coalesced_calls_none_begins_where_a_later_one_is_refused(self):
        world = dist.distributed_c10d._get_default_group()
        two, more = torch.zeros(2), torch.zeros(2 * size())
        bits = dist.AllreduceCoalescedOptions()
        bits.reduceOp = dist.ReduceOp.BAND
        ints = torch.zeros(2, dtype=torch.int32)
        halves = torch.zeros(2, dtype=torch.complex32)
        self.assertRefused("cannot be reduced", BACKEND.allreduce_coalesced, [two, halves])
        self.assertRefused("no meaning on", BACKEND.allreduce_coalesced, [ints, two], bits)
        self.assertRefused(
            "are to fit", world.allgather_into_tensor_coalesced, [more, two], [two, two]
        )
        rooms = [[two, torch.zeros(3)] for _ in range(size())]
        self.assertRefused("the output of its rank", BACKEND.allgather_coalesced, rooms, [two, two])
        self.assertRefused(
            "has 3 elements",
            world.reduce_scatter_tensor_coalesced,
            [two, two],
            [more, torch.zeros(3)],
        )

    def test_of_coalesced_calls_none_begins_where_buffers_of_a_later_one_overlap(self):
        world = dist.distributed_c10d._get_default_group()
        two, more, room = torch.zeros(2), torch.zeros(2 * size()), torch.zeros(2 * size() + 1)
        whole, inside = room[:-1], room[1:3]
        words = "overlap those of all ranks, 4 bytes from their start; .* at 0$"
        self.assertRefused(
            words, world.allgather_into_tensor_coalesced, [more, whole], [two, inside]
        )
        self.assertRefused(
            words, world.reduce_scatter_tensor_coalesced, [two, inside], [more, whole]
        )
        parts = [list(both) for both in zip(more.chunk(size()), whole.chunk(size()))]
        self.assertRefused(words, BACKEND.allgather_coalesced, parts, [two, inside])
        # A rank's own place is none of them.
        whole.fill_(rank())
        own = whole.chunk(size())[rank()]
        world.allgather_into_tensor_coalesced([more, whole], [two, own]).wait()
        BACKEND.allgather_coalesced(parts, [two, own]).wait()
        expected = [float(r) for r in range(size()) for _ in range(2)]
        self.assertEqual(whole.tolist(), expected)
        own = more.chunk(size())[rank()]
        world.reduce_scatter_tensor_coalesced([two, own], [whole, more.fill_(1)]).wait()
        self.assertEqual(own.tolist(), [size()] * 2)

    def test_of_coalesced_calls_none_begins_where_tensors_are_on_several_devices(self):
        with FakeTensorMode():
            elsewhere = torch.zeros(2, device="cuda")
        self.assertRefused(
            "on different devices: cpu and cuda:0",
            BACKEND.allreduce_coalesced,
            [torch.zeros(2), elsewhere],
        )

    def test_parts_that_are_not_as_many_as_ranks_are_refused(self):
        one, four = [torch.zeros(4)], torch.zeros(4)
        words = f"(for {size()} ranks|as many .* as ranks .{size()}.)"
        self.assertRefused(words, dist.all_gather, one, four)
        self.assertRefused(words, dist.reduce_scatter, four, one)
        self.assertRefused(words, dist.gather, four, one)
        self.assertRefused(words, dist.scatter, four, one)
        self.assertRefused(words, dist.all_to_all, one, one)
        self.assertRefused(words, dist.all_to_all_single, four, four, [4], [4])

    def test_all_to_all_of_sizes_that_do_not_fit_is_refused(self):
        mine = torch.arange(2.0 * size())
        for elements in (size(), 3 * size()):
            words = f"input has {2 * size()} elements and the output {elements}; .*split sizes"
            with self.assertRaisesRegex(RuntimeError, words):
                dist.all_to_all_single(torch.empty(elements), mine)
        for split in (-1, 2 * size() + 1, 2**62):
            splits = [split] * size()
            with self.assertRaisesRegex(RuntimeError, f"a split size of the input is {split}"):
                dist.all_to_all_single(mine.clone(), mine, [2] * size(), splits)
        # What it gives itself and takes from itself.
        for given, taken in [(1, 2), (2, 1)]:
            outs = [torch.empty(taken if r == rank() else given) for r in range(size())]
            with self.assertRaisesRegex(RuntimeError, f"gives itself {given} .* takes {taken}"):
                dist.all_to_all(outs, [torch.ones(given)] * size())
        dist.barrier()


if __name__ == "__main__":
    main()
