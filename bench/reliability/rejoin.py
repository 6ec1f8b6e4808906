#!/usr/bin/env python3
"""How long a job takes to go on after a kill, and to be whole again.

    bench/reliability/rejoin.py [--build build/release] [-n RANKS] [--trials N] [--transport NAME]

Ranks of one job are killed one after the other, rank 0 as often as any other; `unisono run
--max-restarts` starts each again and it rejoins. Prints medians and largest of the times, in ms.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys

FROM_TO = (
    ("killed", "went_on", "killed until the last survivor's first right all_reduce"),
    ("killed", "started", "killed until its successor's main()"),
    ("started", "whole", "successor's main() until the last rank's first right all_reduce"),
)


def times_of(build, ranks, trials, transport):
    """For each of FROM_TO the times of all trials, in ms."""
    folder = pathlib.Path(build)
    command = [folder / "tools/unisono", "run", "-n", str(ranks), "--no-prefix"]
    command += ["--max-restarts", str(trials), folder / "bench/rejoin_bench"]
    environment = os.environ | {"UNISONO_TRANSPORT": transport}
    done = subprocess.run([*command, str(trials)], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    latest = {}
    for line in done.stdout.splitlines():
        trial, what, at = line.split()
        key = int(trial), what
        latest[key] = max(latest.get(key, 0), int(at))
    return [
        [(latest[t, end] - latest[t, begin]) / 1e6 for t in range(trials)] for begin, end, _ in FROM_TO
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release")
    parser.add_argument("-n", type=int, default=4)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--transport", default="auto")
    options = parser.parse_args()
    all_times = times_of(options.build, options.n, options.trials, options.transport)
    print(f"{options.n} ranks, {options.transport}, {options.trials} kills")
    for (_, _, words), times in zip(FROM_TO, all_times):
        print(f"{statistics.median(times):8.1f} median {max(times):8.1f} max  {words}")


if __name__ == "__main__":
    main()
