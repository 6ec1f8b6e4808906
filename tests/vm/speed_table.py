#!/usr/bin/env python3
"""Medians and ratios of tests/vm/speed.sh: reads its JSON lines, prints a table."""
import json
import statistics
import sys


def load(path):
    """The figures by what they are, one a round; other lines are kept as they are."""
    figures, rest = {}, []
    for line in open(path, encoding="utf-8"):
        if not line.startswith("{"):
            if line.startswith("#") and "unisono" not in line or line[:2].strip().isdigit():
                rest.append(line.rstrip())
            continue
        row = json.loads(line)
        if "operation" in row:
            key = (row["operation"], row["bytes"], row["streams"])
            value = row.get("round_trip_us") or row.get("bytes_per_second")
        elif row.get("in_place"):
            continue
        else:
            key = (row["collective"], row["bytes"], row["ranks"])
            value = row["loop_us"]
        figures.setdefault(key, []).append(value)
    return figures, rest


def row(name, bare, ours, ratios, bar):
    print(f"{name:<40} {bare:>12} {ours:>12} {statistics.median(ratios):>7.2f}  {bar}"
          f"   ({min(ratios):.2f} to {max(ratios):.2f})")


def main():
    figures, rest = load(sys.argv[1])
    write = figures["write_stream", 4194304, 1]
    write4 = figures["write_stream", 4194304, 4]
    add = figures["add_float32", 4194304, 1]
    trip = figures["write_imm_ping_pong", 8, 1]
    small = [2 * us for us in figures["p2p", 8, 2]]
    large = [16777216 / us for us in figures["p2p", 16777216, 2]]
    reduce = figures["all_reduce", 4194304, 4]
    size = 4194304
    floor = [1e6 * (6 * size / w + 3 * size / a) for w, a in zip(write4, add)]
    print(f"{'medians of ' + str(len(write)) + ' rounds':<40} {'bare':>12} {'unisono':>12} "
          f"{'ratio':>7}  bar")
    middle = statistics.median
    row("round trip of 8 bytes, us", f"{middle(trip):.1f}", f"{middle(small):.1f}",
        [o / b for o, b in zip(small, trip)], "at most 1.3 ")
    row("p2p of 16 MiB / write stream, MB/s", f"{middle(write) / 1e6:.0f}",
        f"{middle(large):.0f}", [o * 1e6 / b for o, b in zip(large, write)], "at least 0.9")
    row("all_reduce of 4 MiB, 4 ranks, 4 ports, us", f"{middle(floor):.0f}",
        f"{middle(reduce):.0f}", [o / b for o, b in zip(reduce, floor)], "at most 1.2 ")
    print("\n".join(rest))


if __name__ == "__main__":
    main()
