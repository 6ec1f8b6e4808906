"""Objects in pieces: in which order they come, through how much memory, and what failures end."""

import gc
import itertools
import tempfile
import weakref

import numpy as np
import pytest

import unisono
from unisono import ObjectProducer


def content(rank, size):
    return np.random.default_rng(rank).integers(0, 256, size, np.uint8).tobytes()


def size_of(rank):
    return [100_003, 0, 17][rank % 3]


class Pieces:
    """A sink that checks their order and copies them."""

    def __init__(self):
        self.sources = []
        self.objects = {}
        self.largest = 0

    def __call__(self, piece):
        got = self.objects.setdefault(piece.source, bytearray())
        assert piece.bytes.readonly and piece.offset == len(got)
        assert len(piece.bytes) > 0 or piece.size == 0
        got += piece.bytes
        assert len(got) <= piece.size
        self.sources.append(piece.source)
        self.largest = max(self.largest, len(piece.bytes))


class NoReason(Exception):
    pass


def produced(data):
    def fill(offset, room):
        room[:] = data[offset : offset + len(room)]

    return ObjectProducer(len(data), fill)


def usable(comm):
    return comm.all_gather_objects(comm.rank) == list(range(comm.size))


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, produced])
def test_all_gather(comm, make):
    pieces = Pieces()
    data = make(content(comm.rank, size_of(comm.rank)))
    comm.stream_all_gather_objects(data, pieces, staging_bytes=4096)
    assert pieces.objects == {r: content(r, size_of(r)) for r in range(comm.size)}
    assert pieces.largest <= 4096 and len(pieces.sources) > 25
    turns = [source for source, _ in itertools.groupby(pieces.sources)]
    assert turns[: comm.size] == list(range(comm.size))
    assert pieces.sources.count(1) == 1  # the empty object


def test_gather(comm):
    root = comm.size - 1
    pieces = Pieces()
    data = np.frombuffer(content(comm.rank, 5000))
    comm.stream_gather_objects(data, pieces if comm.rank == root else None, root)
    expected = {r: content(r, 5000) for r in range(comm.size)} if comm.rank == root else {}
    assert pieces.objects == expected


def test_broadcast(comm):
    pieces = Pieces()
    whole = content(9, 70_001)
    if comm.rank == 1:
        comm.stream_broadcast_object(produced(whole), root=1, staging_bytes=1024)
    else:
        comm.stream_broadcast_object(sink=pieces, root=1, staging_bytes=1024)
        assert pieces.objects == {1: whole} and pieces.largest <= 1024


def test_files(comm):
    """What they are for: neither side has it in memory."""
    before = (comm.rank - 1) % comm.size
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as taken:
        given.write(content(comm.rank, 300_000))
        given.seek(0)
        comm.stream_all_gather_objects(
            ObjectProducer(300_000, lambda offset, room: given.readinto(room)),
            lambda piece: piece.source == before and taken.write(piece.bytes),
            staging_bytes=10_000,
        )
        taken.seek(0)
        assert taken.read() == content(before, 300_000)


def test_a_sink_that_raises_ends_the_call_of_its_rank(comm):
    seen = []

    def fail(piece):
        seen.append(piece.offset)
        raise NoReason("\udc80")

    pieces = Pieces()
    arguments = content(comm.rank, 9000), fail if comm.rank == 1 else pieces
    if comm.rank == 1:
        with pytest.raises(NoReason):
            comm.stream_all_gather_objects(*arguments, staging_bytes=1000)
        assert seen == [0]
    else:
        comm.stream_all_gather_objects(*arguments, staging_bytes=1000)
        assert pieces.objects == {r: content(r, 9000) for r in range(comm.size)}
    assert usable(comm)


def test_a_producer_that_raises_ends_the_call_of_all(comm):
    filled = []

    def fill(offset, room):
        if offset > 2000:
            raise NoReason("\udc80")
        filled.append(offset)

    data = ObjectProducer(9000, fill) if comm.rank == 1 else content(comm.rank, 9000)
    with pytest.raises((NoReason, unisono.InvalidArgument)) as caught:
        comm.stream_all_gather_objects(data, lambda piece: None, staging_bytes=1000)
    assert isinstance(caught.value, NoReason) == (comm.rank == 1)
    if comm.rank != 1:
        assert caught.value.rank == 1
    assert usable(comm)


def test_producers_that_fill_less(comm):
    data = ObjectProducer(10, lambda offset, room: 3)
    with pytest.raises(ValueError, match="3 bytes were filled in; there is room for 10"):
        comm.stream_all_gather_objects(data, lambda piece: None)
    assert usable(comm)


@pytest.mark.parametrize(
    "keep",
    [
        lambda memory: memory[1:],
        lambda memory: np.frombuffer(memory, np.uint8),
    ],
)
def test_memory_cannot_be_kept(comm, keep):
    kept = []
    with pytest.raises(BufferError):
        comm.stream_all_gather_objects(b"abc", lambda piece: kept.append(keep(piece.bytes)))
    with pytest.raises(BufferError):
        producer = ObjectProducer(3, lambda offset, room: kept.append(keep(room)))
        comm.stream_all_gather_objects(producer, lambda piece: None)
    assert len(kept) == 2 and usable(comm)


def test_pieces_that_are_kept_are_empty_afterwards(comm):
    kept = []
    comm.stream_all_gather_objects(b"abc", kept.append)
    with pytest.raises(ValueError, match="released"):
        kept[0].bytes[0]


def test_tracebacks_do_not_keep_memory(comm):
    def fail(piece):
        array = np.frombuffer(piece.bytes, np.uint8)
        raise NoReason(len(array))

    with pytest.raises(NoReason, match="3"):
        comm.stream_all_gather_objects(b"abc", fail)


def test_ends_must_not_use_the_communicator(comm):
    seen = []

    def use(*_):
        for call in (comm.barrier, comm.close, lambda: comm.all_gather_objects(1)):
            with pytest.raises(RuntimeError, match="must not use the communicator"):
                call()
        seen.append(comm.status)

    comm.stream_all_gather_objects(ObjectProducer(5, use), use)
    assert seen == [None] * (comm.size + 1) and usable(comm)


def test_ends_may_use_others_and_abort(world, comm):
    totals = []

    def use(piece):
        totals.append(world.all_reduce(np.ones(1))[0])
        if comm.rank == 1 and piece.source == 1:
            comm.abort("enough")

    with pytest.raises(unisono.Aborted, match="enough"):
        comm.stream_all_gather_objects(b"abc", use)
        comm.barrier()
    assert totals == [comm.size] * comm.size


def test_what_is_refused(comm):
    with pytest.raises(unisono.InvalidArgument) as caught:
        comm.stream_gather_objects(b"abc", None, root=1)  # root has no sink
    assert caught.value.rank == 1
    with pytest.raises(unisono.InvalidArgument):
        comm.stream_gather_objects(b"abc", lambda piece: None, root=comm.size)
    with pytest.raises(unisono.OutOfResources):
        comm.stream_all_gather_objects(b"abc", lambda piece: None, size_limit=2)
    for data in (None, [1, 2], "text", np.ones((4, 4))[:, 1]):
        with pytest.raises((TypeError, BufferError, ValueError)):
            comm.stream_all_gather_objects(data, lambda piece: None)
    with comm.group():
        with pytest.raises(RuntimeError, match="in a group"):
            comm.stream_all_gather_objects(b"abc", lambda piece: None)
    assert usable(comm)


def test_data_that_is_none_is_told_to_all_ranks(comm):
    data = [1, 2] if comm.rank == 1 else b"abc"
    with pytest.raises(TypeError if comm.rank == 1 else unisono.InvalidArgument) as caught:
        comm.stream_broadcast_object(data, lambda piece: None, root=1)
    assert comm.rank == 1 or caught.value.rank == 1
    assert usable(comm)


@pytest.mark.parametrize("size", [-1, 1 << 64, 2.5, None])
def test_a_producer_without_a_size_is_told_to_all_ranks(comm, size):
    filled = []
    data = ObjectProducer(size, lambda offset, room: filled.append(offset))
    wrong = TypeError if size in (2.5, None) else ValueError
    with pytest.raises(wrong if comm.rank == 1 else unisono.InvalidArgument) as caught:
        comm.stream_all_gather_objects(data if comm.rank == 1 else b"abc", lambda piece: None)
    assert comm.rank == 1 or caught.value.rank == 1
    assert not filled and usable(comm)


def test_nothing_is_kept(comm):
    class Watched(np.ndarray):
        pass

    class Taker:
        def __call__(self, piece):
            if comm.rank == 0:
                raise NoReason

    data, taker = np.ones(5).view(Watched), Taker()
    seen = weakref.ref(data), weakref.ref(taker)
    try:
        comm.stream_all_gather_objects(data, taker)
    except NoReason:
        pass
    del data, taker
    gc.collect()
    assert seen[0]() is None and seen[1]() is None
