"""The calls of a communicator on arrays.

An array is NumPy's, or anything with the buffer protocol or DLPack, on the host or a GPU. None is
copied. Counts come from the arrays' lengths. Where ``out`` is left away the call is in place: its
one array is the larger of the two, and this rank's block lies in it at its own position.

From the call until it returns (or its Request is finished) the arrays are lent: do not write
inputs, do not touch outputs. All ranks make the same calls in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Optional

from ._core import Op
from .calls import (
    _ALL_GATHER,
    _ALL_GATHER_V,
    _ALL_REDUCE,
    _ALL_TO_ALL,
    _ALL_TO_ALL_V,
    _BARRIER,
    _BROADCAST,
    _EXSCAN,
    _GATHER,
    _GATHER_V,
    _REDUCE,
    _REDUCE_SCATTER,
    _REDUCE_SCATTER_V,
    _SCAN,
    _SCATTER,
    _SCATTER_V,
    Calls,
)
from .request import Request
from .types import SUM, A, Array

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .types import Options

Counts = Iterable[int]


class Collectives(Calls):
    """Each call has two forms: NAME waits and returns the output, NAME_async returns a Request.

    All take by name: ``timeout`` (seconds), ``algorithm``, ``order`` ("canonical" for results that
    are bitwise the same on any machine, "exact" for sums that are rounded once) and ``stream`` (CUDA).
    """

    __slots__ = ()

    # ---- Reductions ------------------------------------------------------------------------

    def all_reduce(
        self, in_: A, out: Optional[A] = None, op: Op = SUM, **options: Unpack[Options]
    ) -> A:
        """out = op over all ranks' in_, the same bits on every rank."""
        self._run(_ALL_REDUCE, in_, out, op, **options)
        return in_ if out is None else out

    def all_reduce_async(
        self, in_: A, out: Optional[A] = None, op: Op = SUM, **options: Unpack[Options]
    ) -> Request[A]:
        """As all_reduce(), without waiting."""
        return self._start(in_ if out is None else out, _ALL_REDUCE, in_, out, op, **options)

    def all_reduce_addends(
        self, addends: Iterable[Array], out: A, op: Op = SUM, **options: Unpack[Options]
    ) -> A:
        """out = op over all arrays in all ranks' addends, as if each were a rank's in_: the same bits
        however they are dealt out to ranks, with order="exact" in whatever sequence.

        Every array has out's type and length; a rank may have none. Host memory; not in a group.
        """
        if self._is_grouped:
            raise RuntimeError("all_reduce_addends() is made of several calls: not in a group")
        prepare = self._member.prepare
        try:
            calls = [prepare(_ALL_REDUCE, out, None, op, **options)]
            calls += [prepare(_ALL_REDUCE, addend, out, op, **options) for addend in addends]
        except Exception:
            self._member.refuse_addends(options.get("timeout"))  # the other ranks wait for them
            raise
        self._member.all_reduce_addends(calls)
        return out

    def reduce(
        self,
        in_: A,
        out: Optional[A] = None,
        op: Op = SUM,
        root: int = 0,
        **options: Unpack[Options],
    ) -> A:
        """As all_reduce(), but only root gets the result; out of the others is not touched."""
        self._run(_REDUCE, in_, out, op, root, **options)
        return in_ if out is None else out

    def reduce_async(
        self,
        in_: A,
        out: Optional[A] = None,
        op: Op = SUM,
        root: int = 0,
        **options: Unpack[Options],
    ) -> Request[A]:
        """As reduce(), without waiting."""
        return self._start(in_ if out is None else out, _REDUCE, in_, out, op, root, **options)

    def scan(self, in_: A, out: Optional[A] = None, op: Op = SUM, **options: Unpack[Options]) -> A:
        """out = op over ranks 0 to rank."""
        self._run(_SCAN, in_, out, op, **options)
        return in_ if out is None else out

    def scan_async(
        self, in_: A, out: Optional[A] = None, op: Op = SUM, **options: Unpack[Options]
    ) -> Request[A]:
        """As scan(), without waiting."""
        return self._start(in_ if out is None else out, _SCAN, in_, out, op, **options)

    def exscan(
        self, in_: A, out: Optional[A] = None, op: Op = SUM, **options: Unpack[Options]
    ) -> A:
        """out = op over ranks 0 to rank - 1; rank 0's out is not touched."""
        self._run(_EXSCAN, in_, out, op, **options)
        return in_ if out is None else out

    def exscan_async(
        self, in_: A, out: Optional[A] = None, op: Op = SUM, **options: Unpack[Options]
    ) -> Request[A]:
        """As exscan(), without waiting."""
        return self._start(in_ if out is None else out, _EXSCAN, in_, out, op, **options)

    def reduce_scatter(
        self, in_: A, out: Optional[A] = None, op: Op = SUM, **options: Unpack[Options]
    ) -> A:
        """out = op over all ranks' block `rank`; in_ has one block for each rank."""
        self._run(_REDUCE_SCATTER, in_, out, op, **options)
        return in_ if out is None else out

    def reduce_scatter_async(
        self, in_: A, out: Optional[A] = None, op: Op = SUM, **options: Unpack[Options]
    ) -> Request[A]:
        """As reduce_scatter(), without waiting."""
        return self._start(in_ if out is None else out, _REDUCE_SCATTER, in_, out, op, **options)

    def reduce_scatter_v(
        self,
        in_: A,
        out: Optional[A],
        counts: Counts,
        op: Op = SUM,
        **options: Unpack[Options],
    ) -> A:
        """As reduce_scatter(), where block r has counts[r] elements. Give None for out in place."""
        self._run(_REDUCE_SCATTER_V, in_, out, op, in_counts=counts, **options)
        return in_ if out is None else out

    def reduce_scatter_v_async(
        self,
        in_: A,
        out: Optional[A],
        counts: Counts,
        op: Op = SUM,
        **options: Unpack[Options],
    ) -> Request[A]:
        """As reduce_scatter_v(), without waiting."""
        return self._start(
            in_ if out is None else out,
            _REDUCE_SCATTER_V,
            in_,
            out,
            op,
            in_counts=counts,
            **options,
        )

    # ---- Data movers -----------------------------------------------------------------------

    def broadcast(self, data: A, root: int = 0, **options: Unpack[Options]) -> A:
        """Root's data to everyone's data; root's may be read-only."""
        self._run(_BROADCAST, data, None, None, root, **options)
        return data

    def broadcast_async(
        self, data: A, root: int = 0, **options: Unpack[Options]
    ) -> Request[A]:
        """As broadcast(), without waiting."""
        return self._start(data, _BROADCAST, data, None, None, root, **options)

    def all_gather(self, in_: A, out: Optional[A] = None, **options: Unpack[Options]) -> A:
        """Every rank's in_, in the order of ranks, in every rank's out."""
        self._run(_ALL_GATHER, in_, out, **options)
        return in_ if out is None else out

    def all_gather_async(
        self, in_: A, out: Optional[A] = None, **options: Unpack[Options]
    ) -> Request[A]:
        """As all_gather(), without waiting."""
        return self._start(in_ if out is None else out, _ALL_GATHER, in_, out, **options)

    def all_gather_v(
        self,
        in_: A,
        out: Optional[A],
        counts: Counts,
        displacements: Optional[Counts] = None,
        **options: Unpack[Options],
    ) -> A:
        """Rank r's counts[r] elements land at element displacements[r] of out (None: the blocks
        lie end to end). counts are the same on all ranks. Give None for out in place."""
        self._run(
            _ALL_GATHER_V, in_, out, out_counts=counts, out_displacements=displacements, **options
        )
        return in_ if out is None else out

    def all_gather_v_async(
        self,
        in_: A,
        out: Optional[A],
        counts: Counts,
        displacements: Optional[Counts] = None,
        **options: Unpack[Options],
    ) -> Request[A]:
        """As all_gather_v(), without waiting."""
        return self._start(
            in_ if out is None else out,
            _ALL_GATHER_V,
            in_,
            out,
            out_counts=counts,
            out_displacements=displacements,
            **options,
        )

    def gather(
        self, in_: A, out: Optional[A] = None, root: int = 0, **options: Unpack[Options]
    ) -> A:
        """Every rank's in_, in the order of ranks, in root's out; the others need none."""
        self._run(_GATHER, in_, out, None, root, **options)
        return in_ if out is None else out

    def gather_async(
        self, in_: A, out: Optional[A] = None, root: int = 0, **options: Unpack[Options]
    ) -> Request[A]:
        """As gather(), without waiting."""
        return self._start(in_ if out is None else out, _GATHER, in_, out, None, root, **options)

    def gather_v(
        self,
        in_: A,
        out: Optional[A] = None,
        counts: Optional[Counts] = None,
        displacements: Optional[Counts] = None,
        root: int = 0,
        **options: Unpack[Options],
    ) -> A:
        """As gather(), where root gives counts by rank, and where each block lies in its out."""
        self._run(
            _GATHER_V,
            in_,
            out,
            None,
            root,
            out_counts=counts,
            out_displacements=displacements,
            **options,
        )
        return in_ if out is None else out

    def gather_v_async(
        self,
        in_: A,
        out: Optional[A] = None,
        counts: Optional[Counts] = None,
        displacements: Optional[Counts] = None,
        root: int = 0,
        **options: Unpack[Options],
    ) -> Request[A]:
        """As gather_v(), without waiting."""
        return self._start(
            in_ if out is None else out,
            _GATHER_V,
            in_,
            out,
            None,
            root,
            out_counts=counts,
            out_displacements=displacements,
            **options,
        )

    def scatter(
        self, in_: Optional[A], out: Optional[A] = None, root: int = 0, **options: Unpack[Options]
    ) -> A:
        """Block r of root's in_ to rank r's out. The others give None for in_."""
        self._run(_SCATTER, in_, out, None, root, **options)
        return in_ if out is None else out  # type: ignore[return-value]

    def scatter_async(
        self, in_: Optional[A], out: Optional[A] = None, root: int = 0, **options: Unpack[Options]
    ) -> Request[A]:
        """As scatter(), without waiting."""
        return self._start(in_ if out is None else out, _SCATTER, in_, out, None, root, **options)

    def scatter_v(
        self,
        in_: Optional[A],
        out: Optional[A] = None,
        counts: Optional[Counts] = None,
        displacements: Optional[Counts] = None,
        root: int = 0,
        **options: Unpack[Options],
    ) -> A:
        """As scatter(), where root gives counts by rank, and where each block lies in its in_."""
        self._run(
            _SCATTER_V,
            in_,
            out,
            None,
            root,
            in_counts=counts,
            in_displacements=displacements,
            **options,
        )
        return in_ if out is None else out  # type: ignore[return-value]

    def scatter_v_async(
        self,
        in_: Optional[A],
        out: Optional[A] = None,
        counts: Optional[Counts] = None,
        displacements: Optional[Counts] = None,
        root: int = 0,
        **options: Unpack[Options],
    ) -> Request[A]:
        """As scatter_v(), without waiting."""
        return self._start(
            in_ if out is None else out,
            _SCATTER_V,
            in_,
            out,
            None,
            root,
            in_counts=counts,
            in_displacements=displacements,
            **options,
        )

    def all_to_all(self, in_: A, out: Optional[A] = None, **options: Unpack[Options]) -> A:
        """Block s of out is rank s's block `rank` of in_."""
        self._run(_ALL_TO_ALL, in_, out, **options)
        return in_ if out is None else out

    def all_to_all_async(
        self, in_: A, out: Optional[A] = None, **options: Unpack[Options]
    ) -> Request[A]:
        """As all_to_all(), without waiting."""
        return self._start(in_ if out is None else out, _ALL_TO_ALL, in_, out, **options)

    def all_to_all_v(
        self,
        in_: A,
        out: A,
        in_counts: Counts,
        out_counts: Counts,
        in_displacements: Optional[Counts] = None,
        out_displacements: Optional[Counts] = None,
        **options: Unpack[Options],
    ) -> A:
        """in_counts[r] elements go to rank r, out_counts[s] come from rank s. Never in place."""
        self._run(
            _ALL_TO_ALL_V,
            in_,
            out,
            in_counts=in_counts,
            in_displacements=in_displacements,
            out_counts=out_counts,
            out_displacements=out_displacements,
            **options,
        )
        return out

    def all_to_all_v_async(
        self,
        in_: A,
        out: A,
        in_counts: Counts,
        out_counts: Counts,
        in_displacements: Optional[Counts] = None,
        out_displacements: Optional[Counts] = None,
        **options: Unpack[Options],
    ) -> Request[A]:
        """As all_to_all_v(), without waiting."""
        return self._start(
            out,
            _ALL_TO_ALL_V,
            in_,
            out,
            in_counts=in_counts,
            in_displacements=in_displacements,
            out_counts=out_counts,
            out_displacements=out_displacements,
            **options,
        )

    def barrier(self, **options: Unpack[Options]) -> None:
        """Returns when every rank has called it."""
        self._run(_BARRIER, **options)

    def barrier_async(self, **options: Unpack[Options]) -> Request[None]:
        """As barrier(), without waiting."""
        return self._start(None, _BARRIER, **options)
