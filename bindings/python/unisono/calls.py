"""How every call gets to the library: by number, with the arguments of all of them."""

from __future__ import annotations

from typing import Any, Callable

from . import _core
from .request import Request

(
    _ALL_REDUCE,
    _REDUCE,
    _BROADCAST,
    _ALL_GATHER,
    _ALL_GATHER_V,
    _REDUCE_SCATTER,
    _REDUCE_SCATTER_V,
    _GATHER,
    _GATHER_V,
    _SCATTER,
    _SCATTER_V,
    _ALL_TO_ALL,
    _ALL_TO_ALL_V,
    _BARRIER,
    _SCAN,
    _EXSCAN,
    _SEND,
    _RECEIVE_CALL,
) = range(18)


class Calls:
    """What the methods of a communicator make their calls with."""

    __slots__ = ("_is_grouped", "_member", "_run")

    _member: _core.Member
    #: Makes a call; in a group, notes it.
    _run: Callable[..., Any]
    _is_grouped: bool

    def _start(self, output: Any, *call: Any, **options: Any) -> Request[Any]:
        if self._is_grouped:
            raise RuntimeError("a group has calls that wait; start asynchronous ones outside")
        return Request(self._member.start(*call, **options), output)
