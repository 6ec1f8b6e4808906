"""Communicators: making, asking, ending; and what calls raise when something goes wrong."""

import os
import pathlib
import pickle
import threading
import time

import numpy as np
import pytest

import unisono


def test_questions(comm):
    assert 0 <= comm.rank < comm.size
    assert comm and comm.status is None
    assert f"rank {comm.rank} of {comm.size}" in repr(comm)
    assert comm.host_of(0) and comm.host_of(99) == ""
    assert "all_reduce" in comm.explain("all_reduce", 1 << 20)
    with pytest.raises(unisono.InvalidArgument, match="no collective"):
        comm.explain("all_dance", 1)
    assert unisono.__version__.count(".") == 2


def test_split(comm):
    half = comm.split(comm.rank % 2, key=-comm.rank)
    ranks = [r for r in range(comm.size) if r % 2 == comm.rank % 2][::-1]
    assert (half.size, half.rank) == (len(ranks), ranks.index(comm.rank))
    assert half.all_gather_objects(comm.rank) == ranks
    half.close()


def test_empty_communicators(comm):
    none = comm.split(-1)
    assert not none and (none.rank, none.size) == (-1, 0)
    with pytest.raises(unisono.NotMember):
        none.barrier()
    with pytest.raises(unisono.NotMember):
        none.all_gather_objects(1)
    assert "empty" in repr(none)
    some = comm.subset([1])
    assert bool(some) == (comm.rank == 1)


def test_closed_communicators(comm):
    with comm.duplicate() as other:
        other.barrier()
    other.close()  # twice
    with pytest.raises(unisono.Closed):
        other.barrier()
    assert isinstance(other.status, unisono.Closed)


def test_survivors_go_on(comm):
    whole = comm.duplicate()
    if comm.rank == 0:
        whole.abort("one goes")
    made = 0
    with pytest.raises(unisono.Aborted) as caught:
        for made in range(1000):
            whole.barrier()
    assert caught.value.operation_number == made
    with whole.shrink(timeout=60) as left:
        whole.close()
        assert (left.rank, left.size) == (comm.rank, comm.size)
        assert left.all_reduce(np.ones(3))[0] == comm.size
        stood = left.all_gather_objects((made, caught.value.in_operation))
        least = min(number for number, _ in stood)
        assert left.parent_failed_in == (least, max(stood) > (least, False))
        assert left.duplicate().parent_failed_in is None
    with pytest.raises(unisono.Aborted):
        whole.shrink()


class FolderStore:
    """A store of ranks that are processes or threads."""

    def __init__(self, folder):
        self.folder = folder

    def set(self, key, value):
        path = self.folder / key.replace("/", "+")
        part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        part.write_bytes(value)
        part.rename(path)

    def get(self, key, timeout):
        path = self.folder / key.replace("/", "+")
        until = time.monotonic() + timeout
        while not path.exists():
            if time.monotonic() >= until:
                return None
            time.sleep(0.001)
        return path.read_bytes()


def test_grow(comm, tmp_path):
    folder = tmp_path / "store"
    if comm.rank == 0:
        folder.mkdir()
    folder = pathlib.Path(comm.broadcast_object(str(folder) if comm.rank == 0 else None))
    store = FolderStore(folder)
    assert not comm.grow(store, "group")
    assert not comm.grow(store, "group", wait=0)
    sums = []

    def live_as_newcomer():
        with unisono.rejoin(store, "group", key=-1, timeout=60) as grown:
            sums.append((grown.rank, float(grown.all_reduce(np.ones(1))[0])))

    newcomer = threading.Thread(target=live_as_newcomer)
    if comm.rank == 0:
        newcomer.start()
    with comm.grow(store, "group", wait=60) as grown:
        assert (grown.rank, grown.size) == (comm.rank + 1, comm.size + 1)
        assert grown.all_reduce(np.ones(1))[0] == grown.size
        if comm.rank == 0:
            newcomer.join()
            assert sums == [(0, comm.size + 1)]
    with pytest.raises(unisono.InvalidArgument):
        comm.grow(store, "")
    with pytest.raises(unisono.InvalidArgument):
        comm.grow(name="group")
    with pytest.raises(unisono.Unsupported):
        comm.grow()


def test_traffic(comm):
    comm.all_reduce(np.ones(100))
    report = comm.traffic()
    assert report.calls == {"all_reduce": 1}
    assert len(report.by_peer) == comm.size
    assert report.total == report.by_collective["all_reduce"]
    assert report.total.bytes_sent > 0


def test_mismatch_names_the_rank(comm):
    with pytest.raises(unisono.Mismatch) as caught:
        for _ in range(2):  # in this call or the next
            comm.all_reduce(np.ones(3 if comm.rank == 1 else 2))
    assert caught.value.code == unisono.ErrorCode.MISMATCH
    assert caught.value.message and str(caught.value)
    if comm.size > 2:
        assert caught.value.rank == 1
    with pytest.raises(unisono.Mismatch):
        comm.barrier()  # the communicator's failure stays


def test_timeout_names_who_is_missing(comm):
    if comm.rank == 0:
        with pytest.raises(unisono.Timeout) as caught:
            comm.barrier(timeout=0.2)
        assert isinstance(caught.value, TimeoutError)
        assert "1" in str(caught.value)
    else:
        with pytest.raises(unisono.Error):
            comm.receive(np.ones(1), 0)


def test_abort_from_another_thread(comm):
    if comm.rank == 0:
        threading.Timer(0.1, comm.abort, ["stop it"]).start()
    with pytest.raises(unisono.Aborted, match="stop it"):
        comm.receive(np.ones(1), comm.rank)


def test_rank_left(comm):
    other = comm.duplicate()
    other.barrier()
    if comm.rank == 1:
        other.close()
        return
    with pytest.raises(unisono.RankLeft) as caught:
        other.receive(np.ones(1), 1)
    assert caught.value.rank == 1 and caught.value.operation == "receive"
    other.close()


def test_errors_have_what_the_library_knows():
    with pytest.raises(unisono.InvalidArgument) as caught:
        unisono.spawn(0, lambda comm: None)
    error = caught.value
    assert error.rank is None and error.code == unisono.ErrorCode.INVALID_ARGUMENT
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and copy.args == error.args and copy.code == error.code


def test_join_by_id(comm):
    id = comm.broadcast_object(unisono.unique_id() if comm.rank == 0 else None)
    with unisono.join_by_id(id, comm.rank, comm.size, timeout=20) as other:
        assert other.all_gather_objects(other.rank) == list(range(comm.size))
    with pytest.raises(unisono.InvalidArgument, match="bytes"):
        unisono.join_by_id(b"short", 0, 1)
    with pytest.raises(TypeError, match="job_key"):
        unisono.join_by_id(id, comm.rank, comm.size, job_key="secret")  # the id has its own
