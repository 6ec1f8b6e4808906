"""Objects of any kind and size."""

import resource

import numpy as np
import pytest

import unisono


def thing(rank):
    return {"rank": rank, "text": "é" * rank, "array": np.full((rank + 1, 3), rank), "none": None}


def check(objects):
    for rank, got in enumerate(objects):
        assert got["rank"] == rank and got["text"] == "é" * rank
        np.testing.assert_array_equal(got["array"], thing(rank)["array"])


def test_all_gather_objects(comm):
    check(comm.all_gather_objects(thing(comm.rank)))


def test_gather_objects(comm):
    objects = comm.gather_objects(thing(comm.rank), root=1)
    if comm.rank == 1:
        check(objects)
    else:
        assert objects is None


def test_broadcast_object(comm):
    given = thing(2) if comm.rank == 0 else None
    got = comm.broadcast_object(given)
    np.testing.assert_array_equal(got["array"], thing(2)["array"])
    if comm.rank == 0:
        assert got is given


def test_scatter_objects(comm):
    objects = [thing(rank) for rank in range(comm.size)] if comm.rank == 0 else None
    got = comm.scatter_objects(objects)
    assert got["rank"] == comm.rank
    np.testing.assert_array_equal(got["array"], thing(comm.rank)["array"])
    got["array"][:] = 5  # writable


def test_arrays_come_without_a_copy_and_as_they_were(comm):
    frozen = np.arange(1000)
    frozen.flags.writeable = False
    for got, locked in comm.all_gather_objects((np.arange(1000.0), frozen)):
        assert got.flags.writeable and not got.flags.owndata  # it lies in what was received
        assert got.ctypes.data % 16 == 0
        assert not locked.flags.writeable
        np.testing.assert_array_equal(locked, frozen)


def test_large_objects_through_little_memory(comm):
    data = np.random.default_rng(comm.rank).integers(0, 255, 5_000_003, np.uint8)
    objects = comm.gather_objects([data, data[:17].copy()], staging_bytes=64 << 10)
    if comm.rank == 0:
        for rank, (whole, head) in enumerate(objects):
            expected = np.random.default_rng(rank).integers(0, 255, 5_000_003, np.uint8)
            np.testing.assert_array_equal(whole, expected)
            np.testing.assert_array_equal(head, expected[:17])


def test_many_buffers(comm):
    parts = [np.full(i % 7, i) for i in range(500)]
    for got in comm.all_gather_objects(parts, staging_bytes=1000):
        assert all((a == b).all() and a.shape == b.shape for a, b in zip(got, parts))


def test_small_and_empty_objects(comm):
    assert comm.all_gather_objects(None) == [None] * comm.size
    assert comm.all_gather_objects(b"") == [b""] * comm.size


def test_size_limit(comm):
    with pytest.raises(unisono.OutOfResources) as caught:
        comm.all_gather_objects(b"x" * (5000 if comm.rank == 1 else 1), size_limit=1000)
    assert caught.value.rank == 1
    assert comm.all_gather_objects(comm.rank) == list(range(comm.size))


@pytest.mark.parametrize(
    "call",
    [
        lambda comm, obj: comm.all_gather_objects(obj),
        lambda comm, obj: comm.broadcast_object(obj, root=1),
        lambda comm, obj: comm.scatter_objects([obj] * comm.size, root=1),
    ],
)
def test_objects_that_cannot_be_pickled(comm, call):
    """The rank gets what pickle says, the others an error that names the rank."""
    obj = (lambda: None) if comm.rank == 1 else 1
    with pytest.raises(Exception) as caught:
        call(comm, obj)
    if comm.rank == 1:
        assert not isinstance(caught.value, unisono.Error)
    else:
        assert isinstance(caught.value, unisono.InvalidArgument) and caught.value.rank == 1
    assert comm.all_gather_objects(comm.rank) == list(range(comm.size))


class NoWords(Exception):
    def __str__(self):
        raise ZeroDivisionError


class Unsendable:
    """Its failure has words that cannot be sent as they are."""

    def __init__(self, failure):
        self.failure = failure

    def __reduce__(self):
        raise self.failure


@pytest.mark.parametrize("failure", [ValueError("\udc80"), NoWords()])
def test_failures_whose_words_cannot_be_sent(comm, failure):
    with pytest.raises(Exception) as caught:
        comm.all_gather_objects(Unsendable(failure) if comm.rank == 1 else 1)
    if comm.rank == 1:
        assert caught.value is failure
    else:
        assert isinstance(caught.value, unisono.InvalidArgument) and caught.value.rank == 1
    assert comm.all_gather_objects(comm.rank) == list(range(comm.size))


class Unreadable:
    def __reduce__(self):
        return (int, ("not a number",))


def test_objects_that_cannot_be_unpickled(comm):
    with pytest.raises(unisono.InvalidArgument, match="ValueError") as caught:
        comm.all_gather_objects(Unreadable() if comm.rank == 1 else 1)
    assert caught.value.rank == 1


def test_objects_that_are_cut_short(comm):
    if comm.rank == 1:
        with pytest.raises(unisono.ProtocolViolated) as caught:
            unisono._core.all_gather_objects(comm._member, [], 0, 0, None)
    else:
        with pytest.raises(unisono.ProtocolViolated) as caught:
            comm.all_gather_objects(1)
    assert caught.value.rank == 1


def test_scattered_objects_that_the_root_has_no_memory_to_copy(comm):
    big = np.ones(150 << 20, np.uint8)
    with open("/proc/self/statm") as pages:
        used = int(pages.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    if comm.rank == 0:
        resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), before[1]))
    try:
        with pytest.raises(MemoryError if comm.rank == 0 else unisono.InvalidArgument) as caught:
            comm.scatter_objects([big] * comm.size)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert comm.rank == 0 or caught.value.rank == 0
    assert comm.all_gather_objects(comm.rank) == list(range(comm.size))


def test_scattered_arrays(comm):
    assert comm.scatter_objects(np.arange(comm.size) if comm.rank == 0 else None) == comm.rank


def test_scattered_things_that_are_no_list(comm):
    with pytest.raises(TypeError if comm.rank == 0 else unisono.InvalidArgument):
        comm.scatter_objects(5 if comm.rank == 0 else None)
    assert comm.all_gather_objects(comm.rank) == list(range(comm.size))


def test_wrong_roots_and_numbers(comm):
    with pytest.raises(unisono.InvalidArgument):
        comm.gather_objects(1, root=comm.size)
    with pytest.raises(unisono.InvalidArgument):
        comm.scatter_objects([1] * (comm.size + 1) if comm.rank == 0 else None)
    assert comm.broadcast_object(comm.rank) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": -1},
        {"timeout": "soon"},
        {"staging_bytes": -1},
        {"staging_bytes": None},
        {"size_limit": 1 << 64},
        {"size_limit": None},
    ],
)
def test_options_that_are_wrong_on_one_rank(comm, wrong):
    """The others hear of it. What is wrong is told to the rank itself."""
    given = wrong if comm.rank == 1 else {}
    for call in [
        lambda: comm.all_gather_objects(1, **given),
        lambda: comm.stream_all_gather_objects(b"1", lambda piece: None, **given),
    ]:
        with pytest.raises((unisono.InvalidArgument, TypeError)) as caught:
            call()
        if comm.rank != 1:
            assert caught.value.rank == 1
    assert comm.all_gather_objects(comm.rank) == list(range(comm.size))
