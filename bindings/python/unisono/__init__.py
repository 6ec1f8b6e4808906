"""Collective communication: ranks that exchange arrays and objects, and name the one that fails.

    import numpy as np, unisono

    with unisono.init() as comm:
        total = comm.all_reduce(np.array([comm.rank + 1.0]))  # in place, on every rank

    unisono run -n 4 python that_script.py

Communicator has the calls; what they raise is unisono.Error, whose .rank is the rank at fault.
"""

from ._core import Op
from ._core import version as _version
from .communicator import Communicator, init, join, join_by_id, rejoin, spawn, unique_id
from .errors import (
    Aborted,
    AuthenticationFailed,
    Closed,
    DataCorrupted,
    Error,
    ErrorCode,
    InvalidArgument,
    Mismatch,
    NotMember,
    OutOfResources,
    Partitioned,
    ProtocolViolated,
    RankFailed,
    RankLeft,
    RendezvousFailed,
    SystemFailed,
    Timeout,
    Unsupported,
)
from .group import Group, group
from .object_streams import ObjectPiece, ObjectProducer
from .registration import Access, HelperThreads, RegisteredMemory
from .request import Request, wait_all, wait_any
from .types import (
    ANY_RANK,
    AVERAGE,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    LOGICAL_AND,
    LOGICAL_OR,
    LOGICAL_XOR,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    Received,
    Traffic,
    TrafficReport,
    premultiplied_sum,
    user_op,
)

__version__ = _version()

__all__ = [
    "ANY_RANK",
    "AVERAGE",
    "BIT_AND",
    "BIT_OR",
    "BIT_XOR",
    "LOGICAL_AND",
    "LOGICAL_OR",
    "LOGICAL_XOR",
    "MAX",
    "MIN",
    "PRODUCT",
    "SUM",
    "Aborted",
    "Access",
    "AuthenticationFailed",
    "Closed",
    "Communicator",
    "DataCorrupted",
    "Error",
    "ErrorCode",
    "Group",
    "HelperThreads",
    "InvalidArgument",
    "Mismatch",
    "NotMember",
    "ObjectPiece",
    "ObjectProducer",
    "Op",
    "OutOfResources",
    "Partitioned",
    "ProtocolViolated",
    "RankFailed",
    "RankLeft",
    "Received",
    "RegisteredMemory",
    "RendezvousFailed",
    "Request",
    "SystemFailed",
    "Timeout",
    "Traffic",
    "TrafficReport",
    "Unsupported",
    "group",
    "init",
    "join",
    "join_by_id",
    "premultiplied_sum",
    "rejoin",
    "spawn",
    "unique_id",
    "user_op",
    "wait_all",
    "wait_any",
]
