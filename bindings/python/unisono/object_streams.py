"""Object collectives on bytes that come and go in pieces: no rank needs an object as a whole."""

from __future__ import annotations

import numbers
import operator
from typing import Any, Callable, NamedTuple, Optional, Tuple

from . import _core
from .objects import Objects
from .types import forget_arrays


class ObjectPiece(NamedTuple):
    """A part of a rank's object, as it arrives."""

    #: Whose object it is of.
    source: int
    #: Where it begins in the object.
    offset: int
    #: Bytes of the whole object.
    size: int
    #: The piece itself, read-only; gone when the sink returns.
    bytes: memoryview


class ObjectProducer(NamedTuple):
    """An object of ``size`` bytes that is made as it goes out.

    ``fill(offset, room)`` puts the bytes from ``offset`` on into all of ``room``, a memoryview that
    is gone when it returns. It is called in order and without gaps. It returns None, or how many
    bytes it has put there, as ``file.readinto(room)`` does: fewer than there is room for are
    ValueError.
    """

    size: int
    fill: Callable[[int, memoryview], object]


#: Takes the pieces.
ObjectSink = Callable[[ObjectPiece], object]


class ObjectStreams(Objects):
    """The calls of a communicator on objects in pieces.

    A rank's ``data`` is what has the buffer protocol, sent from where it is, or an ObjectProducer.
    A ``sink`` is called with one ObjectPiece after another: those of one source come in order and
    without gaps, sources take turns in the order of ranks, and an empty object is one empty piece.
    All ranks' pieces of a round fit into ``staging_bytes`` (0: 16 MiB).

    Sinks and producers run in the calling thread. They must not make calls on the communicator
    (RuntimeError), apart from abort(), or wait for its requests, and not keep the memory that they
    get (BufferError).
    ``timeout`` is for each round, with what they take on the slowest rank.

    One that raises is not called again. Its rank takes part to the last piece, and then the call
    raises the same there. Of a sink the other ranks see nothing; for a producer all of them get
    InvalidArgument with its rank: what came of its object is void. The communicator stays usable.
    """

    __slots__ = ()

    def stream_gather_objects(
        self,
        data: Any,
        sink: Optional[ObjectSink] = None,
        root: int = 0,
        *,
        staging_bytes: int = 0,
        size_limit: int = 0,
        timeout: Optional[float] = None,
    ) -> None:
        """Every rank's data, its own too, to root's sink. The others need none."""
        _core.stream_gather_objects(
            self._outside_groups,
            *_source(data),
            _sink(sink),
            root,
            staging_bytes,
            size_limit,
            timeout,
        )

    def stream_all_gather_objects(
        self,
        data: Any,
        sink: ObjectSink,
        *,
        staging_bytes: int = 0,
        size_limit: int = 0,
        timeout: Optional[float] = None,
    ) -> None:
        """Every rank's data, its own too, to every rank's sink."""
        _core.stream_all_gather_objects(
            self._outside_groups,
            *_source(data),
            _sink(sink),
            staging_bytes,
            size_limit,
            timeout,
        )

    def stream_broadcast_object(
        self,
        data: Any = None,
        sink: Optional[ObjectSink] = None,
        root: int = 0,
        *,
        staging_bytes: int = 0,
        size_limit: int = 0,
        timeout: Optional[float] = None,
    ) -> None:
        """Root's data to the sinks of the others. Root needs no sink, the others no data."""
        member = self._outside_groups
        _core.stream_broadcast_object(
            member,
            *_source(data if member.rank == root else b""),
            _sink(sink),
            root,
            staging_bytes,
            size_limit,
            timeout,
        )


def _source(data: Any) -> Tuple[Any, int, Optional[Callable[[int, _core.Block], None]]]:
    """As the core takes it: bytes, or the size and what fills them."""
    if not isinstance(data, ObjectProducer):
        return data, 0, None

    def fill(offset: int, block: _core.Block) -> None:
        with memoryview(block) as room:
            filled = _forgetting(data.fill, offset, room)
            is_count = isinstance(filled, numbers.Integral) and not isinstance(filled, bool)
            if is_count and filled != len(room):
                raise ValueError(f"{filled} bytes were filled in; there is room for {len(room)}")

    try:
        size = operator.index(data.size)
        if not 0 <= size < 1 << 64:
            raise ValueError(f"ObjectProducer.size is {size}: give a number of bytes below 2**64")
    except Exception as failure:
        return b"", 1, _raiser(failure)  # the other ranks wait for this one: they are told
    return b"", size, fill


def _raiser(failure: Exception) -> Callable[[int, _core.Block], None]:
    def fill(_offset: int, _block: _core.Block) -> None:
        raise failure

    return fill


def _sink(sink: Optional[ObjectSink]) -> Optional[Callable[[int, int, int, _core.Block], None]]:
    if sink is None:
        return None

    def take(source: int, offset: int, size: int, block: _core.Block) -> None:
        with memoryview(block) as view:
            _forgetting(sink, ObjectPiece(source, offset, size, view))

    return take


def _forgetting(function: Callable[..., object], *arguments: Any) -> object:
    """What it gives. Where it raises, its frames keep no views of the arguments."""
    try:
        return function(*arguments)
    except BaseException as failure:
        forget_arrays(failure)
        raise
