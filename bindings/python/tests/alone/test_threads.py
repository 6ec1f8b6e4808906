"""Ranks that are threads of this process."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

import unisono


def test_spawn():
    totals = []

    def body(comm):
        totals.append(comm.all_reduce(np.full(3, comm.rank + 1.0))[0])
        kept.append(comm)

    kept = []
    unisono.spawn(3, body, timeout=20)
    assert totals == [6.0] * 3
    with pytest.raises(unisono.NotMember):  # it was lent
        kept[0].barrier()


def test_spawn_waits_for_threads_that_are_in_calls_as_a_body_returns():
    ends = []

    def body(comm):
        turns = threading.Semaphore(0)

        def use(call):
            try:
                while True:
                    call()
                    turns.release()
            except (unisono.Error, LookupError) as error:
                ends.append(error)

        def look():
            repr(comm)
            if comm.host_of(0) == "":
                raise LookupError("it is empty")

        calls = [look, lambda: comm.all_gather_objects(b"x" * 100)]
        threads.extend(threading.Thread(target=use, args=[call]) for call in calls)
        for thread in threads[-2:]:
            thread.start()
        for _ in range(20):
            turns.acquire()

    for _ in range(5):
        threads = []
        unisono.spawn(2, body, timeout=20)
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
    assert len(ends) == 20


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize(
    "call, result", [("gather_objects", ["of 0", "of 1"]), ("broadcast_object", "of 0")]
)
def test_objects_of_a_root_whose_body_returns_during_the_call(call, result):
    got, roots, threads = [], [], []

    def use(comm):
        try:
            got.append(getattr(comm, call)("of 0", root=0))
        except unisono.Error as error:
            got.append(error)

    def body(comm):
        if comm.rank == 0:
            roots.append(comm)
            threads.append(threading.Thread(target=use, args=[comm]))
            threads[-1].start()
            time.sleep(0.05)
            return
        wait_until(lambda: roots and not roots[-1])  # the loan ends
        try:
            getattr(comm, call)("of 1", root=0)
        except unisono.RankLeft:
            pass

    for _ in range(20):
        roots.clear()
        unisono.spawn(2, body, timeout=20)
        threads[-1].join(20)
        if not isinstance(got[-1], unisono.NotMember):  # the call began before the body returned
            break
    assert got[-1] == result


def test_spawn_waits_for_a_thread_that_prepares_a_call():
    ends, threads = [], []
    lent = threading.Event()

    class SlowArray:
        """It is lent once the body has returned."""

        def __init__(self, comm):
            self.comm = comm
            self.array = np.zeros(2)

        def __dlpack_device__(self):
            lent.set()
            wait_until(lambda: not self.comm)
            time.sleep(0.2)  # in which a spawn() that does not wait returns
            ends.append("the array is lent")
            return self.array.__dlpack_device__()

        def __dlpack__(self, **how):
            return self.array.__dlpack__(**how)

    def use(comm):
        with pytest.raises(unisono.NotMember):
            comm.all_gather_async(np.ones(1), SlowArray(comm))

    def body(comm):
        if comm.rank == 0:
            threads.append(threading.Thread(target=use, args=[comm]))
            threads[0].start()
            lent.wait()

    unisono.spawn(2, body, timeout=20)
    ends.append("spawn has returned")
    threads[0].join(20)
    assert ends == ["the array is lent", "spawn has returned"]


def test_spawn_raises_what_a_body_raises():
    def body(comm):
        if comm.rank == 1:
            raise KeyError("mine")
        comm.barrier()

    with pytest.raises(KeyError, match="mine"):
        unisono.spawn(2, body, timeout=5)


class MemoryStore:
    """What a user may implement; this one for threads."""

    def __init__(self):
        self.values = {}
        self.changed = threading.Condition()

    def set(self, key, value):
        assert isinstance(key, str) and isinstance(value, bytes)
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key, timeout):
        with self.changed:
            self.changed.wait_for(lambda: key in self.values, timeout)
            return self.values.get(key)


def in_threads(n, work):
    failures = []

    def run(rank):
        try:
            work(rank)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_join_in_a_store():
    store = MemoryStore()

    def work(rank):
        with unisono.join(store, "first", rank, 2, timeout=20) as comm:
            assert comm.all_gather_objects(rank) == [0, 1]

    assert in_threads(2, work) == []


def test_stores_that_raise():
    class Broken(MemoryStore):
        def set(self, key, value):
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        unisono.join(Broken(), "name", 0, 2, timeout=2)
    with pytest.raises(OSError, match="the disk is full"):
        unisono.init(rank=0, size=2, store=Broken(), timeout=2)


def test_stores_that_have_nothing():
    started = time.monotonic()
    with pytest.raises(unisono.RendezvousFailed):
        unisono.join(MemoryStore(), "name", 1, 2, timeout=0.3)
    assert time.monotonic() - started < 10


def test_a_group_of_ranks_in_one_thread():
    store = MemoryStore()
    comms = [None, None]

    def work(rank):
        comms[rank] = unisono.join(store, "both", rank, 2, timeout=20)

    assert in_threads(2, work) == []
    data = [np.ones(2), np.ones(2)]
    with unisono.group(*comms):
        for comm, array in zip(comms, data):
            comm.all_reduce(array)
    assert [array.tolist() for array in data] == [[2, 2], [2, 2]]
    for comm in comms:
        comm.close()


def is_in_use(comm):
    """Whether another thread is in a call. The one that asks is refused, and in nobody's way."""
    try:
        comm.barrier(timeout=-1)
    except unisono.InvalidArgument:
        return False
    except RuntimeError:
        return True


def test_two_threads_with_one_communicator():
    with unisono.init() as comm:
        out = np.zeros(1)

        def wait():
            with pytest.raises(unisono.Aborted):
                comm.receive(out, 0)

        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: is_in_use(comm))
        for call in (
            lambda: comm.send(np.ones(1), 0),
            lambda: comm.barrier_async(),
            lambda: comm.all_gather_objects(1),
            lambda: comm.duplicate(),
            lambda: comm.close(),
        ):
            with pytest.raises(RuntimeError, match="two threads"):
                call()
        assert waiting.is_alive()
        comm.abort()  # from any thread
        waiting.join(10)
        assert not waiting.is_alive()


def test_a_request_keeps_its_communicator():
    out = np.zeros(1)
    request = unisono.init().receive_async(out, 0)
    gc.collect()
    with pytest.raises(TimeoutError):
        request.wait(0.1)
    assert request.status is None
    del request
    gc.collect()
    with unisono.init() as comm:  # the first one is closed
        comm.barrier()


def test_the_status_of_a_receive_that_goes_on():
    """The message ends inside an element, as its announcement says before it has come."""

    def body(comm):
        if comm.rank == 1:
            comm.send(np.ones(2**23 - 1, np.float32), 0)
            return
        request = comm.receive_async(np.zeros(2**22, "M8[s]"), 1)
        while request.status is None and not request.test():
            pass
        assert request.test()
        assert isinstance(request.status, unisono.InvalidArgument)

    unisono.spawn(2, body, transport="tcp", timeout=20)


def test_requests_that_are_over_keep_no_arrays():
    class Watched(np.ndarray):
        pass

    with unisono.init() as comm:
        data = np.zeros(8).view(Watched)
        seen = weakref.ref(data)
        comm.receive_async(data, 0)  # dropped unfinished
        del data
    end = time.monotonic() + 10
    while seen() is not None and time.monotonic() < end:
        time.sleep(0.001)
    assert seen() is None


def test_bad_arguments_of_init():
    with pytest.raises(unisono.InvalidArgument):
        unisono.init("nowhere://")
    with pytest.raises(unisono.InvalidArgument, match="timeout"):
        unisono.init(timeout=0)
    with pytest.raises(unisono.Error):
        unisono.init(transport="pigeon")


def test_a_world_of_one():
    with unisono.init() as comm:
        assert (comm.rank, comm.size) == (0, 1)
        assert comm.all_reduce(np.ones(2)).tolist() == [1, 1]
        assert comm.scatter_objects(["a"]) == "a"
    with unisono.init() as comm:  # again, after close()
        comm.barrier()


def test_two_threads_that_close_registered_memory():
    """The array stays until the first of them is through."""

    class Watched(np.ndarray):
        pass

    big = 3**200_000
    freed_by = []
    with unisono.init() as comm:
        for _ in range(10):
            data = np.zeros(64).view(Watched)
            registered = comm.register(data)
            end = registered._core.end
            seen = weakref.ref(data, lambda _: freed_by.append(threading.current_thread()))
            del data
            started = threading.Event()

            def close():
                started.set()
                big * big  # has the GIL; the other thread gets it when end() lets it go
                end()

            first = threading.Thread(target=close)
            first.start()
            started.wait()
            registered.close()
            first.join()
            assert seen() is None
    assert not all(thread is threading.main_thread() for thread in freed_by)


def test_helper_threads():
    with unisono.HelperThreads(2) as helpers:
        unisono.spawn(2, lambda comm: comm.barrier(), timeout=20)
    helpers.close()
    with pytest.raises(TypeError):
        unisono.HelperThreads("two")
