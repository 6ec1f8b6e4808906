#!/usr/bin/env python3
"""The short table at the end of run.sh, from the files in its output folder.

usage: table.py FOLDER [--rehearsal] [--all]

parts.tsv     part, pass|FAIL|missing, seconds, note
timing.jsonl  rows of `unisono perf --memory cuda --floor --json`
probe.jsonl   answers of gpu_probe
ncu_K.csv     bytes through memory of five all-reduces of K ranks
graph.jsonl   replays of gpu_graph
peers.jsonl   what peers.py measured

A goal is a bound of time/T: T is the time that a plain copy, measured in the same run, needs for the
bytes that must be read and written. A goal without figures is missed, not met. Exit status: 0 when
all parts passed, or could not run here, and all goals are met.
"""
import argparse
import csv
import json
import os
import sys

MIB = 1 << 20
RANKS = (2, 4, 8)
CALLS_UNDER_NCU = 5


class Goal:
    def __init__(self, collective, type, ranks_as, low, high, limit, plus_launch=False):
        self.collective, self.type, self.ranks_as = collective, type, ranks_as
        self.low, self.high, self.limit, self.plus_launch = low, high, limit, plus_launch

    def name(self):
        sizes = f">={self.low // MIB}M" if self.high is None else f"{self.low // MIB}-{self.high // MIB}M"
        time = "T+launch" if self.plus_launch else "T"
        return f"{self.collective} {self.type} {self.ranks_as} {sizes} /{time}"

    def holds(self, row):
        return (
            row["collective"] == self.collective
            and row["type"] == self.type
            and row["ranks_as"] == self.ranks_as
            and row["mode"] == "cold"
            and row["bytes"] >= self.low
            and (self.high is None or row["bytes"] <= self.high)
        )


GOALS = [
    Goal("all_reduce", "float32", "threads", 64 * MIB, None, 1.10),
    Goal("all_reduce", "bfloat16", "threads", 64 * MIB, None, 1.10),
    Goal("all_reduce", "float32", "threads", 4 * MIB, 16 * MIB, 1.25, plus_launch=True),
    Goal("all_reduce", "float32", "processes", 64 * MIB, None, 1.25),
    Goal("all_reduce", "bfloat16", "processes", 64 * MIB, None, 1.25),
    Goal("all_gather", "float32", "threads", 64 * MIB, None, 1.15),
    Goal("reduce_scatter", "float32", "threads", 64 * MIB, None, 1.15),
    Goal("broadcast", "float32", "threads", 64 * MIB, None, 1.15),
]


def load_lines(folder, name):
    """The objects of a file of JSON lines; a program that was stopped may leave half a line."""
    rows = []
    try:
        with open(os.path.join(folder, name)) as file:
            for line in file:
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    continue
    except FileNotFoundError:
        pass
    return rows


def load_parts(folder):
    parts = []
    try:
        with open(os.path.join(folder, "parts.tsv")) as file:
            for line in file:
                parts.append((line.rstrip("\n").split("\t") + [""] * 4)[:4])
    except FileNotFoundError:
        pass
    return parts


def launch_us(rows, row):
    """A call's time without its data: that of the smallest size measured."""
    same = [
        r for r in rows
        if all(r[key] == row[key] for key in ("collective", "type", "ranks_as", "ranks"))
    ]
    smallest = min(r["bytes"] for r in same)
    if smallest > 64 * 1024:
        return None
    return min(r["gpu_loop_us"] for r in same if r["bytes"] == smallest)


def ratio_of(goal, rows, row):
    if not goal.plus_launch:
        return row["floor_ratio"]
    launch = launch_us(rows, row)
    return None if launch is None else row["gpu_loop_us"] / (row["floor_us"] + launch)


def worst_ratio(goal, rows, ranks):
    """Of all sizes that the goal is about; None where there is no figure."""
    ratios = [
        ratio_of(goal, rows, row)
        for row in rows
        if row["ranks"] == ranks and goal.holds(row) and "floor_ratio" in row
    ]
    ratios = [ratio for ratio in ratios if ratio is not None]
    return max(ratios) if ratios else None


def judge_goals(rows, rehearsal):
    """Lines, and how many goals are missed."""
    lines, missed = [], 0
    rows = [row for row in rows if row.get("memory") == "cuda"]
    for goal in GOALS:
        ratios = [worst_ratio(goal, rows, ranks) for ranks in RANKS]
        if rehearsal:
            verdict = "not judged"
        elif None in ratios:
            verdict, missed = "MISSED: no figure", missed + 1
        elif max(ratios) <= goal.limit:
            verdict = "met"
        else:
            verdict, missed = "MISSED", missed + 1
        cells = "".join(f"{ratio:8.2f}" if ratio is not None else f"{'-':>8}" for ratio in ratios)
        lines.append(f"{goal.name():<46}{cells}{goal.limit:8.2f}  {verdict}")
    return lines, missed


def ncu_bytes(path):
    """Bytes through memory of all kernels in ncu's raw page, or None."""
    try:
        with open(path, newline="") as file:
            # What the measured program printed comes first.
            lines = [line for line in file if line.startswith('"')]
    except FileNotFoundError:
        return None
    table = list(csv.reader(lines))
    if len(table) < 2:
        return None
    scale = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
    columns = [i for i, name in enumerate(table[0]) if name.startswith("dram__bytes_")]
    if not columns:
        return None
    units = {i: scale.get(table[1][i], 1) for i in columns}
    total = 0.0
    for row in table[2:]:
        for i in columns:
            total += float(row[i].replace(",", "")) * units[i]
    return total


def ncu_line(folder, bytes_per_rank):
    cells, found = "", False
    for ranks in RANKS:
        total = ncu_bytes(os.path.join(folder, f"ncu_{ranks}.csv"))
        found = found or total is not None
        floor = 2 * ranks * bytes_per_rank * CALLS_UNDER_NCU
        cells += f"{'-':>8}" if total is None else f"{total / floor:8.2f}"
    return [f"{'DRAM bytes of all_reduce float32 /2kN (ncu)':<46}{cells}"] if found else []


def latency_line(rows):
    """The smallest all-reduce of threads, warm, in microseconds."""
    cells, found = "", False
    for ranks in RANKS:
        small = [
            r for r in rows
            if r["collective"] == "all_reduce" and r["type"] == "float32" and r["mode"] == "hot"
            and r["ranks"] == ranks and r["ranks_as"] == "threads" and r["bytes"] <= 64 * 1024
        ]
        found = found or bool(small)
        cells += f"{min(r['gpu_loop_us'] for r in small):8.1f}" if small else f"{'-':>8}"
    return [f"{'smallest all_reduce float32 threads, us':<46}{cells}"] if found else []


def graph_line(rows):
    cells, found = "", False
    for ranks in RANKS:
        times = [r["replay_us"] for r in rows if r["ranks"] == ranks and r["wrong"] == 0]
        found = found or bool(times)
        cells += f"{min(times):8.1f}" if times else f"{'-':>8}"
    return [f"{'the same replayed in a graph, us':<46}{cells}"] if found else []


def peer_lines(peers, rows):
    """How many times longer the best of a peer's ways takes, at the largest common size."""
    lines = []
    for peer in sorted({p["peer"] for p in peers if "us" in p}):
        cells = ""
        for ranks in RANKS:
            ratios = []
            for p in peers:
                if p["peer"] != peer or p["ranks"] != ranks or "us" not in p:
                    continue
                own = [
                    r["gpu_loop_us"] for r in rows
                    if r["collective"] == p["collective"] and r["type"] == p["type"]
                    and r["ranks"] == ranks and r["bytes"] == p["bytes"] and r["mode"] == "cold"
                    and r["ranks_as"] == p["ranks_as"]
                ]
                if own:
                    ratios.append((p["bytes"], p["us"] / min(own)))
            cells += f"{max(ratios)[1]:8.1f}" if ratios else f"{'-':>8}"
        lines.append(f"{peer + ', times unisono':<46}{cells}")
    return lines


def machine_line(probe):
    found = {p.get("what"): p.get("value") for p in probe if p.get("question") == "attributes"}
    if not found:
        return "GPU: not known (the probe did not answer)"
    version = int(found.get("driver_version", 0))
    return (
        f"GPU: {found.get('name')}, driver {version // 1000}.{version % 1000 // 10}, "
        f"MPS {'on' if found.get('mps_enabled') == 1 else 'off'}"
    )


def copy_rate(rows):
    rates = sorted(row["copy_GBps"] for row in rows if "copy_GBps" in row)
    if not rates:
        return ""
    return f"; a copy moves {rates[len(rates) // 2]:.0f} GB/s ({rates[0]:.0f} to {rates[-1]:.0f})"


def full_table(rows):
    print("| collective | type | ranks | as | mode | bytes | us | T us | us/T | one call us | wrong |")
    print("|---" * 11 + "|")
    key = lambda r: (r["collective"], r["type"], r["ranks_as"], r["ranks"], r["mode"], r["bytes"])
    for r in sorted(rows, key=key):
        if "gpu_loop_us" not in r:
            continue
        floor = f"{r['floor_us']:.1f} | {r['floor_ratio']:.2f}" if "floor_ratio" in r else "|"
        wrong = "-" if r["wrong"] is None else r["wrong"]
        print(
            f"| {r['collective']} | {r['type']} | {r['ranks']} | {r['ranks_as']} | {r['mode']} | "
            f"{r['bytes']} | {r['gpu_loop_us']:.1f} | {floor} | {r['gpu_us']['median']:.1f} | {wrong} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--rehearsal", action="store_true", help="judge no times")
    parser.add_argument("--all", action="store_true", help="every row of timing.jsonl, as Markdown")
    arguments = parser.parse_args()
    rows = load_lines(arguments.folder, "timing.jsonl")
    if arguments.all:
        full_table(rows)
        return 0
    parts = load_parts(arguments.folder)
    if arguments.rehearsal:
        print("REHEARSAL on a double of the driver: all times are meaningless")
    print(machine_line(load_lines(arguments.folder, "probe.jsonl")) + copy_rate(rows))
    for name, verdict, seconds, note in parts:
        print(f"{name:<12} {verdict:<7} {seconds:>4} s  {note[:80]}")
    print(f"{'time/T, worst of the sizes, cold':<46}" + "".join(f"{f'k={k}':>8}" for k in RANKS)
          + f"{'goal':>8}")
    lines, missed = judge_goals(rows, arguments.rehearsal)
    lines += ncu_line(arguments.folder, (64 << 10) if arguments.rehearsal else 256 * MIB)
    lines += latency_line(rows) + graph_line(load_lines(arguments.folder, "graph.jsonl"))
    peers = [p for p in load_lines(arguments.folder, "peers.jsonl") if p.get("right", True)]
    lines += peer_lines(peers, rows)
    print("\n".join(lines))
    failed = [name for name, verdict, _, _ in parts if verdict == "FAIL"]
    wrong = sum(row["wrong"] or 0 for row in rows + load_lines(arguments.folder, "correctness.jsonl"))
    if not parts:
        failed.append("everything: no part ran")
    print(
        f"parts failed: {', '.join(failed) or 'none'}; wrong elements: {wrong}; goals missed: "
        + ("not judged" if arguments.rehearsal else f"{missed} of {len(GOALS)}")
    )
    return 1 if failed or wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
