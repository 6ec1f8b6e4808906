"""Object collectives: any object that can be pickled, of any size.

Arrays in it and what else gives pickle 5 its buffers are not copied into the pickle: they go from
where they are through staging memory of bounded size, and arrive in the memory in which they stay.
Unpickling runs what the sender says, so ranks trust each other: they share the job key.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Union

from . import _core

if TYPE_CHECKING:
    Parts = List[Any]

_PROTOCOL = 5


def _pickled(obj: Any) -> Parts:
    buffers: List[pickle.PickleBuffer] = []
    head = pickle.dumps(obj, protocol=_PROTOCOL, buffer_callback=buffers.append)
    return [head, *(buffer.raw() for buffer in buffers)]


def _unpickled(parts: Parts) -> Any:
    return pickle.loads(parts[0], buffers=parts[1:])


class _Part:
    """A rank's part of a call: its sections, or why there are none, which the others are told."""

    def __init__(self, obj: Any) -> None:
        self.failure: Optional[Exception] = None
        self.given: Union[Parts, str] = []
        try:
            self.given = _pickled(obj)
        except Exception as failure:
            self.failure = failure
            self.given = f"{type(failure).__name__}: {failure}"

    def raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


class Objects:
    """The calls of a communicator on objects.

    ``staging_bytes`` bounds the staging memory of a rank, ``size_limit`` the size of one rank's
    object; the smallest of all ranks holds. ``timeout`` is for each round, in seconds.
    """

    __slots__ = ()

    _member: _core.Member

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
        part = _Part(obj)
        try:
            objects = _core.gather_objects(
                self._member, part.given, root, staging_bytes, size_limit, timeout
            )
        except Exception:
            part.raise_failure()
            raise
        return None if objects is None else [_unpickled(parts) for parts in objects]

    def all_gather_objects(
        self,
        obj: Any,
        *,
        staging_bytes: int = 0,
        size_limit: int = 0,
        timeout: Optional[float] = None,
    ) -> List[Any]:
        """Every rank's object, by rank."""
        part = _Part(obj)
        try:
            objects = _core.all_gather_objects(
                self._member, part.given, staging_bytes, size_limit, timeout
            )
        except Exception:
            part.raise_failure()
            raise
        return [_unpickled(parts) for parts in objects]

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
        part = _Part(obj if self._member.rank == root else None)
        try:
            parts = _core.broadcast_object(
                self._member, part.given, root, staging_bytes, size_limit, timeout
            )
        except Exception:
            part.raise_failure()
            raise
        return obj if parts is None else _unpickled(parts)

    def scatter_objects(
        self,
        objects: Optional[Sequence[Any]] = None,
        root: int = 0,
        *,
        staging_bytes: int = 0,
        size_limit: int = 0,
        timeout: Optional[float] = None,
    ) -> Any:
        """Rank r gets root's objects[r]. The others give none. Root makes one copy of each."""
        given = list(objects or ()) if self._member.rank == root else []
        parts = [_Part(obj) for obj in given]
        try:
            mine = _core.scatter_objects(
                self._member,
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
        return _unpickled(mine)
