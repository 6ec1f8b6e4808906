"""The vocabulary of the calls: arrays, options, operators, traffic."""

from __future__ import annotations

import dataclasses
import sys
import traceback
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, TypeVar

from . import _core
from ._core import Op

if TYPE_CHECKING:
    from typing import Literal, TypedDict

    Order = Literal["any", "canonical", "exact"]

    class Options(TypedDict, total=False):
        """What every call takes by name."""

        #: Seconds; the communicator's default where it is left away.
        timeout: Optional[float]
        #: One of ``unisono plan --list``, or "auto": selection decides; the same on all ranks. Without
        #: it what UNISONO_ALGORITHM says, or selection.
        algorithm: Optional[str]
        #: "canonical": bitwise the same result whatever the algorithm, transport and topology;
        #: "exact": also whichever rank has which addend (sums of float32, float16 and bfloat16).
        order: Optional[Order]
        #: A CUDA stream, for device memory: its handle, or a stream of torch or CuPy.
        stream: Any


#: In receive(): take the message of whichever rank sent first.
ANY_RANK = -1

#: Any array: NumPy's, or of what has the buffer protocol or DLPack.
Array = Any
#: The caller's type of array.
A = TypeVar("A")

SUM: Op = _core.OP_sum
PRODUCT: Op = _core.OP_product
MIN: Op = _core.OP_min
MAX: Op = _core.OP_max
AVERAGE: Op = _core.OP_average
BIT_AND: Op = _core.OP_bit_and
BIT_OR: Op = _core.OP_bit_or
BIT_XOR: Op = _core.OP_bit_xor
LOGICAL_AND: Op = _core.OP_logical_and
LOGICAL_OR: Op = _core.OP_logical_or
LOGICAL_XOR: Op = _core.OP_logical_xor


def premultiplied_sum(factor: float) -> Op:
    """Each rank's input times its own factor, then summed."""
    return _core.premultiplied_sum(factor)


def user_op(name: str, function: Callable[[Any, Any], None], commutative: bool = True) -> Op:
    """An operator of your own, which must be associative.

    ``function(low, high)`` gets two NumPy arrays and puts ``low (op) high`` into ``high``, in
    place; ``low`` comes from lower ranks. It must keep neither (BufferError). It runs on threads of
    the library, must not call unisono (RuntimeError) and costs a call of Python for each block of
    elements. All ranks give the same name. Where it raises, the rank's call raises the same, and
    the communicator is aborted with the text.
    """

    def combine(low: _core.Block, high: _core.Block, type_name: str) -> None:
        import numpy

        dtype = _numpy_type(type_name)
        try:
            function(
                numpy.frombuffer(memoryview(low), dtype), numpy.frombuffer(memoryview(high), dtype)
            )
        except BaseException as failure:
            forget_arrays(failure)
            raise

    return _core.user_op(name, combine, commutative)


def forget_arrays(failure: Optional[BaseException]) -> None:
    """Frames of a traceback have the arrays, whose memory is gone when somebody looks at them."""
    seen = set()
    while failure is not None and id(failure) not in seen:
        seen.add(id(failure))
        traceback.clear_frames(failure.__traceback__)
        failure = failure.__cause__ or failure.__context__


def _numpy_type(name: str) -> Any:
    import numpy

    small = {
        "bfloat16": "bfloat16",
        "float8_e4m3": "float8_e4m3fn",
        "float8_e5m2": "float8_e5m2",
    }.get(name)
    if small is None:
        return numpy.dtype(name)
    import ml_dtypes

    return numpy.dtype(getattr(ml_dtypes, small))


class Received(NamedTuple):
    """What a receive got."""

    source: int
    tag: int
    count: int  # type: ignore[assignment]  #: elements; hides tuple.count()


_SLOTS = {"slots": True} if sys.version_info >= (3, 10) else {}


@dataclasses.dataclass(frozen=True, **_SLOTS)
class Traffic:
    """Payload that was moved."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0


@dataclasses.dataclass(frozen=True)
class TrafficReport:
    """What a communicator's calls have moved here so far."""

    #: Finished calls by collective, "all_reduce"; those of which there are any.
    calls: Dict[str, int]
    by_collective: Dict[str, Traffic]
    #: One for each rank: what went to it and came from it.
    by_peer: List[Traffic]

    @property
    def total(self) -> Traffic:
        """Of all peers."""
        columns = zip(*(dataclasses.astuple(peer) for peer in self.by_peer))
        return Traffic(*(sum(column) for column in columns))
