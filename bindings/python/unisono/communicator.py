"""Communicators: ordered groups of ranks."""

from __future__ import annotations

import atexit
import math
import operator
import os
import sys
import weakref
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterable,
    Optional,
    Sequence,
    SupportsIndex,
    Tuple,
    Union,
)

from . import _core
from .closing import Closing
from .collectives import Collectives
from .errors import Error, make_error
from .group import Group
from .object_streams import ObjectStreams
from .point_to_point import PointToPoint
from .registration import RegisteredMemory
from .types import Traffic, TrafficReport

if TYPE_CHECKING:
    import numpy

    from typing import Protocol

    from .types import Order

    class Store(Protocol):
        """Where ranks meet: a key-value store that all of them share."""

        def set(self, key: str, value: bytes) -> None: ...

        def get(self, key: str, timeout: float) -> Optional[bytes]:
            """Waits up to timeout seconds; None when the key was not set in that time."""


class Communicator(Collectives, PointToPoint, ObjectStreams, Closing):
    """A group of ranks and the calls on it; made by init(), join(), split() and their like.

    One thread at a time uses a communicator, a second one gets RuntimeError; abort() and the methods
    of a Request are for any. Use it in a ``with`` block, or close() it, or leave that to the
    interpreter's end. False where it is empty: this rank is in none of the groups of a split.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, member: _core.Member) -> None:
        self._member = member
        self._run = member.run
        self._is_grouped = False
        _alive.add(member)

    # ---- Questions -------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """0 to size - 1; -1 when empty."""
        return self._member.rank

    @property
    def size(self) -> int:
        """How many ranks there are; 0 when empty."""
        return self._member.size

    @property
    def status(self) -> Optional[Error]:
        """Why the communicator no longer works; None while it does."""
        code, rank, message = self._member.status()
        return None if code == 0 else make_error(code, rank, message)

    @property
    def parent_failed_in(self) -> Optional[Tuple[int, bool]]:
        """Of one that shrink() has made: where its ranks stood in the collectives of the one before,
        the same on all of them: the number of the oldest that was not over on each, and whether one
        had begun it. None of others."""
        number, had_begun = self._member.parent_failed_in()
        return None if number < 0 else (number, had_begun)

    def host_of(self, rank: int) -> str:
        """The rank's host name, as it told; empty for a rank that does not exist."""
        return self._member.host_of(rank)

    def explain(self, collective: str, bytes: int) -> str:
        """What selection would do in a call of so many bytes, for people."""
        return self._member.explain(collective, bytes)

    def traffic(self) -> TrafficReport:
        """What the calls that have succeeded here so far moved."""
        by_collective, by_peer = self._member.traffic()
        return TrafficReport(
            calls={name: calls for name, (calls, _) in by_collective.items()},
            by_collective={name: Traffic(*moved) for name, (_, moved) in by_collective.items()},
            by_peer=[Traffic(*peer) for peer in by_peer],
        )

    def __bool__(self) -> bool:
        return not self._member.empty

    def __repr__(self) -> str:
        what = "empty" if self._member.empty else self._member.describe()
        failure = self.status
        return f"<unisono.Communicator: {what}{'' if failure is None else f', {failure.message}'}>"

    # ---- Making others ---------------------------------------------------------------------

    def split(self, color: int, key: int = 0) -> Communicator:
        """Ranks of equal color form a new communicator, ordered by (key, rank); those of a negative
        color get an empty one. Collective."""
        return Communicator(self._outside_groups.split(color, key))

    def duplicate(self) -> Communicator:
        """Same ranks, separate operations. Collective."""
        return Communicator(self._outside_groups.duplicate())

    def subset(self, ranks: Sequence[int]) -> Communicator:
        """The named ranks form a communicator in that order, the others get an empty one. All ranks
        call it and name the same."""
        return Communicator(self._outside_groups.subset(list(ranks)))

    def shrink(self, timeout: Optional[float] = None) -> Communicator:
        """Going on after a failure: the ranks that are left agree on who they are and form a
        communicator in the order that they have here. All of them call it; dead ranks are left
        out, and those that do not call it within so many seconds of the first. Who the others go
        on without is told why, by the exception: ``Partitioned`` where it hears too few of the
        others. This one has failed; close it."""
        return Communicator(self._outside_groups.shrink(timeout))

    def grow(
        self,
        store: Optional[Store] = None,
        name: str = "",
        *,
        at_least: int = 1,
        at_most: int = 65536,
        wait: Optional[float] = None,
        key: int = 0,
        timeout: Optional[float] = None,
    ) -> Communicator:
        """Growing again: all ranks of a communicator that works call it with the same arguments but
        for ``key``, and newcomers that wait in rejoin() under ``name`` join them in a larger one,
        ordered by ``key``. Empty, which is false, on all where fewer than ``at_least`` came within
        ``wait`` seconds.
        Without a store and a name: that of ``unisono run --max-restarts``, where init() of a rank that was
        started again waits. This one stays as it is."""
        return Communicator(
            _core.grow(
                self._outside_groups, store, name, at_least, at_most, wait or None, key, timeout
            )
        )

    def group(self) -> Group:
        """A ``with`` block whose calls on this communicator run together at its end."""
        return Group((self,))

    def allocate(
        self, shape: Union[SupportsIndex, Iterable[SupportsIndex]], dtype: Any = float
    ) -> numpy.ndarray[Any, Any]:
        """A NumPy array, not initialised, in memory that the other ranks of this host read in
        place: large calls on it move each byte once. It may outlive the communicator."""
        import numpy

        element = numpy.dtype(dtype)
        given = shape if isinstance(shape, Iterable) else (shape,)
        lengths = tuple(operator.index(length) for length in given)
        if min(lengths, default=0) < 0:
            raise ValueError(f"the shape {lengths} has a negative length")
        memory = self._member.allocate(max(1, math.prod(lengths) * element.itemsize))
        return numpy.ndarray(lengths, element, memoryview(memory))

    def register(self, array: Any, source: Optional[Tuple[int, int]] = None) -> RegisteredMemory:
        """Makes an array's memory known to the library once instead of with every call: between
        hosts it stays registered with the RDMA adapters, and where `source` says which file it maps,
        (descriptor, offset) of a memfd that is sealed with F_SEAL_SHRINK, other processes of the host
        read it in place. Local; keeps the array until it is closed."""
        return RegisteredMemory(self._outside_groups, array, source)

    # ---- The end ---------------------------------------------------------------------------

    def abort(
        self, reason: str = "abort() was called", failed_rank: Optional[int] = None
    ) -> None:
        """Ends each pending and later call on every rank with Aborted. Any thread. The others hear
        this rank, or ``failed_rank`` where that is the cause."""
        self._member.abort(reason, failed_rank)

    def close(self) -> None:
        """Ends what is unfinished, says goodbye. Local; may come twice. Memory and descriptors go
        with the last reference to the job's communicators and requests."""
        self._outside_groups.close()


def _options(
    transport: Optional[str],
    timeout: Optional[float],
    device: Optional[int],
    order: Optional[Order],
) -> Tuple[str, Optional[float], int, str]:
    """As the core takes them."""
    return transport or "", timeout, -1 if device is None else device, order or ""


def init(
    rendezvous: Optional[str] = None,
    rank: Optional[int] = None,
    size: Optional[int] = None,
    job_key: Optional[str] = None,
    transport: Optional[str] = None,
    timeout: Optional[float] = None,
    device: Optional[int] = None,
    order: Optional[Order] = None,
    store: Optional[Store] = None,
) -> Communicator:
    """Meets the other ranks of the job; the communicator of all of them.

    What is left away comes from the environment: that of ``unisono run``, torchrun, mpirun or srun,
    and UNISONO_* variables; with none of them it is a world of one rank. ``rendezvous`` is "env://",
    "tcp://host:port" or "file:///path"; a ``store`` of your own takes its place. ``timeout`` is in
    seconds and the default of each call.
    ``order`` is the least that every reduction of the job keeps: "canonical" and "exact" make
    training reproducible.
    """
    return Communicator(
        _core.init(
            rendezvous or "",
            -1 if rank is None else rank,
            -1 if size is None else size,
            job_key or "",
            *_options(transport, timeout, device, order),
            store,
        )
    )


def join(
    store: Store,
    name: str,
    rank: int,
    size: int,
    *,
    job_key: Optional[str] = None,
    transport: Optional[str] = None,
    timeout: Optional[float] = None,
    device: Optional[int] = None,
    order: Optional[Order] = None,
) -> Communicator:
    """The communicator of the ranks that meet in ``store`` under ``name``, which is used once. Any
    number of times in a process, in several threads, beside init()."""
    return Communicator(
        _core.join_store(
            store,
            name,
            rank,
            size,
            job_key or "",
            *_options(transport, timeout, device, order),
        )
    )


def rejoin(
    store: Store,
    name: str,
    key: int = 0,
    *,
    job_key: Optional[str] = None,
    transport: Optional[str] = None,
    timeout: Optional[float] = None,
    device: Optional[int] = None,
    order: Optional[Order] = None,
) -> Communicator:
    """Waits in ``store`` under ``name`` until a group lets this rank in by grow(), for at most
    ``timeout`` seconds; the grown communicator."""
    return Communicator(
        _core.rejoin(
            store,
            name,
            key,
            job_key or "",
            *_options(transport, timeout, device, order),
        )
    )


def unique_id() -> bytes:
    """Listens for the ranks of a job whose rank 0 is of this process. Give the bytes to the others,
    by any means: all of them, rank 0 too, call join_by_id()."""
    return _core.unique_id()


def join_by_id(
    id: bytes,
    rank: int,
    size: int,
    *,
    transport: Optional[str] = None,
    timeout: Optional[float] = None,
    device: Optional[int] = None,
    order: Optional[Order] = None,
) -> Communicator:
    """As join(), for ranks that have no store and were given an id, which has a job key of its
    own."""
    return Communicator(
        _core.join_id(
            id,
            rank,
            size,
            *_options(transport, timeout, device, order),
        )
    )


def spawn(
    n: int,
    body: Callable[[Communicator], object],
    *,
    transport: Optional[str] = None,
    timeout: Optional[float] = None,
    devices: Sequence[int] = (),
) -> None:
    """Runs body(comm) as ranks 0 to n - 1, which are threads, and waits for all. What the first of
    them to fail raises is raised here. The communicator is lent: when a body returns it is an empty
    one, and calls that other threads have begun on it are waited for."""

    def run(member: _core.Member) -> None:
        try:
            body(Communicator(member))
        finally:
            member.end_loan()

    _core.spawn(n, run, transport or "", timeout, list(devices))


#: Closed when the interpreter ends. Requests keep them, too.
_alive: weakref.WeakSet[_core.Member] = weakref.WeakSet()


def _end() -> None:
    try:
        for member in list(_alive):
            try:
                member.end()
            except Exception:
                sys.excepthook(*sys.exc_info())
    finally:
        _core.close_interpreter()


def _forget_threads() -> None:
    _core.forget_threads()
    for member in list(_alive):
        member.forget_threads()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
