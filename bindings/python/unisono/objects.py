"""Object collectives: any object that can be pickled, of any size.

Arrays in it and what else gives pickle 5 its buffers are not copied into the pickle: they go from
where they are through staging memory of bounded size, and arrive in the memory in which they stay.
Unpickling runs what the sender says, so ranks trust each other: they share the job key.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Iterable, List, Optional, Union

from . import _core
from .errors import ErrorCode, make_error

if TYPE_CHECKING:
    Parts = List[Any]

_PROTOCOL = 5


def _pickled(obj: Any) -> Parts:
    buffers: List[pickle.PickleBuffer] = []
    head = pickle.dumps(obj, protocol=_PROTOCOL, buffer_callback=buffers.append)
    return [head, *(buffer.raw() for buffer in buffers)]


def _unpickled(parts: Parts, source: int) -> Any:
    try:
        return pickle.loads(parts[0], buffers=parts[1:])
    except Exception as failure:
        text = f"the object of rank {source} cannot be unpickled here: {_core.text_of(failure)}"
        raise make_error(ErrorCode.INVALID_ARGUMENT, source, text, operation="objects") from failure


class _Part:
    """A rank's part of a call: its sections, or why there are none, which the others are told."""

    def __init__(self, obj: Any, failure: Optional[Exception] = None) -> None:
        self.failure = failure
        self.given: Union[Parts, str] = []
        try:
            if failure is None:
                self.given = _pickled(obj)
        except Exception as error:
            self.failure = error
        if self.failure is not None:
            self.given = _core.text_of(self.failure)

    def raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


def _parts_of(objects: Optional[Iterable[Any]], size: int) -> List[_Part]:
    try:
        return [_Part(obj) for obj in ([] if objects is None else list(objects))]
    except Exception as failure:
        return [_Part(None, failure) for _ in range(size)]


class Objects:
    """The calls of a communicator on objects.

    ``staging_bytes`` bounds the staging memory of a rank, ``size_limit`` the size of one rank's
    object; the smallest of all ranks holds. ``timeout`` is for each round, in seconds.
    """

    __slots__ = ()

    _member: _core.Member
    _is_grouped: bool

    @property
    def _outside_groups(self) -> _core.Member:
        if self._is_grouped:
            raise RuntimeError("in a group there are calls on arrays only: make this one outside")
        return self._member

    def gather_objects(
        self,
        obj: Any,
        root: int = 0,
        *,
        staging_bytes: int = 0,
        size_limit: int = 0,
        timeout: Optional[float] = None,
    ) -> Optional[List[Any]]:
        """At root every rank's object, by rank; elsewhere None."""
        member = self._outside_groups
        part = _Part(obj)
        try:
            objects = _core.gather_objects(
                member, part.given, root, staging_bytes, size_limit, timeout
            )
        except Exception:
            part.raise_failure()
            raise
        if objects is None:
            return None
        return [_unpickled(parts, rank) for rank, parts in enumerate(objects)]

    def all_gather_objects(
        self,
        obj: Any,
        *,
        staging_bytes: int = 0,
        size_limit: int = 0,
        timeout: Optional[float] = None,
    ) -> List[Any]:
        """Every rank's object, by rank."""
        member = self._outside_groups
        part = _Part(obj)
        try:
            objects = _core.all_gather_objects(
                member, part.given, staging_bytes, size_limit, timeout
            )
        except Exception:
            part.raise_failure()
            raise
        return [_unpickled(parts, rank) for rank, parts in enumerate(objects)]

    def broadcast_object(
        self,
        obj: Any = None,
        root: int = 0,
        *,
        staging_bytes: int = 0,
        size_limit: int = 0,
        timeout: Optional[float] = None,
    ) -> Any:
        """Root's object: at root the very one, elsewhere a copy. The others give none."""
        member = self._outside_groups
        part = _Part(obj if member.rank == root else None)
        try:
            parts = _core.broadcast_object(
                member, part.given, root, staging_bytes, size_limit, timeout
            )
        except Exception:
            part.raise_failure()
            raise
        return obj if parts is None else _unpickled(parts, root)

    def scatter_objects(
        self,
        objects: Optional[Iterable[Any]] = None,
        root: int = 0,
        *,
        staging_bytes: int = 0,
        size_limit: int = 0,
        timeout: Optional[float] = None,
    ) -> Any:
        """Rank r gets root's objects[r]. The others give none. Root makes one copy of each."""
        member = self._outside_groups
        parts = _parts_of(objects, member.size) if member.rank == root else []
        try:
            mine = _core.scatter_objects(
                member,
                [part.given for part in parts],
                root,
                staging_bytes,
                size_limit,
                timeout,
            )
        except Exception:
            for part in parts:
                part.raise_failure()
            raise
        return _unpickled(mine, root)
