#!/usr/bin/env python3
"""Compares unisono with the best peer, from the CSV of run.sh, and says which bars are met.

usage: table.py CSV [--only REGEX] [--missed] [--peers COLLECTIVE]

Each figure is the median over the rounds of the medians. "best peer" is the fastest of all peers
and of all their algorithms on the same work; over shared memory those that ran over TCP count too.
"""
import argparse
import csv
import re
import statistics
import sys
from collections import defaultdict

import bars

ORDER = bars.ALL + ("p2p", "all_reduce_busy")


class Figure:
    def __init__(self, rows):
        self.us = statistics.median(float(r["time_us_median"]) for r in rows)
        self.empty = statistics.median(float(r["empty_us"]) for r in rows)

    def after_empty(self):
        # A clock cannot tell less than some nanoseconds.
        return max(self.us - self.empty, 0.01)


def size_text(size):
    for unit, shift in (("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def time_text(us):
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 100 else f"{us:.0f}"


def load(path, only):
    """{(ranks, collective, bytes, mode): {(peer, transport, buffers): Figure}}"""
    rows = defaultdict(lambda: defaultdict(list))
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            label = " ".join((row["transport"], row["ranks"], row["collective"], row["peer"]))
            if not re.search(only, label):
                continue
            point = (int(row["ranks"]), row["collective"], int(row["bytes"]), row["mode"])
            who = (row["peer"], row["transport"], row["buffers"])
            rows[point][who].append(row)
    return {
        point: {who: Figure(found) for who, found in whos.items()} for point, whos in rows.items()
    }


def best_peer(figures, wire):
    candidates = {
        who: figure
        for who, figure in figures.items()
        if who[0] != "unisono" and (wire == "shm" or who[1].startswith("tcp"))
    }
    if not candidates:
        return None, None
    who = min(candidates, key=lambda w: candidates[w].us)
    return f"{who[0]} {who[1]}", candidates[who]


class Verdicts:
    def __init__(self):
        self.met = self.missed = 0

    def text(self, ratio, bar):
        if ratio >= bar:
            self.met += 1
            return "met"
        self.missed += 1
        return "MISSED"


def judge(point, wire, buffers, own, best, verdicts):
    """Cells: us, ratio, ratio after empty, bar, verdict."""
    ranks, collective, size, mode = point
    ratio = best.us / own.us
    after = best.after_empty() / own.after_empty()
    bar = bars.find(wire, ranks, collective, buffers, size, mode)
    cells = [time_text(own.us), f"{ratio:.2f}", f"{after:.2f}"]
    if bar is None:
        return cells + ["", ""]
    verdict = verdicts.text(after if bar.after_empty else ratio, bar.ratio)
    return cells + [f"{bar.ratio}{' *' if bar.after_empty else ''}", verdict]


def sort_key(point):
    ranks, collective, size, mode = point
    place = ORDER.index(collective) if collective in ORDER else len(ORDER)
    return (ranks, place, mode != "hot", size)


def comparison(points, wire, verdicts, missed_only):
    lines = []
    for point in sorted(points, key=sort_key):
        ranks, collective, size, mode = point
        if collective == "all_reduce_busy":
            continue
        who, best = best_peer(points[point], wire)
        private = points[point].get(("unisono", wire, "private"))
        allocated = points[point].get(("unisono", wire, "allocated"))
        if best is None or private is None and allocated is None:
            continue
        cells = [collective, str(ranks), mode, size_text(size), who, time_text(best.us)]
        for buffers, own in (("private", private), ("allocated", allocated)):
            if wire == "tcp" and buffers == "allocated":
                continue
            cells += judge(point, wire, buffers, own, best, verdicts) if own else [""] * 5
        if not missed_only or "MISSED" in cells:
            lines.append("| " + " | ".join(cells) + " |")
    if not lines:
        return
    columns = ["collective", "ranks", "mode", "bytes", "best peer", "us"]
    for buffers in ("private",) if wire == "tcp" else ("private", "allocated"):
        columns += [f"{buffers} us", "ratio", "after empty", "bar", ""]
    print(f"\n### {'Shared memory' if wire == 'shm' else 'Loopback TCP'}\n")
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    print("\n".join(lines))


def unix_against_tcp(points, verdicts, missed_only):
    lines = []
    for point in sorted(points, key=sort_key):
        tcp = points[point].get(("unisono", "tcp", "private"))
        unix = points[point].get(("unisono", "unix", "private"))
        if not tcp or not unix:
            continue
        ratio = tcp.us / unix.us
        verdict = verdicts.text(ratio, bars.UNIX_OVER_TCP)
        if missed_only and verdict == "met":
            continue
        lines.append(
            f"| {point[1]} | {point[0]} | {point[3]} | {size_text(point[2])} | {time_text(tcp.us)} "
            f"| {time_text(unix.us)} | {ratio:.2f} | {bars.UNIX_OVER_TCP} | {verdict} |"
        )
    if lines:
        print("\n### UNIX sockets against loopback TCP, both unisono\n")
        print("| collective | ranks | mode | bytes | tcp us | unix us | ratio | bar | |")
        print("|---" * 9 + "|")
        print("\n".join(lines))


def busy(points, verdicts):
    for point in sorted(points, key=sort_key):
        if point[1] != "all_reduce_busy":
            continue
        print(f"\n### 4-byte all-reduces per second beside a busy process, {point[3]}\n")
        print("| who | per second |\n|---|---|")
        for who, figure in sorted(points[point].items(), key=lambda item: item[1].us):
            print(f"| {who[0]} {who[1]} | {1e6 / figure.us:.0f} |")
        who, best = best_peer(points[point], "shm")
        own = points[point].get(("unisono", "shm", "private"))
        if best and own:
            ratio = best.us / own.us
            print(f"\n{ratio:.1f} times {who}; bar {bars.BUSY}: {verdicts.text(ratio, bars.BUSY)}")


def all_peers(points, collective):
    for ranks, mode in sorted({(p[0], p[3]) for p in points if p[1] == collective}):
        chosen = {p: f for p, f in points.items() if (p[0], p[1], p[3]) == (ranks, collective, mode)}
        whos = sorted({who for figures in chosen.values() for who in figures})
        print(f"\n### {collective}, {ranks} ranks, {mode}, us\n")
        print("| bytes | " + " | ".join(" ".join(who) for who in whos) + " |")
        print("|---" * (len(whos) + 1) + "|")
        for point in sorted(chosen, key=sort_key):
            figures = chosen[point]
            best = min(f.us for f in figures.values())
            cells = []
            for who in whos:
                text = time_text(figures[who].us) if who in figures else ""
                cells.append(f"**{text}**" if who in figures and figures[who].us == best else text)
            print(f"| {size_text(point[2])} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv")
    parser.add_argument("--only", default=".", help="regex over 'transport ranks collective peer'")
    parser.add_argument("--missed", action="store_true", help="only the rows that miss a bar")
    parser.add_argument("--peers", metavar="COLLECTIVE", help="every peer's time instead")
    arguments = parser.parse_args()
    points = load(arguments.csv, arguments.only)
    if arguments.peers:
        all_peers(points, arguments.peers)
        return 0
    verdicts = Verdicts()
    for wire in ("shm", "tcp"):
        comparison(points, wire, verdicts, arguments.missed)
    unix_against_tcp(points, verdicts, arguments.missed)
    busy(points, verdicts)
    print(f"\n{verdicts.met} bars met, {verdicts.missed} missed. (* without the empty operation)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
