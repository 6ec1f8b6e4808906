"""Messages between two ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .calls import _RECEIVE_CALL, _SEND, Calls
from .request import _RECEIVE, Request
from .types import ANY_RANK, Array, Received

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .types import Options


class PointToPoint(Calls):
    """Messages match in order per (peer, tag), apart from collectives."""

    __slots__ = ()

    def send(self, data: Array, target: int, tag: int = 0, **options: Unpack[Options]) -> None:
        """Returns when data may be reused: perhaps before the receiver has it."""
        self._run(_SEND, data, peer=target, tag=tag, **options)

    def send_async(
        self, data: Array, target: int, tag: int = 0, **options: Unpack[Options]
    ) -> Request[None]:
        """As send(), without waiting."""
        return self._start(None, _SEND, data, peer=target, tag=tag, **options)

    def receive(
        self, out: Array, source: int = ANY_RANK, tag: int = 0, **options: Unpack[Options]
    ) -> Received:
        """The next message of source (ANY_RANK: of any) with this tag. It may be shorter than out;
        a longer one is dropped, and InvalidArgument is raised, as for one that ends inside an
        element. In a group it returns None, and of dates and records it does not see such an end."""
        if self._is_grouped:
            return self._run(  # type: ignore[no-any-return]
                _RECEIVE_CALL, None, out, peer=source, tag=tag, **options
            )
        call = self._member.receive(_RECEIVE_CALL, None, out, peer=source, tag=tag, **options)
        return Received(*call)

    def receive_async(
        self, out: Array, source: int = ANY_RANK, tag: int = 0, **options: Unpack[Options]
    ) -> Request[Received]:
        """As receive(), without waiting."""
        return self._start(
            _RECEIVE, _RECEIVE_CALL, None, out, peer=source, tag=tag, **options
        )

    def send_receive(
        self,
        data: Array,
        target: int,
        out: Array,
        source: int = ANY_RANK,
        tag: int = 0,
        **options: Unpack[Options],
    ) -> Received:
        """Sends and receives at once, so that neither waits for the other."""
        if self._is_grouped:
            raise RuntimeError("in a group, give send() and receive()")
        member = self._member
        sent = member.prepare(_SEND, data, peer=target, tag=tag, **options)
        received = member.prepare(_RECEIVE_CALL, None, out, peer=source, tag=tag, **options)
        return Received(*member.send_receive(sent, received))
