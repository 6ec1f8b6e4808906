#!/usr/bin/env python3
"""Failures by the thousand: who is told what, and when, and whether the others go on.

    bench/reliability/run.py [--kills 20] [--stops 4] [--program build/release/bench/reliability_bench]
                             [--transports auto,unix,tcp] [--ranks 8] [--csv FILE] [--seed 1]

In each trial a process of a job is killed, or stopped for good, at a random moment of a call, rank 0
as often as any other; the survivors say whom their error names and call shrink(). Prints tables;
exits with 1 where a survivor hung, named another rank, did not go on, or left something open, or
where a job left processes or names in /dev/shm: no other program may make any there meanwhile. About
10 minutes on two cores. peers.py does the like for other libraries; report.py writes both, and what
rejoin.py measures, into docs/reliability.md.
"""

import argparse
import collections
import csv
import os
import statistics
import subprocess
import sys
import time

COLLECTIVES = (
    "all_reduce reduce broadcast all_gather all_gather_v reduce_scatter reduce_scatter_v gather gather_v "
    "scatter scatter_v all_to_all all_to_all_v barrier scan exscan send"
).split()
COUNTS = (16, 50_000)
FIELDS = (
    "fault transport collective count ranks victim delay_us survivors told_ms on_ms named same went_on "
    "left hung said"
).split()
# What is counted around all trials of a cell, and written to the row of its last one.
COUNTED = ["processes", "shm"]
# A stopped process is told from a slow one by its silence. 3 s by default.
SILENCE = "1s"


def processes_of(session):
    """How many processes are left of a session, zombies apart."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, _, _, its_session = file.read().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        count += int(its_session) == session and state != "Z"
    return count


def run_cell(arguments, fault, transport, collective, count, trials, seed, first_victim):
    command = [arguments.program, "--fault", fault, "--transport", transport, "--collective", collective]
    command += ["--count", str(count), "--ranks", str(arguments.ranks), "--trials", str(trials)]
    command += ["--seed", str(seed), "--first-victim", str(first_victim % arguments.ranks)]
    environment = dict(os.environ)
    if fault == "stop":
        environment["UNISONO_SILENCE"] = SILENCE
    names = set(os.listdir("/dev/shm"))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as job:
        lines = job.stdout.read().splitlines()
    if job.returncode != 0:
        raise subprocess.CalledProcessError(job.returncode, command)
    rows = list(csv.DictReader(lines, fieldnames=FIELDS))
    for row in rows:
        row.update(dict.fromkeys(COUNTED, "0"))
    rows[-1]["processes"] = str(processes_of(job.pid))
    rows[-1]["shm"] = str(len(set(os.listdir("/dev/shm")) - names))
    return rows


def run_all(arguments):
    trials = []
    cells = [
        (fault, transport, collective, count, number)
        for fault, number in (("kill", arguments.kills), ("stop", arguments.stops))
        for transport in arguments.transports.split(",")
        for collective in COLLECTIVES
        for count in COUNTS
        if number > 0
    ]
    began = time.monotonic()
    for done, (fault, transport, collective, count, number) in enumerate(cells):
        share = number // 2 + (number % 2 if count == COUNTS[0] else 0)
        if share == 0:
            continue
        trials += run_cell(
            arguments, fault, transport, collective, count, share, arguments.seed + done, len(trials)
        )
        if sys.stderr.isatty():
            left = (time.monotonic() - began) / (done + 1) * (len(cells) - done - 1)
            print(f"\r{done + 1} of {len(cells)}, {left:.0f} s left ", end="", file=sys.stderr)
    return trials


def total(rows, field):
    return sum(int(row[field]) for row in rows)


def is_right(row):
    return all(row[field] == "0" for field in ["hung", "left", *COUNTED]) and all(
        row[field] == row["survivors"] for field in ("named", "same", "went_on")
    )


def line_of(name, rows):
    told = [float(row["told_ms"]) for row in rows]
    on = [float(row["on_ms"]) for row in rows]
    survivors = total(rows, "survivors")
    return (
        f"| {name} | {len(rows)} | {statistics.median(told):.1f} | {max(told):.1f} "
        f"| {statistics.median(on):.1f} | {max(on):.1f} | {total(rows, 'named')} of {survivors} "
        f"| {total(rows, 'same')} | {total(rows, 'went_on')} | {total(rows, 'left')} "
        f"| {total(rows, 'processes')} | {total(rows, 'shm')} | {total(rows, 'hung')} |"
    )


def table_of(trials, first_column, key):
    groups = collections.defaultdict(list)
    for row in trials:
        groups[key(row)].append(row)
    return [
        f"| {first_column} | trials | told, ms: median | max | gone on, ms: median | max "
        "| named the true rank | said the same | went on | left open | processes left | in /dev/shm | hung |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        *(line_of(name, groups[name]) for name in sorted(groups)),
        "",
    ]


def tables_of(trials):
    """By transport, by victim, and by collective, as lines of Markdown."""
    return (
        table_of(trials, "fault, transport", lambda row: f"{row['fault']}, {row['transport']}")
        + table_of(trials, "fault, victim", lambda row: f"{row['fault']}, rank {row['victim']}")
        + table_of(
            trials,
            "fault, transport, collective",
            lambda row: f"{row['fault']}, {row['transport']}, {row['collective']}",
        )
    )


def parser_of(description):
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20, help="of each transport and collective")
    parser.add_argument("--stops", type=int, default=4, help="of each transport and collective")
    parser.add_argument("--transports", default="auto,unix,tcp")
    parser.add_argument("--ranks", type=int, default=8, help="what ranks from 4 on leave open is counted")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--program", default="build/release/bench/reliability_bench")
    parser.add_argument("--csv", help="every trial")
    arguments = parser.parse_args()
    trials = run_all(arguments)
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS + COUNTED)
            writer.writeheader()
            writer.writerows(trials)
    print("\n".join(tables_of(trials)))
    wrong = [row for row in trials if not is_right(row)]
    for row in wrong[:20]:
        print("wrong:", ", ".join(f"{name} {value}" for name, value in row.items()))
    print(f"{len(trials)} trials, {len(wrong)} of them with a survivor that was told or did wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
