"""Groups of calls: noted in a `with` block, run together at its end."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, List, Optional, Tuple, Type

from . import _core

if TYPE_CHECKING:
    from .communicator import Communicator


class Group:
    """Calls of its communicators inside the block are noted, and run together when it ends::

        with comm.group():
            for peer in range(comm.size):
                comm.send(mine[peer], peer)
                comm.receive(theirs[peer], peer)

    All are started, then all are waited for: any mixture of sends and receives in any order, without
    deadlock. What they give is there after the block. Where the block raises, none is made.
    """

    def __init__(self, communicators: Tuple[Communicator, ...]) -> None:
        self._communicators = communicators
        self._calls: List[Tuple[_core.Member, _core.GroupedCall]] = []

    def __enter__(self) -> Group:
        if any(comm._is_grouped for comm in self._communicators):
            raise RuntimeError("groups of one communicator do not nest")
        for comm in self._communicators:
            comm._run = self._noting(comm._member)
            comm._is_grouped = True
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        for comm in self._communicators:
            comm._run = comm._member.run
            comm._is_grouped = False
        calls, self._calls = self._calls, []
        if kind is None:
            _core.group(calls)

    def _noting(self, member: _core.Member) -> Any:
        def note(*call: Any, **options: Any) -> None:
            self._calls.append((member, member.prepare(*call, **options)))

        return note


def group(*communicators: Communicator) -> Group:
    """For a thread that drives several ranks: a group over several communicators."""
    return Group(communicators)
