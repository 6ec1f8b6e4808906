"""Asynchronous calls: waiting, asyncio, groups, point to point."""

import asyncio
import threading

import numpy as np
import pytest

import unisono


def neighbours(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def test_wait_gives_the_output(comm):
    data, out = np.ones(3), np.empty(3)
    request = comm.all_reduce_async(data, out)
    assert request.wait() is out
    assert request.test() and request.status is None and request.wait() is out
    assert repr(request) == "<unisono.Request, finished>"


def test_wait_with_a_limit(comm):
    request = comm.receive_async(np.empty(1), comm.rank, tag=1)
    with pytest.raises(TimeoutError):
        request.wait(0.05)
    with pytest.raises(TimeoutError):
        request.wait(0)
    assert not request.test()
    comm.send(np.array([7.0]), comm.rank, tag=1)
    assert request.wait(10) == unisono.Received(comm.rank, 1, 1)
    assert (request.source, request.tag, request.count) == (comm.rank, 1, 1)


def test_send_and_receive(comm):
    after, before = neighbours(comm)
    out = np.empty(5, np.int32)
    request = comm.receive_async(out, before)
    comm.send(np.full(3, comm.rank, np.int32), after)
    assert request.wait() == unisono.Received(before, 0, 3)  # a shorter one than there is room for
    assert out[:3].tolist() == [before] * 3

    got = comm.send_receive(np.full(2, comm.rank), after, (into := np.zeros(2, int)), before, tag=9)
    assert got == unisono.Received(before, 9, 2) and into.tolist() == [before] * 2


def test_receive_from_any_rank(comm):
    if comm.rank == 0:
        got = [comm.receive(np.empty(1), tag=3).source for _ in range(comm.size - 1)]
        assert sorted(got) == list(range(1, comm.size))
    else:
        comm.send(np.ones(1), 0, tag=3)


def test_a_message_that_is_too_long(comm):
    comm.send_async(np.ones(4), comm.rank)
    with pytest.raises(unisono.InvalidArgument):
        comm.receive(np.ones(2), comm.rank)


def test_a_message_that_ends_inside_an_element(comm):
    """12 bytes for elements of 8. Dates are moved as bytes: the library does not see theirs."""
    after, before = neighbours(comm)
    sent, dates = np.ones(3, np.float32), np.zeros(4, "M8[s]")
    told = f"rank {before} with tag 7 has 12 bytes and that is no whole number of elements of 8"

    def check(call):
        with pytest.raises(unisono.InvalidArgument, match=told) as caught:
            call()
        assert caught.value.rank == before

    check(lambda: comm.send_receive(sent, after, np.zeros(4), before, tag=7))
    comm.send(sent, after, tag=7)
    check(lambda: comm.receive(dates, before, tag=7))
    requests = [comm.receive_async(dates, before, tag=7) for _ in range(2)]
    for _ in requests:
        comm.send(sent, after, tag=7)
    check(lambda: unisono.wait_all(requests))
    for request in requests:
        assert request.test() and isinstance(request.status, unisono.InvalidArgument)
        check(request.wait)
    seen = []
    request = comm.receive_async(dates, before, tag=7)
    request.on_completion(lambda: seen.append(request.status))
    comm.send(sent, after, tag=7)
    check(request.wait)
    assert [type(status) for status in seen] == [unisono.InvalidArgument]
    got = comm.send_receive(np.zeros(2, "M8[s]"), after, dates, before, tag=7)
    assert got == unisono.Received(before, 7, 2)


def test_calls_after_a_message_do_not_look_at_its_length(comm):
    after, before = neighbours(comm)
    comm.send(np.ones(3, np.float32), after)
    assert comm.receive(np.empty(3, np.float32), before).count == 3
    assert comm.all_reduce(np.ones(2))[0] == comm.size
    assert comm.all_reduce_async(np.ones(2)).wait()[0] == comm.size
    comm.send(np.ones(1), comm.rank)
    assert comm.receive(np.empty(1), comm.rank).count == 1


def test_wait_any(comm):
    first = comm.receive_async(np.empty(1), comm.rank, tag=1)
    second = comm.receive_async(np.empty(1), comm.rank, tag=2)
    comm.send(np.ones(1), comm.rank, tag=2)
    assert unisono.wait_any([first, second]) == 1
    comm.send(np.ones(1), comm.rank, tag=1)
    assert unisono.wait_any([first]) == 0


def test_groups(comm):
    with comm.group():
        theirs = [np.empty(2) for _ in range(comm.size)]
        for peer in range(comm.size):
            assert comm.send(np.full(2, float(comm.rank)), peer) is None
            assert comm.receive(theirs[peer], peer) is None
        total = comm.all_reduce(np.ones(1))
    assert [block[0] for block in theirs] == list(range(comm.size))
    assert total[0] == comm.size
    comm.barrier()


def test_what_groups_cannot_have(comm):
    with comm.group():
        for call in (
            lambda: comm.all_gather_objects(1),
            lambda: comm.broadcast_object(1),
            lambda: comm.split(0),
            lambda: comm.duplicate(),
            lambda: comm.close(),
        ):
            with pytest.raises(RuntimeError, match="in a group"):
                call()
    comm.barrier()


def test_groups_that_raise_make_no_calls(comm):
    with pytest.raises(ZeroDivisionError):
        with comm.group():
            comm.all_reduce(np.ones(1))
            1 / 0
    with pytest.raises(RuntimeError, match="do not nest"):
        with comm.group():
            with comm.group():
                pass
    comm.barrier()


def test_a_group_of_several_communicators(comm):
    with comm.duplicate() as other:
        a, b = np.ones(1), np.full(1, 2.0)
        with unisono.group(comm, other):
            comm.all_reduce(a)
            other.all_reduce(b)
        assert (a[0], b[0]) == (comm.size, 2 * comm.size)


def test_asyncio(comm):
    after, before = neighbours(comm)

    async def exchange():
        out = np.empty(3)
        coming = comm.receive_async(out, before)
        await asyncio.sleep(0.02)
        assert await comm.send_async(np.full(3, float(comm.rank)), after) is None
        got = await coming
        total = await comm.all_reduce_async(np.ones(2))
        return got, out[0], total[0]

    assert asyncio.run(exchange()) == (unisono.Received(before, 0, 3), before, comm.size)


def test_asyncio_goes_on_while_a_call_waits(comm):
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        request = comm.barrier_async()
        if comm.rank == 0:
            await asyncio.sleep(0)
        await request
        waiting = comm.receive_async(np.empty(1), comm.rank, tag=4)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_as_coroutine(waiting), 0.2)
        while ticks < 5:  # a busy machine may have given it few in that time
            await asyncio.sleep(0.01)
        comm.send(np.ones(1), comm.rank, tag=4)
        await waiting
        ticking.cancel()
        return ticks

    assert asyncio.run(main()) >= 5


async def _as_coroutine(request):
    return await request


def test_asyncio_raises_the_failure(comm):
    async def main():
        request = comm.receive_async(np.empty(1), comm.rank)
        comm.abort("enough")
        await request

    with pytest.raises(unisono.Aborted, match="enough"):
        asyncio.run(main())


def test_completion_callbacks(comm):
    over = threading.Event()
    request = comm.receive_async(np.empty(1), comm.rank, tag=8)
    request.on_completion(over.set)
    comm.send(np.ones(1), comm.rank, tag=8)
    assert over.wait(10)
    again = threading.Event()
    request.on_completion(again.set)  # at once, or behind the first
    assert again.wait(10)


def test_waiting_lets_other_threads_run(comm):
    seen = []
    worker = threading.Thread(target=lambda: seen.extend(range(1000)))
    request = comm.receive_async(np.empty(1), comm.rank, tag=2)
    sender = threading.Timer(0.1, lambda: comm.send_async(np.ones(1), comm.rank, tag=2))
    worker.start()
    sender.start()
    request.wait(10)  # holds no GIL
    worker.join()
    sender.join()
    assert len(seen) == 1000
