#!/usr/bin/env python3
"""The short table at the end of run.sh, from the files of its raw output.

usage: table.py FOLDER [--rehearsal] [--unjudged WHY] [--all]

parts.tsv     part, pass|FAIL|missing|no time, seconds, note
timing.jsonl  rows of `unisono perf --memory cuda --floor --json`, and its floors
brief.jsonl   rows of two sizes, warm
probe.jsonl   answers of gpu_probe
ncu_K.csv     bytes through memory of five all-reduces of K ranks
graph.jsonl   replays of gpu_graph
peers.jsonl   what peers.py measured

A goal is a bound of time/T: T is the time that the best copy, measured in the same run, needs for
the bytes that must be read and written; launch is the time of an empty kernel. A goal without
figures is missed, not met. Exit status: 0 when all parts passed, could not run here or had no time,
and all goals are met.
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
        low, high = self.low // MIB, (self.high or 0) // MIB
        sizes = f">={low}M" if self.high is None else f"{low}-{high}M"
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


def copy_rates(lines, name="copy_GBps"):
    """Of one way to copy, or of the best, in GB/s: every figure of the run, at the beginning of a
    program and at its end."""
    rates = [line["copy_GBps"] for line in lines if name == "copy_GBps" and "copy_GBps" in line]
    for floors in (line["floor"] for line in lines if "floor" in line):
        for floor in floors.values():
            rates += [floor[key] for key in ("driver_copy_GBps", "kernel_copy_GBps")
                      if name in ("copy_GBps", key)]
    return rates


def floor_us(row, best_rate):
    """T by the best rate of the run: a program that met a slow moment has no longer T."""
    return row["floor_us"] * row["copy_GBps"] / best_rate


def ratio_of(goal, row, best_rate):
    launch = row["launch_us"] if goal.plus_launch else 0
    return row["gpu_loop_us"] / (floor_us(row, best_rate) + launch)


def worst_ratio(goal, rows, ranks, best_rate):
    """Of all sizes that the goal is about; None where there is no figure."""
    ratios = [
        ratio_of(goal, row, best_rate)
        for row in rows
        if row["ranks"] == ranks and goal.holds(row) and "floor_ratio" in row
    ]
    return max(ratios) if ratios else None


def judge_goals(lines_of_timing, unjudged, had_time=True):
    """Lines, and how many goals are missed."""
    lines, missed = [], 0
    rows = [row for row in lines_of_timing if row.get("memory") == "cuda"]
    best_rate = max(copy_rates(lines_of_timing), default=0)
    for goal in GOALS:
        ratios = [worst_ratio(goal, rows, ranks, best_rate) for ranks in RANKS]
        if unjudged:
            verdict = "not judged"
        elif None in ratios and not had_time:
            verdict = "no time"
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


LATENCIES = (
    ("one behind the other", lambda row: row["gpu_loop_us"]),
    ("alone on the GPU", lambda row: row["gpu_us"]["median"]),
    ("alone with the host", lambda row: row["time_us"]["median"]),
)


def latency_lines(rows):
    """The smallest all-reduce, warm, in microseconds: one of many, and one call alone."""
    lines = []
    for ranks_as in ("threads", "processes"):
        small = [
            r for r in rows
            if r["collective"] == "all_reduce" and r["type"] == "float32" and r["mode"] == "hot"
            and r["ranks_as"] == ranks_as and r["bytes"] <= 64 * 1024
        ]
        for what, time_of in LATENCIES if small else ():
            cells = ""
            for ranks in RANKS:
                times = [time_of(r) for r in small if r["ranks"] == ranks]
                cells += f"{min(times):8.1f}" if times else f"{'-':>8}"
            lines.append(f"{f'least us, {ranks_as}, {what}':<46}{cells}")
    return lines


def graph_line(rows):
    cells, found = "", False
    for ranks in RANKS:
        times = [r["replay_us"] for r in rows if r["ranks"] == ranks and r["wrong"] == 0]
        found = found or bool(times)
        cells += f"{min(times):8.1f}" if times else f"{'-':>8}"
    return [f"{'least us, threads, replayed in a graph':<46}{cells}"] if found else []


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


def held_up_lines(probe):
    """What streams that wait hold up, by question."""
    lines = []
    for question in dict.fromkeys(p.get("question") for p in probe):
        names = [p["what"].removesuffix("_us") for p in probe
                 if p.get("question") == question and p.get("value") == "held up"]
        if names:
            lines.append(f"held up ({question}): " + ", ".join(names))
    return lines


def floor_lines(lines):
    """The two ways to copy, and an empty kernel, over all programs of the run."""
    texts = []
    for copy, what in (("driver", "the driver's copy"), ("kernel", "a kernel's")):
        rates = copy_rates(lines, copy + "_copy_GBps")
        if rates:
            texts.append(f"{what} {max(rates):.0f} ({min(rates):.0f} to {max(rates):.0f})")
    if not texts:
        return []
    launches = [line["launch_us"] for line in lines if "launch_us" in line]
    launch = f"; an empty kernel {min(launches):.2f} us" if launches else ""
    return ["GB/s read and written: " + ", ".join(texts) + launch]


def full_table(rows):
    print("| collective | type | ranks | as | mode | bytes | us | T us | us/T | one call us "
          "| wrong |")
    print("|---" * 11 + "|")
    key = lambda r: (r["collective"], r["type"], r["ranks_as"], r["ranks"], r["mode"], r["bytes"])
    for r in sorted(rows, key=key):
        if "gpu_loop_us" not in r:
            continue
        floor = f"{r['floor_us']:.1f} | {r['floor_ratio']:.2f}" if "floor_ratio" in r else "|"
        wrong = "-" if r["wrong"] is None else r["wrong"]
        print(
            f"| {r['collective']} | {r['type']} | {r['ranks']} | {r['ranks_as']} | {r['mode']} "
            f"| {r['bytes']} | {r['gpu_loop_us']:.1f} | {floor} | {r['gpu_us']['median']:.1f} "
            f"| {wrong} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--rehearsal", action="store_true", help="sizes are tiny")
    parser.add_argument("--unjudged", metavar="WHY", help="judge no goals")
    parser.add_argument("--all", action="store_true", help="every row of timing.jsonl, as Markdown")
    arguments = parser.parse_args()
    lines_of_timing = load_lines(arguments.folder, "timing.jsonl")
    rows = [row for row in lines_of_timing if "collective" in row]
    brief = load_lines(arguments.folder, "brief.jsonl")
    if arguments.all:
        full_table(rows)
        return 0
    parts = load_parts(arguments.folder)
    if arguments.rehearsal:
        print("REHEARSAL on a double of the driver: all times are meaningless")
    probe = load_lines(arguments.folder, "probe.jsonl")
    print(machine_line(probe))
    for name, outcome, seconds, note in parts:
        print(f"{name:<12} {outcome:<7} {seconds:>4} s  {note[:160]}")
    lines = held_up_lines(probe) + floor_lines(lines_of_timing)
    lines.append(f"{'time/T, worst of the sizes, cold':<46}"
                 + "".join(f"{f'k={k}':>8}" for k in RANKS) + f"{'goal':>8}")
    # What was cut or left out is told by its part, and is no figure that was missed.
    had_time = all(outcome not in ("no time", "missing")
                   for name, outcome, _, _ in parts if name == "goals")
    goals, missed = judge_goals(lines_of_timing, arguments.unjudged, had_time)
    lines += goals if rows or not arguments.unjudged else []
    lines += ncu_line(arguments.folder, (64 << 10) if arguments.rehearsal else 256 * MIB)
    lines += latency_lines(brief or rows)
    lines += graph_line(load_lines(arguments.folder, "graph.jsonl"))
    peers = [p for p in load_lines(arguments.folder, "peers.jsonl") if p.get("right", True)]
    lines += peer_lines(peers, rows)
    print("\n".join(lines))
    failed = [name for name, outcome, _, _ in parts if outcome == "FAIL"]
    late = [name for name, outcome, _, _ in parts if outcome == "no time"]
    checked = rows + brief
    for name in ("correctness.jsonl", "waits.jsonl"):
        checked += load_lines(arguments.folder, name)
    wrong = sum(row["wrong"] or 0 for row in checked)
    if not parts:
        failed.append("everything: no part ran")
    print(
        f"parts failed: {', '.join(failed) or 'none'}; had no time: {', '.join(late) or 'none'}; "
        f"wrong elements: {wrong}; goals missed: "
        + (f"not judged ({arguments.unjudged})" if arguments.unjudged
           else f"{missed} of {len(GOALS)}")
    )
    return 1 if failed or wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
