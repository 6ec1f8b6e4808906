"""What the library is told of the program's own memory and threads."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Optional, Tuple

from . import _core
from .closing import Closing


class Access(NamedTuple):
    """How a registered array is reached by others."""

    peers: Literal["mapped", "single_copy", "copied"]
    """How the other processes of the host read it: in place, copied by the kernel, or copied through
    memory that all share."""
    reason: str
    """Why not "mapped"; empty where it is."""
    pinned: bool
    """Registered with the RDMA adapters."""
    pinned_reason: str
    """Why not pinned; empty where it is."""


class _Told(Closing):
    """Holds until it is closed."""

    __slots__ = ("_core",)

    _core: Any

    def close(self) -> None:
        """May come twice."""
        self._core.end()


class RegisteredMemory(_Told):
    """Communicator.register() makes it. Calls on arrays within its memory are faster, on every
    communicator of the rank, until it is closed, and no call may be using it then."""

    __slots__ = ()

    def __init__(self, member: _core.Member, array: Any, source: Optional[Tuple[int, int]]) -> None:
        fd, offset = source or (-1, 0)
        self._core = _core.Registration(member, array, fd, offset)

    @property
    def access(self) -> Optional[Access]:
        """None once it is closed."""
        described = self._core.describe()
        return described and Access(*described)


class HelperThreads(_Told):
    """While it lasts, ranks of this process count `threads` more that want a processor, data loaders
    for example, and give theirs away sooner while they wait. Any thread."""

    __slots__ = ()

    def __init__(self, threads: int) -> None:
        self._core = _core.Helpers(threads)
