"""The group in Python beside the adapter: the same calls have the same results, to the bit."""

import datetime
import gc
import os
import types
import unittest
import weakref
from unittest import mock

import torch
import torch.distributed as dist

import unisono_torch
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


class BrokenStore:
    def set(self, _key, _value):
        raise KeyError("the store is broken")

    def check(self, _keys):
        raise KeyError("the store is broken")


class InPython(unittest.TestCase):
    def assertUsable(self):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=PYTHON)
        self.assertEqual(tensor.tolist(), [size()] * 3)

    def assertRefused(self, words, call, *arguments):
        """By one rank alone: nothing has been started where the others' next call is in order."""
        if rank() == 0:
            with self.assertRaisesRegex(RuntimeError, words):
                call(*arguments, group=PYTHON)
        self.assertUsable()

    def test_sizes_that_do_not_fit(self):
        four = [torch.zeros(4) for _ in range(size())]
        short = torch.arange(8.0)[:1]
        words = r"has 1 elements, and the call needs (4|\d)"
        self.assertRefused(words, dist.reduce_scatter, short, four)
        self.assertRefused(words, dist.all_gather, four, short)
        self.assertRefused(words, dist.reduce_scatter_tensor, torch.zeros(4), short)
        self.assertRefused(words, dist.all_gather_into_tensor, short, torch.zeros(4))

    def test_parts_that_are_not_as_many_as_ranks(self):
        words = f"has 1 parts for {size()} ranks"
        one, four = [torch.zeros(4)], torch.zeros(4)
        self.assertRefused(words, dist.all_gather, one, four)
        self.assertRefused(words, dist.reduce_scatter, four, one)
        self.assertRefused(words, dist.gather, four, one)
        self.assertRefused(words, dist.scatter, four, one)
        self.assertRefused(words, dist.all_to_all, one, one)
        self.assertRefused(words, dist.all_to_all_single, four, four, [4], [4])
        splits = [5, -1] + [0] * (size() - 2)
        self.assertRefused("negative size", dist.all_to_all_single, four, four, splits, splits)

    def test_types_that_differ(self):
        ints, ones = torch.zeros(size(), dtype=torch.int32), torch.ones(size())
        opts = dist.ReduceScatterOptions()
        # torch has answers of its own for some of these, so the group is asked.
        for call in (
            lambda group: group.reduce_scatter([ints[:1]], [list(ones.split(1))], opts),
            lambda group: group._reduce_scatter_base(ints[:1], ones, opts),
            lambda group: group.alltoall_base(ints, ones, [], []),
        ):
            self.assertRefused("differ in type", call)

    def test_several_tensors_are_checked_before_any_is_started(self):
        tensors = [torch.ones(1500, 1500).t(), torch.ones(2, dtype=torch.uint16)]
        if rank() == 0:
            with self.assertRaisesRegex(TypeError, "cannot be reduced"):
                PYTHON.allreduce_coalesced(tensors)
        self.assertUsable()

    def test_what_was_started_before_a_failure_keeps_its_memory(self):
        start = _pure_python._Started._start
        seen = []

        def fail_at_second(started, call):
            if seen:
                raise RuntimeError("the second")
            seen.append(start(started, call))
            return seen[0]

        _pure_python._end_finished(PYTHON._works)
        tensors = [torch.ones(1500, 1500).t(), torch.ones(2)]
        # It stays noted, also where the other rank was so quick that it is over.
        noted = mock.patch.object(_pure_python, "_end_finished", lambda works: None)
        failing = mock.patch.object(_pure_python._Started, "_start", fail_at_second)
        with noted, failing, self.assertRaisesRegex(RuntimeError, "the second"):
            PYTHON.allreduce_coalesced(tensors)
        (kept,) = PYTHON._works
        kept.wait()
        self.assertEqual(tensors[0][0, 0].item(), 1)  # a call that failed puts nothing in place
        self.assertUsable()

    def test_views_that_change_values_are_sent_as_they_read(self):
        mine, got = torch._neg_view(torch.ones(2)), torch.zeros(2)
        every = [torch.zeros(2) for _ in range(size())]
        dist.all_gather(every, mine, group=PYTHON)
        self.assertEqual(every[0].tolist(), [-1, -1])
        if rank() == 0:
            dist.send(mine, 1, group=PYTHON)
        elif rank() == 1:
            dist.recv(got, 0, group=PYTHON)
            self.assertEqual(got.tolist(), [-1, -1])

    def test_what_a_store_raises_is_raised(self):
        with self.assertRaisesRegex(KeyError, "the store is broken"):
            _pure_python._join(BrokenStore(), rank(), size(), datetime.timedelta(seconds=1))

    def test_a_wait_that_is_limited(self):
        got = torch.zeros(1)
        if rank() == 0:
            work = dist.irecv(got, 1, group=PYTHON)
            with self.assertRaisesRegex(dist.DistBackendError, "timed out: wait.. gave it 50 ms"):
                work.wait(datetime.timedelta(milliseconds=50))
            self.assertFalse(work.is_completed())
        dist.barrier()
        if rank() == 1:
            dist.send(torch.ones(1), 0, group=PYTHON)
        if rank() == 0:
            work.wait(datetime.timedelta(seconds=60))
            self.assertEqual(got.item(), 1)

    def test_a_group_that_has_gone_is_destroyed(self):
        group = dist.new_group(backend=NAME)
        works, comm = group._works, group.comm
        work = dist.irecv(torch.zeros(1), (rank() + 1) % size(), group=group)
        destroyed = []
        destroy = _pure_python._library().unisono_comm_destroy
        with mock.patch.object(_pure_python._library(), "unisono_comm_destroy", destroyed.append):
            if os.fork() == 0:
                _pure_python._destroy(comm, works, os.getppid())
                os._exit(len(destroyed))
            self.assertEqual(os.wait()[1], 0)
        dist.destroy_process_group(group)
        with mock.patch.object(
            _pure_python._library(),
            "unisono_comm_destroy",
            lambda each: (destroyed.append(each), destroy(each)),
        ):
            del group
            gc.collect()
        self.assertEqual(destroyed, [comm])
        self.assertFalse(works)
        with self.assertRaises(dist.DistBackendError):
            work.wait()

    def test_a_work_lives_until_it_was_waited_for(self):
        # C++ that calls wait() on one without its Python half would wait for ever.
        work = weakref.ref(PYTHON.allreduce([torch.ones(1)], dist.AllreduceOptions()))
        for _ in range(3):
            dist.barrier(group=PYTHON)
        self.assertIsNotNone(work())
        self.assertTrue(work().wait())
        gc.collect()
        self.assertIsNone(work())

    def test_reconfigure_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "enable_reconfigure needs the compiled adapter"):
            unisono_torch._create_in_python(types.SimpleNamespace(enable_reconfigure=True))

    def test_options_are_as_long_as_those_of_the_header(self):
        options = _pure_python._InitOptions()
        self.assertEqual((options.size, _pure_python._InitOptions.order.offset), (64, 56))


if __name__ == "__main__":
    main()
