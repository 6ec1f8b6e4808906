"""What each collective gives, out of place, in place and asynchronously."""

import math

import numpy as np
import pytest

import unisono


def mine(comm, count=4, dtype=np.float64):
    return (np.arange(count) + 10 * comm.rank).astype(dtype)


def everyone(comm, count=4, dtype=np.float64):
    return [(np.arange(count) + 10 * rank).astype(dtype) for rank in range(comm.size)]


def blocks(comm, count=2):
    """A vector of a block for each rank."""
    return np.arange(comm.size * count, dtype=np.int64) + 100 * comm.rank


def all_blocks(comm, count=2):
    return [np.arange(comm.size * count, dtype=np.int64) + 100 * r for r in range(comm.size)]


NUMBERS = [
    np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, np.float32, np.float64, np.complex64, np.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS)
def test_all_reduce_of_each_type(comm, dtype):
    out = np.zeros(4, dtype)
    got = comm.all_reduce(mine(comm, dtype=dtype), out)
    assert got is out
    np.testing.assert_array_equal(out, sum(everyone(comm, dtype=dtype)))


@pytest.mark.parametrize(
    "op, expected",
    [
        (unisono.SUM, np.add),
        (unisono.PRODUCT, np.multiply),
        (unisono.MIN, np.minimum),
        (unisono.MAX, np.maximum),
        (unisono.BIT_AND, np.bitwise_and),
        (unisono.BIT_OR, np.bitwise_or),
        (unisono.BIT_XOR, np.bitwise_xor),
        (unisono.LOGICAL_AND, np.logical_and),
        (unisono.LOGICAL_OR, np.logical_or),
        (unisono.LOGICAL_XOR, np.logical_xor),
    ],
)
def test_each_operator(comm, op, expected):
    data = mine(comm, dtype=np.int32)
    comm.all_reduce(data, op=op)
    result = everyone(comm, dtype=np.int32)[0]
    for other in everyone(comm, dtype=np.int32)[1:]:
        result = expected(result, other)
    np.testing.assert_array_equal(data, result.astype(np.int32))


def test_average_and_premultiplied_sum(comm):
    data = mine(comm)
    np.testing.assert_allclose(
        comm.all_reduce(data, np.empty(4), unisono.AVERAGE), np.mean(everyone(comm), axis=0)
    )
    np.testing.assert_allclose(
        comm.all_reduce(data, np.empty(4), unisono.premultiplied_sum(0.5)),
        0.5 * sum(everyone(comm)),
    )


def test_bool(comm):
    data = np.array([True, comm.rank == 0, False])
    assert comm.all_reduce(data, op=unisono.LOGICAL_OR).tolist() == [True, True, False]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats(comm, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    data = np.full(5, comm.rank + 1, getattr(ml_dtypes, name))
    comm.all_reduce(data)
    assert (data == sum(range(1, comm.size + 1))).all()
    everything = np.zeros(5 * comm.size, data.dtype)
    comm.all_gather(data, everything)
    assert (everything == data[0]).all()


@pytest.mark.parametrize("in_place", [False, True])
def test_reduce(comm, in_place):
    root = comm.size - 1
    data = mine(comm)
    out = None if in_place or comm.rank != root else np.empty(4)
    got = comm.reduce(data, out, root=root)
    if comm.rank == root:
        np.testing.assert_array_equal(got, sum(everyone(comm)))
    else:
        np.testing.assert_array_equal(data, mine(comm))


def test_scan_and_exscan(comm):
    out = comm.scan(mine(comm), np.empty(4))
    np.testing.assert_array_equal(out, sum(everyone(comm)[: comm.rank + 1]))
    out = comm.exscan(mine(comm), np.full(4, -1.0))
    below = sum(everyone(comm)[: comm.rank]) if comm.rank > 0 else np.full(4, -1.0)
    np.testing.assert_array_equal(out, below)


def test_broadcast(comm):
    data = mine(comm)
    assert comm.broadcast(data, root=1) is data
    np.testing.assert_array_equal(data, everyone(comm)[1])


def test_all_gather(comm):
    together = np.concatenate(everyone(comm))
    np.testing.assert_array_equal(comm.all_gather(mine(comm), np.empty(4 * comm.size)), together)
    rows = np.zeros((comm.size, 4))  # in place, with two dimensions
    rows[comm.rank] = mine(comm)
    comm.all_gather(rows)
    np.testing.assert_array_equal(rows.ravel(), together)


def test_all_gather_v(comm):
    counts = [rank + 1 for rank in range(comm.size)]
    expected = np.concatenate([np.full(rank + 1, rank) for rank in range(comm.size)])
    data = np.full(comm.rank + 1, comm.rank)
    out = np.empty(sum(counts), data.dtype)
    np.testing.assert_array_equal(comm.all_gather_v(data, out, counts), expected)

    apart = np.full(3 * comm.size, -1)
    places = 3 * np.arange(comm.size)  # an array of them
    comm.all_gather_v(data, np.full(3 * comm.size + 1, -1), counts, places)
    apart[places[comm.rank] : places[comm.rank] + comm.rank + 1] = comm.rank
    comm.all_gather_v(apart, None, counts, places)
    for rank in range(comm.size):
        block = apart[3 * rank : 3 * rank + 3].tolist()
        assert block == [rank] * (rank + 1) + [-1] * (2 - rank)


def test_reduce_scatter(comm):
    total = sum(all_blocks(comm))
    own = total[2 * comm.rank : 2 * comm.rank + 2]
    np.testing.assert_array_equal(comm.reduce_scatter(blocks(comm), np.empty(2, np.int64)), own)
    data = comm.reduce_scatter(blocks(comm))
    np.testing.assert_array_equal(data[2 * comm.rank : 2 * comm.rank + 2], own)


def test_reduce_scatter_v(comm):
    counts = [rank + 1 for rank in range(comm.size)]
    data = np.arange(sum(counts))
    first = sum(counts[: comm.rank])
    out = comm.reduce_scatter_v(data, np.empty(comm.rank + 1, data.dtype), counts)
    np.testing.assert_array_equal(out, comm.size * data[first : first + comm.rank + 1])


def test_gather_and_scatter(comm):
    root = 1
    together = np.concatenate(everyone(comm))
    out = np.empty(4 * comm.size) if comm.rank == root else None
    got = comm.gather(mine(comm), out, root)
    if comm.rank == root:
        np.testing.assert_array_equal(got, together)
    back = np.empty(4)
    comm.scatter(out, back, root)
    np.testing.assert_array_equal(back, mine(comm))
    # In place: root's array has all blocks, the others' is their own.
    data = together.copy() if comm.rank == root else np.empty(4)
    comm.scatter(data, root=root)
    own = data[4 * root : 4 * root + 4] if comm.rank == root else data
    np.testing.assert_array_equal(own, mine(comm))
    comm.gather(data, root=root)
    if comm.rank == root:
        np.testing.assert_array_equal(data, together)


def test_gather_v_and_scatter_v(comm):
    counts = [rank + 1 for rank in range(comm.size)]
    data = np.full(comm.rank + 1, comm.rank, np.int16)
    expected = np.concatenate([np.full(rank + 1, rank, np.int16) for rank in range(comm.size)])
    out = np.empty(sum(counts), np.int16) if comm.rank == 0 else None
    comm.gather_v(data, out, counts if comm.rank == 0 else None)
    if comm.rank == 0:
        np.testing.assert_array_equal(out, expected)
    back = np.zeros_like(data)
    comm.scatter_v(out, back, counts if comm.rank == 0 else None)
    np.testing.assert_array_equal(back, data)


def test_all_to_all(comm):
    def parts():
        return np.array([10 * comm.rank + to for to in range(comm.size)])

    expected = [10 * source + comm.rank for source in range(comm.size)]
    assert comm.all_to_all(parts(), np.empty(comm.size, parts().dtype)).tolist() == expected
    assert comm.all_to_all(parts()).tolist() == expected


def test_all_to_all_v(comm):
    """Rank r sends r + 1 elements to each rank."""
    n = comm.rank + 1
    data = np.full(n * comm.size, comm.rank)
    counts = [rank + 1 for rank in range(comm.size)]
    out = np.empty(sum(counts), data.dtype)
    comm.all_to_all_v(data, out, [n] * comm.size, counts)
    assert out.tolist() == [rank for rank in range(comm.size) for _ in range(rank + 1)]


def test_barrier(comm):
    assert comm.barrier() is None


def test_canonical_order(comm):
    """The pairwise tree over the ranks, bit by bit."""
    data = [np.random.default_rng(r).random(10001).astype(np.float32) for r in range(comm.size)]

    def tree(first, end):
        if end - first == 1:
            return data[first]
        middle = first + (1 << (end - first - 1).bit_length() - 1)
        return tree(first, middle) + tree(middle, end)

    out = comm.all_reduce(data[comm.rank], np.empty_like(data[0]), order="canonical")
    np.testing.assert_array_equal(out, tree(0, comm.size))


def test_exact_order(comm):
    """What math.fsum gives, in whatever order, rounded once more."""
    rng = np.random.default_rng(4)
    exponents = rng.integers(0, 50, (comm.size, 1000))
    data = np.ldexp(rng.random((comm.size, 1000)) - 0.5, exponents).astype(np.float32)
    expected = np.array([math.fsum(column) for column in data.T.astype(np.float64)], np.float32)
    for shift in (0, 1):
        mine = data[(comm.rank + shift) % comm.size]
        out = comm.all_reduce(mine, np.empty_like(mine), order="exact")
        np.testing.assert_array_equal(out, expected)


def test_addends_however_they_are_dealt_out(comm):
    rng = np.random.default_rng(5)
    data = (rng.random((7, 500)) - 0.5).astype(np.float32)
    deals = ([data] + [[]] * (comm.size - 1), [data[rank :: comm.size] for rank in range(comm.size)])
    out = [
        comm.all_reduce_addends(deal[comm.rank], np.empty(500, np.float32), order="exact")
        for deal in deals
    ]
    np.testing.assert_array_equal(out[0], out[1])
    np.testing.assert_allclose(out[0], data.sum(0, dtype=np.float64), rtol=1e-6, atol=1e-7)
    # What one rank gives wrong the others hear of.
    wrong = np.empty(3 if comm.rank == comm.size - 1 else 500, np.float32)
    with pytest.raises(unisono.InvalidArgument) as raised:
        comm.all_reduce_addends([wrong], np.empty(500, np.float32))
    if comm.rank != comm.size - 1:
        assert raised.value.rank == comm.size - 1


def test_addends_that_one_rank_cannot_lend(comm):
    last = comm.size - 1
    ones, out = np.ones(500, np.float32), np.empty(500, np.float32)
    read_only = np.empty(500, np.float32)
    read_only.flags.writeable = False

    def failing():
        yield ones
        raise KeyError("mine")

    for addends, target, options, raises in [
        ([np.ones(500)], out, {}, unisono.InvalidArgument),  # of another type
        ([ones, np.ones(1000, np.float32)[::2]], out, {}, unisono.InvalidArgument),
        (["no array"], out, {}, unisono.InvalidArgument),
        ([ones], read_only, {}, unisono.InvalidArgument),
        ([ones], out, {"timeout": 0}, unisono.InvalidArgument),
        (failing(), out, {}, KeyError),
    ]:
        if comm.rank == last:
            with pytest.raises(raises):
                comm.all_reduce_addends(addends, target, **options)
        else:
            with pytest.raises(unisono.InvalidArgument) as raised:
                comm.all_reduce_addends([ones], out, timeout=5)
            assert raised.value.rank == last
    assert comm.all_reduce_addends([ones], out)[0] == comm.size


def test_algorithms_by_name(comm):
    data = np.ones(1000)
    assert comm.all_reduce(data, algorithm="ring", timeout=10)[0] == comm.size


def test_elements_without_a_type_are_moved_as_bytes(comm):
    point = np.dtype([("x", "f4"), ("id", "i8")])
    data = np.array([(comm.rank, -comm.rank), (1, 2)], point)
    out = np.zeros(2 * comm.size, point)
    comm.all_gather(data, out)
    assert out["id"][::2].tolist() == [-rank for rank in range(comm.size)]
    days = np.array(["2024-01-01"], "M8[D]") + np.timedelta64(comm.rank, "D")
    counts = [1] * comm.size
    got = comm.all_gather_v(days, np.zeros(comm.size, days.dtype), counts)
    assert got[-1] - got[0] == np.timedelta64(comm.size - 1, "D")
    with pytest.raises(unisono.InvalidArgument, match="cannot be reduced"):
        comm.all_reduce(data)


def test_each_call_has_an_async_form(comm):
    n, size = 2, comm.size
    full = np.ones(n * size)
    block = np.ones(n)
    counts = [n] * size
    requests = [
        comm.all_reduce_async(block.copy()),
        comm.reduce_async(block.copy()),
        comm.broadcast_async(block.copy()),
        comm.all_gather_async(block, full.copy()),
        comm.all_gather_v_async(block, full.copy(), counts),
        comm.reduce_scatter_async(full, block.copy()),
        comm.reduce_scatter_v_async(full, block.copy(), counts),
        comm.gather_async(block, full.copy()),
        comm.gather_v_async(block, full.copy(), counts),
        comm.scatter_async(full, block.copy()),
        comm.scatter_v_async(full, block.copy(), counts),
        comm.all_to_all_async(full, full.copy()),
        comm.all_to_all_v_async(full, full.copy(), counts, counts),
        comm.barrier_async(),
        comm.scan_async(block.copy()),
        comm.exscan_async(block.copy()),
        comm.send_async(block, comm.rank),
        comm.receive_async(block.copy(), comm.rank),
    ]
    results = unisono.wait_all(requests)
    assert results[0].tolist() == [size, size]
    assert results[5].tolist() == [size, size]
    assert results[-1] == unisono.Received(comm.rank, 0, n)
    names = [name for name in dir(comm) if name.endswith("_async")]
    assert len(names) == len(requests)
