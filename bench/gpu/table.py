#!/usr/bin/env python3
"""The short table at the end of run.sh, from the files of its raw output.

usage: table.py raw-1.tar.gz|FOLDER [--all]

run.json      the call, and why no goals are judged; date, host, commit
parts.tsv     part, pass|FAIL|missing|no time, seconds, note
timing.jsonl  rows of `unisono perf --memory cuda --floor --json`, and its floors
brief.jsonl   rows of two sizes, warm
probe.jsonl   answers of gpu_probe
ncu_K.csv     bytes through memory of all-reduces of K ranks, a kernel each
graph.jsonl   replays of gpu_graph
peers.jsonl   what peers.py measured

A goal is a bound of time/T: T is the time that the best copy, measured in the same run, needs for
the bytes that must be read and written; launch is the time of an empty kernel. One figure over the
bound misses a goal; it is met with all of its sizes alone, and missed without them unless their
part had no time. Exit status: 1 when a part failed, an element was wrong or a goal was missed; else 75
when a part had no time; 2 without raw output.
"""
import argparse
import csv
import json
import os
import re
import sys
import tarfile
import tempfile

MIB = 1 << 20
RANKS = (2, 4, 8)


class Goal:
    def __init__(self, collective, type, ranks_as, low, high, limit, plus_launch=False):
        self.collective, self.type, self.ranks_as = collective, type, ranks_as
        self.low, self.high, self.limit, self.plus_launch = low, high, limit, plus_launch
        # What run.sh measures for it: low and four times low. Other sizes of the range count too.
        self.sizes = (low, 4 * low)

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


def name_of_size(size):
    return f"{size // MIB}M" if size >= MIB else f"{size // 1024}K"


def names_of(sizes):
    return ",".join(map(name_of_size, sizes)) or "none"


def judge_goals(lines_of_timing, unjudged, had_time=True):
    """Lines, and the verdict on each goal."""
    lines, verdicts = [], []
    rows = [row for row in lines_of_timing if row.get("memory") == "cuda" and "floor_ratio" in row]
    best_rate = max(copy_rates(lines_of_timing), default=0)
    for goal in GOALS:
        # By ranks and size.
        ratios = {}
        for row in rows:
            if goal.holds(row) and row["ranks"] in RANKS:
                key = (row["ranks"], row["bytes"])
                ratios[key] = max(ratios.get(key, 0), ratio_of(goal, row, best_rate))
        sizes = [size for size in goal.sizes if all((ranks, size) in ratios for ranks in RANKS)]
        is_complete = len(sizes) == len(goal.sizes)
        note = "" if is_complete else f" of {names_of(goal.sizes)}"
        if unjudged:
            verdict = "not judged"
        elif max(ratios.values(), default=0) > goal.limit:
            verdict = "MISSED"
        elif is_complete:
            verdict = "met"
        else:
            verdict = "MISSED: no figure" if had_time else "no time"
        verdicts.append(verdict)
        worst = [max((r for (k, _), r in ratios.items() if k == ranks), default=None)
                 for ranks in RANKS]
        cells = "".join(f"{ratio:8.2f}" if ratio is not None else f"{'-':>8}" for ratio in worst)
        lines.append(f"{goal.name():<46}{cells}{goal.limit:8.2f}  {verdict} "
                     f"({names_of(sizes)}{note})")
    return lines, verdicts


def ncu_bytes(path):
    """Bytes through memory of a kernel, the mean of those in ncu's raw page, or None."""
    try:
        with open(path, newline="") as file:
            # What the measured program printed comes first.
            lines = [line for line in file if line.startswith('"')]
    except FileNotFoundError:
        return None
    table = list(csv.reader(lines))
    if len(table) < 3:
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
    return total / (len(table) - 2)


def ncu_line(folder, bytes_per_rank):
    cells, found = "", False
    for ranks in RANKS:
        # A call of threads is one kernel.
        read_and_written = ncu_bytes(os.path.join(folder, f"ncu_{ranks}.csv"))
        found = found or read_and_written is not None
        floor = 2 * ranks * bytes_per_rank
        cells += f"{'-':>8}" if read_and_written is None else f"{read_and_written / floor:8.2f}"
    return [f"{'DRAM bytes of all_reduce float32 /2kN (ncu)':<46}{cells}"] if found else []


LATENCIES = (
    ("one behind the other", lambda row: row["gpu_loop_us"]),
    ("alone on the GPU", lambda row: row["gpu_us"]["median"]),
    ("alone with the host", lambda row: row["time_us"]["median"]),
)


def least_line(rows, what, time_of):
    """Microseconds of the smallest size that was measured."""
    size = min(row["bytes"] for row in rows)
    cells = ""
    for ranks in RANKS:
        times = [time_of(r) for r in rows if r["ranks"] == ranks and r["bytes"] == size]
        cells += f"{min(times):8.1f}" if times else f"{'-':>8}"
    return f"{f'us of {name_of_size(size)}, {what}':<46}{cells}"


def latency_lines(rows):
    """The smallest all-reduce, warm: one of many, and one call alone."""
    lines = []
    for ranks_as in ("threads", "processes"):
        small = [
            r for r in rows
            if r["collective"] == "all_reduce" and r["type"] == "float32" and r["mode"] == "hot"
            and r["ranks_as"] == ranks_as and r["bytes"] <= 64 * 1024
        ]
        lines += [least_line(small, f"{ranks_as}, {what}", time_of)
                  for what, time_of in LATENCIES if small]
    return lines


def graph_lines(rows):
    rows = [row for row in rows if row["wrong"] == 0]
    what = "threads, replayed in a graph"
    return [least_line(rows, what, lambda row: row["replay_us"])] if rows else []


def peer_lines(peers, rows):
    """How many times longer a peer takes, at the largest common size, or how long where there is
    none; and what it got wrong."""
    lines = []
    for name in dict.fromkeys((p["peer"], p["collective"]) for p in peers):
        times, ratios = {}, {}
        for p in peers:
            if (p["peer"], p["collective"]) != name or not p.get("right", True):
                continue
            own = [
                r["gpu_loop_us"] for r in rows
                if r["collective"] == p["collective"] and r["type"] == p["type"]
                and r["ranks"] == p["ranks"] and r["bytes"] == p["bytes"] and r["mode"] == "cold"
                and r["ranks_as"] == p["ranks_as"]
            ]
            times[p["bytes"], p["ranks"]] = p["us"]
            if own:
                ratios[p["bytes"], p["ranks"]] = p["us"] / min(own)
        if not times:
            continue
        figures = ratios or times
        size = max(figures)[0]
        cells = "".join(f"{figures[size, k]:8.1f}" if (size, k) in figures else f"{'-':>8}"
                        for k in RANKS)
        what = f"{' '.join(name)} {name_of_size(size)}, {'times unisono' if ratios else 'us'}"
        lines.append(f"{what:<46}{cells}")
    wrong = [f"{p['peer']} {p['collective']} k={p['ranks']} {name_of_size(p['bytes'])}"
             for p in peers if not p.get("right", True)]
    return lines + (["peers with wrong results: " + ", ".join(wrong)] if wrong else [])


def load_run(folder):
    try:
        with open(os.path.join(folder, "run.json")) as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return {}


def driver_of(folder):
    """As nvidia-smi tells it."""
    try:
        with open(os.path.join(folder, "nvidia-smi.txt"), errors="replace") as file:
            found = re.search(r"Driver Version: *([0-9.]+)", file.read())
    except FileNotFoundError:
        return ""
    return f", driver {found[1]}" if found else ""


def machine_lines(folder, probe, run):
    lines = []
    if run:
        lines.append(f"call {run.get('call')}, {run.get('date')}, host {run.get('host')}, "
                     f"commit {run.get('commit')}")
    found = {p.get("what"): p.get("value") for p in probe if p.get("question") == "attributes"}
    if not found:
        return lines + ["GPU: not known (the probe did not answer)"]
    version = int(found.get("driver_version", 0))
    return lines + [
        f"GPU: {found.get('name')}, CUDA {version // 1000}.{version % 1000 // 10}"
        f"{driver_of(folder)}, MPS {'on' if found.get('mps_enabled') == 1 else 'off'}"
    ]


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


def full_table(rows, best_rate):
    print("| collective | type | ranks | as | mode | bytes | us | T us | us/T | one call us "
          "| wrong |")
    print("|---" * 11 + "|")
    key = lambda r: (r["collective"], r["type"], r["ranks_as"], r["ranks"], r["mode"], r["bytes"])
    for r in sorted(rows, key=key):
        if "gpu_loop_us" not in r:
            continue
        floor = "|"
        if "floor_ratio" in r:
            us = floor_us(r, best_rate)
            floor = f"{us:.1f} | {r['gpu_loop_us'] / us:.2f}"
        wrong = "-" if r["wrong"] is None else r["wrong"]
        print(
            f"| {r['collective']} | {r['type']} | {r['ranks']} | {r['ranks_as']} | {r['mode']} "
            f"| {r['bytes']} | {r['gpu_loop_us']:.1f} | {floor} | {r['gpu_us']['median']:.1f} "
            f"| {wrong} |"
        )


def print_tables(folder, every_row):
    if not os.path.exists(os.path.join(folder, "parts.tsv")):
        folder = os.path.join(folder, "raw")
    if not os.path.exists(os.path.join(folder, "parts.tsv")):
        print("table.py: this is no raw output of run.sh: it has no parts.tsv", file=sys.stderr)
        return 2
    lines_of_timing = load_lines(folder, "timing.jsonl")
    rows = [row for row in lines_of_timing if "collective" in row]
    if every_row:
        full_table(rows, max(copy_rates(lines_of_timing), default=0))
        return 0
    brief = load_lines(folder, "brief.jsonl")
    parts, probe, run = load_parts(folder), load_lines(folder, "probe.jsonl"), load_run(folder)
    unjudged = run.get("unjudged")
    if run.get("rehearsal"):
        print("REHEARSAL on a double of the driver: all times are meaningless")
    print("\n".join(machine_lines(folder, probe, run)))
    for name, outcome, seconds, note in parts:
        note = note if len(note) <= 160 else note[:160] + " ... see parts.tsv"
        print(f"{name:<12} {outcome:<7} {seconds:>4} s  {note}")
    lines = floor_lines(lines_of_timing)
    lines.append(f"{'time/T, worst of the sizes, cold':<46}"
                 + "".join(f"{f'k={k}':>8}" for k in RANKS) + f"{'goal':>8}")
    names_with = lambda wanted: [name for name, outcome, _, _ in parts if outcome == wanted]
    failed, late, missing = map(names_with, ("FAIL", "no time", "missing"))
    # What was cut or left out is told by its part, and is no figure that was missed.
    goals, verdicts = judge_goals(lines_of_timing, unjudged, "goals" not in late + missing)
    lines += goals if rows or not unjudged else []
    lines += ncu_line(folder, (64 << 10) if run.get("rehearsal") else 256 * MIB)
    lines += latency_lines(brief or rows)
    lines += graph_lines(load_lines(folder, "graph.jsonl"))
    lines += peer_lines(load_lines(folder, "peers.jsonl"), rows)
    print("\n".join(lines))
    missed = sum(verdict.startswith("MISSED") for verdict in verdicts)
    asked = rows + brief
    for name in ("correctness.jsonl", "waits.jsonl"):
        asked += load_lines(folder, name)
    checked = [row["wrong"] for row in asked if row["wrong"] is not None]
    wrong = f"{sum(checked)} of {len(checked)} rows checked" if checked else "none checked"
    if len(asked) > len(checked):
        wrong += f", {len(asked) - len(checked)} rows unchecked"
    if not parts:
        failed.append("everything: no part ran")
    print(
        f"parts failed: {', '.join(failed) or 'none'}; had no time: {', '.join(late) or 'none'}; "
        f"could not run: {', '.join(missing) or 'none'}; wrong elements: {wrong}; goals: "
        + (f"not judged ({unjudged})" if unjudged
           else f"met {verdicts.count('met')}, missed {missed}, "
                f"no figure {verdicts.count('no time')} of {len(GOALS)}")
    )
    if failed or sum(checked) or missed:
        return 1
    return 75 if late else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", help="raw-1.tar.gz or raw-2.tar.gz, or a folder of its contents")
    parser.add_argument("--all", action="store_true", help="every row of timing.jsonl, as Markdown")
    arguments = parser.parse_args()
    if os.path.isdir(arguments.output):
        return print_tables(arguments.output, arguments.all)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(arguments.output) as archive:
                archive.extractall(folder)
        except (OSError, tarfile.TarError):
            print(f"table.py: {arguments.output} is no archive", file=sys.stderr)
            return 2
        return print_tables(folder, arguments.all)


if __name__ == "__main__":
    sys.exit(main())
