"""Operators of the user's own: what they give, and what follows when they raise."""

import gc
import traceback
import weakref

import numpy as np
import pytest

import unisono


def test_user_operator(comm):
    keep_larger = unisono.user_op("larger", lambda low, high: np.maximum(low, high, out=high))
    data = np.arange(1000.0) + 10 * comm.rank
    comm.all_reduce(data, op=keep_larger)
    np.testing.assert_array_equal(data, np.arange(1000.0) + 10 * (comm.size - 1))


def test_user_operator_that_keeps_order(comm):
    def compose(low, high):  # pairs (a, b) are x -> a x + b
        a, b = low[::2], low[1::2]
        c, d = high[::2].copy(), high[1::2].copy()
        high[::2] = a * c
        high[1::2] = c * b + d

    op = unisono.user_op("compose", compose, commutative=False)
    data = np.array([2 + comm.rank, comm.rank + 1], np.int64)
    comm.all_reduce(data, op=op)
    x = 1
    for rank in range(comm.size):
        x = (2 + rank) * x + rank + 1
    assert data[0] + data[1] == x


class NoReason(Exception):
    pass


class NoWords(Exception):
    def __str__(self):
        raise ZeroDivisionError


def failing():
    def fail(low, high):
        raise NoReason("no")

    return unisono.user_op("fail", fail)


def finish(request, comm):
    """Whether the operator ran here, and raised."""
    try:
        request.wait()
    except NoReason as error:
        assert error.args == ("no",)
        return True
    except unisono.Aborted:
        assert comm.status is not None
    return False


@pytest.mark.parametrize("is_tested", [False, True])
def test_an_operator_that_raises_ends_the_communicator(world, comm, is_tested):
    request = comm.all_reduce_async(np.ones(4), op=failing())
    while is_tested and not request.test():
        pass
    raised = finish(request, comm)
    if raised:
        with pytest.raises(NoReason):  # still
            request.wait()
    assert world.all_reduce(np.array([int(raised)]))[0] >= 1
    with pytest.raises(unisono.Aborted, match="'fail' raised NoReason: no"):
        while True:  # the word of it is on its way
            comm.barrier()


@pytest.mark.parametrize(
    "failure, text",
    [(ValueError("\udc80 é"), r"ValueError: \\udc80 é"), (NoWords("no"), "NoWords")],
)
def test_failures_whose_words_cannot_be_sent(world, comm, failure, text):
    def fail(low, high):
        raise failure

    raised = False
    try:
        comm.all_reduce(np.ones(4), op=unisono.user_op("fail", fail))
    except (ValueError, NoWords) as error:
        raised = error is failure
    except unisono.Aborted:
        pass
    assert world.all_reduce(np.array([int(raised)]))[0] >= 1
    with pytest.raises(unisono.Aborted, match=f"'fail' raised {text}"):
        while True:
            comm.barrier()


class Model:
    """It knows its operator, which is a method of it."""

    def __init__(self):
        self.op = unisono.user_op("combine", self.combine)

    def combine(self, low, high):
        high += low


def test_operators_are_collected(comm):
    model = Model()
    seen = weakref.ref(model)
    assert comm.all_reduce(np.ones(2), op=model.op).tolist() == [comm.size] * 2
    del model
    gc.collect()
    assert seen() is None


def test_operators_of_calls_under_way_are_not_collected(comm):
    request = comm.all_reduce_async(np.ones(2), op=Model().op)
    gc.collect()
    assert request.wait().tolist() == [comm.size] * 2


def test_requests_that_failed_are_collected(world, comm):
    def wait():
        request = comm.all_reduce_async(mine, op=failing())
        try:
            request.wait()
        except NoReason:
            return 1  # its traceback has this frame, which has the request, which has the failure
        except unisono.Aborted:
            return 0

    class Watched(np.ndarray):
        pass

    mine = np.ones(4).view(Watched)
    seen = weakref.ref(mine)
    raised = wait()
    del mine
    gc.collect()
    assert seen() is None
    assert world.all_reduce(np.array([raised]))[0] >= 1


def test_failures_are_of_one_call(world, comm):
    """The operator is shared, the failure is not."""
    is_failing = [True]

    def combine(low, high):
        if is_failing[0]:
            raise NoReason("no")
        high += low

    op = unisono.user_op("combine", combine)
    finish(comm.all_reduce_async(np.ones(4), op=op), comm)
    is_failing[0] = False
    assert world.all_reduce(np.ones(2), op=op).tolist() == [world.size] * 2


def test_wait_any_keeps_the_failure_for_wait(comm):
    request = comm.all_reduce_async(np.ones(4), op=failing())
    assert unisono.wait_any([request]) == 0
    outcomes = {finish(request, comm) for _ in range(2)}
    assert len(outcomes) == 1


def test_wait_all_waits_for_all(world, comm):
    # The failure of the first may be known before the second begins, and refuse it were it of the
    # same communicator.
    first = comm.all_reduce_async(np.ones(4), op=failing())
    second = world.all_reduce_async(np.ones(4))
    try:
        unisono.wait_all([first, second])
    except (NoReason, unisono.Aborted):
        pass
    assert first.test() and second.test()
    assert repr(second) == "<unisono.Request, finished>"
    assert second.wait().tolist() == [world.size] * 4


def test_operators_in_a_group_that_raise(world, comm):
    raised = False
    try:
        with comm.group():
            comm.all_reduce(np.ones(4), op=failing())
    except NoReason:
        raised = True
    except unisono.Aborted:
        pass
    assert world.all_reduce(np.array([int(raised)]))[0] >= 1


def test_operators_cannot_keep_their_arrays(world, comm):
    kept = []
    op = unisono.user_op("keep", lambda low, high: kept.append(high[1:]))
    try:
        comm.all_reduce(np.ones(4), op=op)
    except BufferError:
        raised = True
    except unisono.Aborted:
        raised = False
    else:
        raised = False
    assert world.all_reduce(np.array([int(raised)]))[0] >= 1


def test_tracebacks_do_not_keep_arrays(world, comm):
    def deeper(low, high):
        raise KeyError("first")

    def fail(low, high):
        try:
            deeper(low, high)
        except KeyError:
            raise NoReason("no")

    seen = []
    try:
        comm.all_reduce(np.ones(4), op=unisono.user_op("fail", fail))
    except NoReason as error:
        for failure in (error, error.__context__):
            frames = [frame for frame, _ in traceback.walk_tb(failure.__traceback__)]
            seen += [f.f_locals for f in frames if f.f_code.co_name in ("fail", "deeper")]
        assert seen
    except unisono.Aborted:
        pass
    assert not any("high" in names for names in seen)
    assert world.all_reduce(np.array([len(seen)]))[0] >= 1


def test_operators_must_not_call(world, comm):
    seen = []

    def combine(low, high):
        for call in (comm.abort, comm.barrier, comm.close, lambda: comm.status):
            try:
                call()
            except RuntimeError as error:
                seen.append(str(error))
        high += low

    total = world.all_reduce(np.ones(2), op=unisono.user_op("calls", combine))
    assert total.tolist() == [world.size] * 2
    assert all("must not call" in text for text in seen) and len(seen) % 4 == 0
    comm.barrier()


def test_operators_do_not_run_in_streams(comm):
    with pytest.raises(unisono.InvalidArgument, match="stream"):
        comm.all_reduce(np.ones(2), op=failing(), stream=0)
