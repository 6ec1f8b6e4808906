"""What unisono has to reach: how many times faster than the best peer, as data.

The first bar that fits a measurement counts. Bytes are those of the row; 0 is a barrier.
"""
from dataclasses import dataclass
from typing import Optional, Tuple

K, M, G = 1 << 10, 1 << 20, 1 << 30
REDUCTIONS = ("all_reduce", "reduce_scatter")
MOVES = ("broadcast", "all_gather", "gather", "scatter", "all_to_all", "send_receive")
ALL = ("barrier",) + REDUCTIONS + MOVES


@dataclass(frozen=True)
class Bar:
    wire: str  # "shm" or "tcp"
    ranks: Tuple[int, ...]
    collectives: Tuple[str, ...]
    buffers: str
    bytes_min: int
    bytes_max: int
    ratio: float
    mode: Optional[str] = None  # None: hot and cold alike
    after_empty: bool = False  # both times without the cost of an empty operation

    def fits(self, wire, ranks, collective, buffers, size, mode):
        return (
            wire == self.wire
            and ranks in self.ranks
            and collective in self.collectives
            and buffers == self.buffers
            and self.bytes_min <= size <= self.bytes_max
            and self.mode in (None, mode)
        )


BARS = [
    # Two ranks, private buffers.
    Bar("shm", (2,), ("barrier",), "private", 0, 0, 2.0, after_empty=True),
    Bar("shm", (2,), REDUCTIONS, "private", 4, 1 * K, 2.0, after_empty=True),
    Bar("shm", (2,), REDUCTIONS, "private", 4 * K, 4 * M, 2.0),
    Bar("shm", (2,), REDUCTIONS, "private", 16 * M, 16 * M, 1.5),
    Bar("shm", (2,), REDUCTIONS, "private", 64 * M, 256 * M, 3.3),
    Bar("shm", (2,), MOVES, "private", 4 * K, 16 * K, 2.0),
    Bar("shm", (2,), MOVES, "private", 1, 64 * K - 1, 1.5),
    Bar("shm", (2,), MOVES, "private", 64 * K, G, 1.0),
    # Two ranks, buffers from unisono::allocate.
    Bar("shm", (2,), REDUCTIONS, "allocated", 64 * K, 16 * M, 3.0, mode="hot"),
    Bar("shm", (2,), REDUCTIONS, "allocated", 64 * K, 16 * M, 2.0, mode="cold"),
    Bar("shm", (2,), REDUCTIONS, "allocated", 64 * M, 64 * M, 4.5),
    Bar("shm", (2,), MOVES, "allocated", 64 * K, G, 1.7),
    # More ranks than cores, on the machine these bars were set on.
    Bar("shm", (4, 8), ALL, "private", 0, 64 * K - 1, 1.6),
    Bar("shm", (4, 8), REDUCTIONS, "private", 64 * K, G, 2.5),
    Bar("shm", (4, 8), MOVES, "private", 64 * K, G, 1.3),
    # Loopback TCP.
    Bar("tcp", (2, 4), ("all_reduce",), "private", 4 * M, 16 * M, 1.5),
    Bar("tcp", (2, 4), ("all_reduce",), "private", 64 * M, 64 * M, 1.25),
    Bar("tcp", (2, 4), ALL, "private", 0, G, 1.0),
]

# unisono over UNIX sockets against unisono over loopback TCP.
UNIX_OVER_TCP = 1.2
# 4-byte all-reduces per second while a third process keeps one core busy.
BUSY = 5.0


def find(wire, ranks, collective, buffers, size, mode):
    """The bar of a measurement, or None."""
    for bar in BARS:
        if bar.fits(wire, ranks, collective, buffers, size, mode):
            return bar
    return None
