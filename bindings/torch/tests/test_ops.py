"""The operators of unisono_torch.ops, against what torch makes of the same data on one rank."""

import os
import threading
import time
import unittest

import torch
import torch.distributed as dist

import ranks
from ranks import rank, size
from unisono_torch import ops

GLOO = ranks.start()
GROUP = ops.group()

FLOATS = [torch.bfloat16, torch.float16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
COUNTS = [0, 1, 7, 4096, 100_000]


def every(make):
    """What `make` gives on each rank."""
    return [make(r) for r in range(size())]


def values(r, count, dtype):
    """Small integers, whose sums are exact in every type."""
    return (torch.arange(count) % 5 + r).to(dtype)


def summed(parts):
    return sum(part.to(torch.float64) for part in parts).to(parts[0].dtype)


class Ops(unittest.TestCase):
    def assertEqualTensors(self, got, wanted):
        self.assertEqual(got.dtype, wanted.dtype)
        self.assertTrue(torch.equal(got, wanted), f"{got} is not {wanted}")

    def test_all_reduce(self):
        for dtype in FLOATS + INTEGERS:
            for count in COUNTS:
                data = values(rank(), count, dtype)
                self.assertIs(ops.all_reduce_(data), data)
                self.assertEqualTensors(data, summed(every(lambda r: values(r, count, dtype))))

    def test_operators(self):
        of_all = torch.stack(every(lambda r: values(r, 9, torch.int32)))
        for op, wanted in [
            (ops.SUM, of_all.sum(0)),
            (ops.PRODUCT, of_all.prod(0)),
            (ops.MIN, of_all.amin(0)),
            (ops.MAX, of_all.amax(0)),
            (ops.AVERAGE, of_all.sum(0) // size()),
        ]:
            got = ops.all_reduce_(values(rank(), 9, torch.int32), op)
            self.assertEqualTensors(got, wanted.to(torch.int32))

    def test_reduce_scatter(self):
        for dtype in FLOATS + INTEGERS:
            whole = summed(every(lambda r: values(r, 6 * size(), dtype)))
            got = torch.empty(6, dtype=dtype)
            ops.reduce_scatter_tensor(got, values(rank(), 6 * size(), dtype))
            self.assertEqualTensors(got, whole.chunk(size())[rank()])

    def test_gathers_move_every_type(self):
        for dtype in FLOATS + INTEGERS + [torch.bool, torch.complex64]:
            for count in COUNTS:
                wanted = torch.cat(every(lambda r: values(r, count, dtype)))
                mine = values(rank(), count, dtype)
                got = ops.all_gather_into_tensor(torch.empty_like(wanted), mine)
                self.assertEqualTensors(got, wanted)
                for root in (0, size() - 1):
                    output = torch.empty_like(wanted) if rank() == root else None
                    got = ops.gather_into_tensor(output, mine, root)
                    if rank() == root:
                        self.assertEqualTensors(got, wanted)

    def test_all_gather_along_a_dimension(self):
        def part(r):
            return values(r, 24, torch.float32).view(2, 3, 4).transpose(0, 2)

        for dim in (0, 1, 2, -1):
            wanted = torch.cat(every(part), dim)
            self.assertEqualTensors(ops.all_gather(part(rank()), dim), wanted)

    def test_messages_and_broadcast(self):
        for count in COUNTS:
            data = values(rank(), count, torch.bfloat16)
            ops.broadcast_(data, size() - 1)
            self.assertEqualTensors(data, values(size() - 1, count, torch.bfloat16))
            if rank() == 0:
                ops.send(data + 1, 1, tag=3)
            elif rank() == 1:
                got = ops.receive_(torch.empty_like(data), ops.ANY_RANK, tag=3)
                self.assertEqualTensors(got, data + 1)
            ops.barrier()

    def test_groups_of_every_kind(self):
        store = dist.PrefixStore("alone", dist.distributed_c10d._get_default_store())
        pair = dist.new_group([0, 1], backend="gloo")
        groups = [ops.group(GLOO), ops.join(store, rank(), size())]
        if rank() < 2:
            groups.append(ops.group(pair))
        for group in groups:
            got = ops.all_reduce_(torch.ones(3), group=group)
            self.assertEqualTensors(got, torch.full((3,), float(group.size)))
            self.assertIn(f"rank {group.rank} of {group.size}", repr(group))
        for group in groups:
            group.close()
            with self.assertRaisesRegex(RuntimeError, "closed"):
                ops.all_reduce_(torch.ones(3), group=group)
        self.assertIs(ops.default_group(), GROUP)

    def descriptors_after(self, turns, use):
        """The most that were open after the turns of a group that `use` closes."""
        most = 0
        for _ in range(turns):
            use(ops.group(GLOO))
            most = max(most, len(os.listdir("/proc/self/fd")))
        return most

    def test_groups_that_are_closed_give_everything_back(self):
        def use(group):
            ops.barrier(group)
            group.close()

        before = self.descriptors_after(3, use)
        self.assertLess(self.descriptors_after(30, use), before + 30)

    def test_groups_that_are_closed_during_a_call_give_everything_back_after_it(self):
        said = []

        def receive(group):
            try:
                ops.receive_(torch.empty(1), ops.ANY_RANK, group=group)
            except RuntimeError as error:
                said.append(str(error))

        def use(group):
            thread = threading.Thread(target=receive, args=[group])
            thread.start()
            time.sleep(0.01)  # in which the call begins; before it does, it says the same
            group.close()
            thread.join()

        before = self.descriptors_after(3, use)
        self.assertLess(self.descriptors_after(30, use), before + 30)
        self.assertEqual(len(said), 33)
        for text in said:
            self.assertRegex(text, "closed|left")

    def test_the_first_group_that_is_left_becomes_the_default(self):
        self.addCleanup(ops.set_default_group, GROUP)
        second, third = ops.group(), ops.group()
        third.close()  # which was not the default
        self.assertIs(ops.default_group(), GROUP)
        ops.set_default_group(second)
        second.close()
        self.assertIs(ops.default_group(), GROUP)
        ops.barrier()

    def test_what_is_wrong_with_a_tensor_is_said_at_once(self):
        matrix = torch.ones(4, 4)
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            ops.all_reduce_(matrix.t()[:, :2])
        with self.assertRaisesRegex(ValueError, "16 elements are not"):
            ops.all_gather_into_tensor(matrix, torch.ones(size() * 16))
        with self.assertRaisesRegex(TypeError, "differ in type"):
            ops.all_gather_into_tensor(torch.ones(size()), torch.ones(1).int())
        with self.assertRaisesRegex(NotImplementedError, "SparseCPU"):
            ops.all_reduce_(matrix.to_sparse())
        with self.assertRaisesRegex(TypeError, "cannot be reduced"):
            ops.all_reduce_(torch.empty(4, dtype=torch.bits8))
        for root in (size(), -1):
            with self.assertRaisesRegex(ValueError, f"root {root} is not a rank"):
                ops.broadcast_(torch.ones(1), root)
        with self.assertRaisesRegex(ValueError, "bit_and"):
            ops.all_reduce_(torch.ones(1), ops.BIT_AND)
        with self.assertRaisesRegex(ValueError, "operator"):
            ops.all_reduce_(matrix, op=99)
        with self.assertRaisesRegex(TypeError, "not one of"):
            torch.ops.unisono.all_reduce_(matrix, torch.ones(2))
        if rank() == 0:
            with self.assertRaisesRegex(ValueError, "root needs an output"):
                ops.gather_into_tensor(None, matrix)
        self.assertEqual(ops.all_reduce_(torch.ones(1)).item(), size())

    def test_numbers_that_the_library_cannot_have_are_refused(self):
        data, large = torch.ones(4), 1 << 32
        for call in [
            lambda: ops.all_reduce_(data, op=large),
            lambda: ops.reduce_scatter_tensor(data, torch.ones(4 * size()), op=-large),
            lambda: ops.broadcast_(data, root=large),
            lambda: ops.gather_into_tensor(data, data, root=large + 1),
            lambda: ops.send(data, large, tag=1),
            lambda: ops.send(data, 0, tag=-1),
            lambda: ops.receive_(data, 0, tag=large),
            lambda: ops.receive_(data, -large),
        ]:
            with self.assertRaisesRegex(ValueError, "accepted are"):
                call()
        for handle in (-1, -4097, 1 << 40):
            with self.assertRaisesRegex(ValueError, "no group's handle"):
                torch.ops.unisono.barrier(torch.tensor([handle]))
            with self.assertRaisesRegex(ValueError, "no group's handle"):
                ops._adapter.group_close(handle)
        ops.barrier()

    def test_tensors_that_require_grad_are_refused(self):
        leaf = torch.ones(size(), requires_grad=True)
        for call in [
            lambda: ops.all_reduce_(leaf * 2),
            lambda: ops.all_gather(leaf),
            lambda: ops.reduce_scatter_tensor(torch.ones(1), leaf),
            lambda: ops.broadcast_(leaf),
            lambda: ops.send(leaf, 0),
        ]:
            with self.assertRaisesRegex(RuntimeError, "there are no gradients"):
                call()
        with torch.no_grad():
            self.assertEqual(ops.all_reduce_(leaf * 2)[0].item(), 2 * size())
        self.assertEqual(ops.all_reduce_(leaf.detach().clone())[0].item(), size())

    def test_all_gather_checks_its_dimension_and_its_group(self):
        for tensor, dim in [(torch.ones(2, 3), 2), (torch.ones(2, 3), -3), (torch.tensor(1.0), -1)]:
            with self.assertRaisesRegex(IndexError, "all_gather"):
                ops.all_gather(tensor, dim)
        ops.set_default_group(None)
        try:
            with self.assertRaisesRegex(RuntimeError, "there is no group yet"):
                ops.all_gather(torch.ones(2))
        finally:
            ops.set_default_group(GROUP)

    def test_a_rank_outside_of_a_process_group_makes_no_group(self):
        alone = dist.new_group([0], backend="gloo")
        if rank() == 0:
            ops.group(alone).close()
        else:
            with self.assertRaisesRegex(ValueError, "not in the process group"):
                ops.group(alone)
        ops.barrier()

    def test_inference_mode_and_other_threads(self):
        with torch.inference_mode():
            self.assertEqual(ops.all_reduce_(torch.ones(2))[0].item(), size())
        got = []
        thread = threading.Thread(target=lambda: got.append(ops.all_reduce_(torch.ones(2))))
        thread.start()
        thread.join()
        self.assertEqual(got[0][0].item(), size())


def layer(x, weight):
    """A layer of tensor parallelism, and calls whose results some ranks do not use."""
    hidden = ops.all_reduce_(x @ weight)
    ops.gather_into_tensor(hidden.new_empty(size(), *hidden.shape) if rank() == 0 else None, hidden + 1)
    if rank() == 0:
        ops.send(hidden * 2, 1)
    elif rank() == 1:
        ops.receive_(torch.empty_like(hidden), 0)
    ops.barrier()
    return ops.all_gather(torch.relu(hidden), dim=-1) + ops.broadcast_(hidden.sum())


class Compiled(unittest.TestCase):
    # Inductor compiles for half a minute.
    BACKENDS = ["eager", "aot_eager"] + ["inductor"] * (os.environ.get("TEST_FULL") == "1")

    def test_a_layer_without_graph_breaks(self):
        weight = values(rank(), 64, torch.float32).view(8, 8)
        for backend in self.BACKENDS:
            torch._dynamo.reset()
            compiled = torch.compile(layer, backend=backend, fullgraph=True)
            for rows in (2, 3):
                x = values(rank(), rows * 8, torch.float32).view(rows, 8)
                self.assertTrue(torch.equal(compiled(x, weight), layer(x, weight)), backend)

    def test_the_operators_keep_torchs_rules(self):
        group = GROUP.handle
        tests = [
            (torch.ops.unisono.all_reduce_, (torch.ones(4), group)),
            (torch.ops.unisono.all_gather_into_tensor, (torch.ones(4 * size()), torch.ones(4), group)),
            (torch.ops.unisono.barrier, (group,)),
        ]
        for op, arguments in tests:
            torch.library.opcheck(op, arguments, test_utils=("test_schema", "test_faketensor"))


if __name__ == "__main__":
    ranks.main()
