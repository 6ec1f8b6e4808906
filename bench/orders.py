#!/usr/bin/env python3
"""What reproducible reductions cost: all_reduce in each order, beside the default, in turns.

    bench/orders.py [--unisono build/release/tools/unisono] [--rounds 7]

A row is a transport, a number of ranks, a type and a size; its ratios are medians of the rounds' own
ratios, because a machine may be in another state in another round.
"""

import argparse
import collections
import json
import os
import statistics
import subprocess

ORDERS = ("any", "canonical", "exact")
CASES = [
    (transport, ranks, dtype)
    for transport, dtypes in (("shm", ("float32", "bfloat16")), ("tcp", ("float32",)))
    for ranks in (2, 4)
    for dtype in dtypes
]


def measure(program, case, order):
    """Bytes and microseconds of each size."""
    transport, ranks, dtype = case
    command = [program, "perf", "all_reduce", "-n", str(ranks), "-d", dtype, "--transport", transport]
    command += ["-b", "64K", "-e", "64M", "-f", "4", "--in-place", "-c", "0", "--budget-ms", "40", "--json"]
    done = subprocess.run(
        command, env=dict(os.environ, UNISONO_ORDER=order), stdout=subprocess.PIPE, text=True, check=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["bytes"]: row["time_us"]["median"] for row in rows}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--unisono", default="build/release/tools/unisono")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    times = collections.defaultdict(list)
    for _ in range(arguments.rounds):
        for case in CASES:
            for order in ORDERS:
                for size, us in measure(arguments.unisono, case, order).items():
                    times[case, size, order].append(us)
    print(f"{'transport':10} {'ranks':>5} {'type':9} {'bytes':>10} {'us':>10} {'canonical':>9} {'exact':>6}")
    for case, size in sorted({key[:2] for key in times}):
        default = times[case, size, "any"]
        ratios = [
            statistics.median(b / a for a, b in zip(default, times[case, size, order]))
            for order in ORDERS[1:]
        ]
        transport, ranks, dtype = case
        print(
            f"{transport:10} {ranks:5} {dtype:9} {size:10} {statistics.median(default):10.1f}"
            f" {ratios[0]:9.2f} {ratios[1]:6.2f}"
        )


if __name__ == "__main__":
    main()
