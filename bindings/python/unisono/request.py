"""Handles of asynchronous calls."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Generator, Generic, List, Optional, Sequence, TypeVar

from . import _core
from .errors import Error, make_error
from .types import Received

T = TypeVar("T")


class Request(Generic[T]):
    """A call under way. It keeps the call's arrays alive; leave them alone until it is finished.

    Any thread may wait. ``await request`` works in asyncio and gives what ``wait()`` gives: the
    call's output, or a ``Received``. A request that is dropped unfinished goes on by itself, and
    its arrays live until no rank can touch them.
    """

    __slots__ = ("_call", "_output")

    def __init__(self, call: _core.PendingCall, output: Any) -> None:
        self._call = call
        self._output = output

    def test(self) -> bool:
        """True when finished. Makes progress, waits for nothing and raises nothing."""
        return self._call.test()

    def wait(self, timeout: Optional[float] = None) -> T:
        """Until finished; raises the call's failure, and TimeoutError when ``timeout`` seconds
        pass before: then the call goes on."""
        if timeout is not None and timeout <= 0:
            is_over = self._call.test() and self._call.wait()
        else:
            is_over = self._call.wait(timeout)
        if not is_over:
            raise TimeoutError(f"the call is not finished after {timeout} s; it goes on")
        return self._result()

    @property
    def status(self) -> Optional[Error]:
        """The failure so far, None where there is none. Final once test() was true."""
        code, rank, message = self._call.status()
        return None if code == 0 else make_error(code, rank, message)

    @property
    def source(self) -> int:
        """Of a finished receive: who sent."""
        return self._call.source

    @property
    def tag(self) -> int:
        """Of a finished receive."""
        return self._call.tag

    @property
    def count(self) -> int:
        """Of a finished receive: how many elements came."""
        return self._call.count

    def on_completion(self, callback: Callable[[], None]) -> None:
        """Calls ``callback`` once, when the call is over: at once, or on the thread that finds out,
        which may be one of the library. Keep it short; it must not wait for calls."""
        self._call.on_completion(callback)

    def __await__(self) -> Generator[Any, None, T]:
        if not self._call.test():
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._call.on_completion(lambda: _wake(loop, future))
            yield from future
        return self.wait()

    def _result(self) -> T:
        if self._output is not _RECEIVE:
            return self._output  # type: ignore[no-any-return]
        return Received(self._call.source, self._call.tag, self._call.count)  # type: ignore[return-value]

    def __repr__(self) -> str:
        # It asks nobody: debuggers and loggers print requests whenever they like.
        return f"<unisono.Request, {'finished' if self._call.is_settled else 'under way'}>"


#: Stands for the output of a receive, which is what came.
_RECEIVE = object()


def _wake(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    def finish() -> None:
        if not future.done():
            future.set_result(None)

    try:
        loop.call_soon_threadsafe(finish)
    except RuntimeError:
        pass  # the loop is closed: nobody waits any more


def wait_all(requests: Sequence[Request[Any]]) -> List[Any]:
    """Waits until all have finished and gives what their wait() gives. Then raises the first
    failure in the order of the list, if there is one."""
    _core.wait_all([request._call for request in requests])
    return [request._result() for request in requests]


def wait_any(requests: Sequence[Request[Any]]) -> int:
    """Waits until one has finished; the lowest index of those that have. Its outcome is what its
    wait() says."""
    return _core.wait_any([request._call for request in requests])
