"""What the calls raise: one class for each code of the library, all of them ``Error``."""

from __future__ import annotations

import enum
from typing import Dict, Optional, Type

from . import _core


class ErrorCode(enum.IntEnum):
    """The library's codes, as ``unisono::ErrorCode`` of C++."""

    OK = 0
    INVALID_ARGUMENT = 1
    UNSUPPORTED = 2
    MISMATCH = 3
    TIMEOUT = 4
    RANK_FAILED = 5
    RANK_LEFT = 6
    ABORTED = 7
    AUTHENTICATION = 8
    RENDEZVOUS = 9
    OUT_OF_RESOURCES = 10
    SYSTEM = 11
    PROTOCOL = 12
    NOT_MEMBER = 13
    CLOSED = 14
    CORRUPTED = 15
    PARTITIONED = 16


class Error(Exception):
    """A failure of the library.

    ``InvalidArgument`` and ``Unsupported`` concern the call alone. Every other failure is the
    communicator's: it is what each pending and later call raises, and names the rank at fault.
    """

    code: ErrorCode = ErrorCode.OK
    #: The rank that caused the failure, in the numbering of the communicator; None: none, unknown.
    rank: Optional[int] = None
    #: One sentence, without the facts below, which ``str()`` has as well.
    message: str = ""
    #: Where the failed rank runs, if known.
    host: str = ""
    #: The transport to that rank, ``"tcp"``; empty where it is this one.
    link: str = ""
    #: The call that reports, ``"all_reduce"``.
    operation: str = ""
    #: The communicator's collective, counted from 0, in which this rank was when it failed, or the
    #: next one where it was between two (``in_operation`` is False); None: unknown.
    operation_number: Optional[int] = None
    in_operation: bool = False


class InvalidArgument(Error, ValueError):
    """A value of this call; the communicator stays usable."""

    code = ErrorCode.INVALID_ARGUMENT


class Unsupported(Error):
    """A combination that this build, machine or algorithm does not offer."""

    code = ErrorCode.UNSUPPORTED


class Mismatch(Error):
    """Ranks made different calls."""

    code = ErrorCode.MISMATCH


class Timeout(Error, TimeoutError):
    """The deadline of a call passed; the message lists who had not arrived."""

    code = ErrorCode.TIMEOUT


class RankFailed(Error):
    """A rank died, or its connection closed without goodbye."""

    code = ErrorCode.RANK_FAILED


class RankLeft(Error):
    """A rank closed its communicator before this call."""

    code = ErrorCode.RANK_LEFT


class Aborted(Error):
    """abort() was called."""

    code = ErrorCode.ABORTED


class AuthenticationFailed(Error):
    """A peer did not know the job key."""

    code = ErrorCode.AUTHENTICATION


class RendezvousFailed(Error):
    """Ranks could not meet."""

    code = ErrorCode.RENDEZVOUS


class OutOfResources(Error):
    """Memory, descriptors, shared memory, or a bound of the library."""

    code = ErrorCode.OUT_OF_RESOURCES


class SystemFailed(Error):
    """The operating system refused; the message has its words."""

    code = ErrorCode.SYSTEM


class ProtocolViolated(Error):
    """A peer sent what no correct peer sends."""

    code = ErrorCode.PROTOCOL


class NotMember(Error):
    """The communicator is empty: this rank is in no group of the split."""

    code = ErrorCode.NOT_MEMBER


class Closed(Error):
    """The communicator was closed here."""

    code = ErrorCode.CLOSED


class DataCorrupted(Error):
    """Bytes changed on their way between two ranks (``UNISONO_CHECKSUM``)."""

    code = ErrorCode.CORRUPTED


class Partitioned(Error):
    """This rank hears too few of the others, which may go on without it; ``shrink()`` will not."""

    code = ErrorCode.PARTITIONED


_CLASSES: Dict[ErrorCode, Type[Error]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        Unsupported,
        Mismatch,
        Timeout,
        RankFailed,
        RankLeft,
        Aborted,
        AuthenticationFailed,
        RendezvousFailed,
        OutOfResources,
        SystemFailed,
        ProtocolViolated,
        NotMember,
        Closed,
        DataCorrupted,
        Partitioned,
    )
}


def make_error(
    code: int,
    rank: int,
    text: str,
    message: str = "",
    host: str = "",
    link: str = "",
    operation: str = "",
    operation_number: int = -1,
    in_operation: bool = False,
) -> Error:
    """The exception for a failure of the library, whose rank -1 is none."""
    error = _CLASSES.get(ErrorCode(code), Error)(text)
    error.rank = rank if rank >= 0 else None
    error.message = message or text
    error.host = host
    error.link = link
    error.operation = operation
    error.operation_number = operation_number if operation_number >= 0 else None
    error.in_operation = in_operation
    return error


_core.set_error_maker(make_error)
