#!/usr/bin/env python3
"""Compares unisono with the best peer, from the CSV of run.sh, and says which bars are met.

usage: table.py CSV [--only REGEX] [--missed] [--peers COLLECTIVE] [--floor LIMITS-CSV]

Each figure is the median over the rounds of the medians. "best peer" is the fastest of all peers
and of all their algorithms on the same work; over shared memory those that ran over TCP count too.

Where there is a bar and peers have a figure, but unisono has none or one of fewer rounds (it crashed
or was cut short), the bar is missed and FAILED is printed; the exit status is then 1. So it is when
there is nothing of unisono at all.
"""
import argparse
import csv
import math
import re
import statistics
import sys
from collections import defaultdict

import bars

ORDER = bars.ALL + ("p2p", "all_reduce_busy")
WITHIN = 1.25  # of a bare exchange: as near as is asked for
EQUAL = 0.97  # what is within 3 % is equal
BUFFERS = {"shm": ("private", "allocated"), "tcp": ("private",)}


class Figure:
    def __init__(self, rows):
        times = [float(r["time_us_median"]) for r in rows]
        self.us, self.least, self.most = statistics.median(times), min(times), max(times)
        self.empty = statistics.median(float(r["empty_us"]) for r in rows)
        self.rounds = len({r["round"] for r in rows})

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


def is_figure(row):
    """False for a line that a peer's library has printed among the figures."""
    if None in row or None in row.values():
        return False
    try:
        for name in ("ranks", "bytes", "round"):
            int(row[name])
        times = [float(row[name]) for name in ("time_us_median", "empty_us")]
    except ValueError:
        return False
    return all(map(math.isfinite, times)) and times[0] > 0


def load(path, only):
    """{(ranks, collective, bytes, mode): {(peer, transport, buffers): Figure}}, and how many lines
    were none of figures."""
    rows = defaultdict(lambda: defaultdict(list))
    foreign = 0
    # What a library printed there is no CSV, and perhaps no text.
    csv.field_size_limit(sys.maxsize)
    with open(path, newline="", errors="replace") as file:
        for row in csv.DictReader(file, quoting=csv.QUOTE_NONE):
            if not is_figure(row):
                foreign += 1
                continue
            label = " ".join((row["transport"], row["ranks"], row["collective"], row["peer"]))
            if not re.search(only, label):
                continue
            point = (int(row["ranks"]), row["collective"], int(row["bytes"]), row["mode"])
            who = (row["peer"], row["transport"], row["buffers"])
            rows[point][who].append(row)
    points = {
        point: {who: Figure(found) for who, found in whos.items()} for point, whos in rows.items()
    }
    return points, foreign


def peers_of(figures, wire):
    return {
        who: figure
        for who, figure in figures.items()
        if who[0] != "unisono" and (wire == "shm" or who[1].startswith("tcp"))
    }


def best_peer(figures, wire):
    candidates = peers_of(figures, wire)
    if not candidates:
        return None, None
    who = min(candidates, key=lambda w: candidates[w].us)
    return f"{who[0]} {who[1]}", candidates[who]


class Cell:
    """What unisono and a peer have done at a point: ratios above 1 say that unisono is faster."""

    def __init__(self, point, wire, buffers, figures):
        ranks, collective, size, mode = point
        self.point, self.wire, self.buffers = point, wire, buffers
        self.own = figures[("unisono", wire, buffers)]
        self.who, self.best = best_peer(figures, wire)
        self.ratio = self.best.us / self.own.us
        self.ratio_after_empty = self.best.after_empty() / self.own.after_empty()
        # Whichever peer was the fastest in any round.
        least = min(figure.least for figure in peers_of(figures, wire).values())
        self.ratio_of_best_rounds = least / self.own.least
        self.ratios = (self.ratio, self.ratio_of_best_rounds)
        self.bar = bars.find(wire, ranks, collective, buffers, size, mode)

    def judged_ratio(self):
        return self.ratio_after_empty if self.bar.after_empty else self.ratio

    def misses_bar(self):
        return self.bar is not None and self.judged_ratio() < self.bar.ratio


def rounds_of(figures):
    """How often this point was measured: a figure of fewer rounds lacks those that failed."""
    return max(figure.rounds for figure in figures.values())


def is_whole(own, figures):
    return own is not None and own.rounds == rounds_of(figures)


class Verdicts:
    def __init__(self):
        self.met = self.missed = self.failed = 0

    def text(self, ratio, bar):
        if ratio >= bar:
            self.met += 1
            return "met"
        self.missed += 1
        return "MISSED"

    def failure(self, own, figures):
        self.missed += 1
        self.failed += 1
        return f"FAILED, {own.rounds if own else 0} of {rounds_of(figures)} rounds"


def judge(point, wire, buffers, figures, verdicts):
    """Cells: us, ratio, ratio after empty, bar, verdict."""
    ranks, collective, size, mode = point
    bar = bars.find(wire, ranks, collective, buffers, size, mode)
    own = figures.get(("unisono", wire, buffers))
    if bar is not None and not is_whole(own, figures):
        time = time_text(own.us) if own else ""
        return [time, "", "", str(bar.ratio), verdicts.failure(own, figures)]
    if own is None:
        return [""] * 5
    cell = Cell(point, wire, buffers, figures)
    texts = [time_text(own.us), f"{cell.ratio:.2f}", f"{cell.ratio_after_empty:.2f}"]
    if bar is None:
        return texts + ["", ""]
    verdict = verdicts.text(cell.judged_ratio(), bar.ratio)
    return texts + [f"{bar.ratio}{' *' if bar.after_empty else ''}", verdict]


def sort_key(point):
    ranks, collective, size, mode = point
    place = ORDER.index(collective) if collective in ORDER else len(ORDER)
    return (ranks, place, mode != "hot", size)


def concerns(figures, wire):
    """A point of the other wire alone says nothing about this one."""
    return any(who[1].split("/")[0] == wire for who in figures)


def comparison(points, wire, verdicts, missed_only):
    lines = []
    for point in sorted(points, key=sort_key):
        ranks, collective, size, mode = point
        if collective == "all_reduce_busy":
            continue
        figures = points[point]
        if not concerns(figures, wire):
            continue
        who, best = best_peer(figures, wire)
        if best is None:
            continue
        cells = [collective, str(ranks), mode, size_text(size), who, time_text(best.us)]
        for buffers in BUFFERS[wire]:
            cells += judge(point, wire, buffers, figures, verdicts)
        if not missed_only or any(cell.startswith(("MISSED", "FAILED")) for cell in cells):
            lines.append("| " + " | ".join(cells) + " |")
    if not lines:
        return
    columns = ["collective", "ranks", "mode", "bytes", "best peer", "us"]
    for buffers in BUFFERS[wire]:
        columns += [f"{buffers} us", "ratio", "after empty", "bar", ""]
    print(f"\n### {'Shared memory' if wire == 'shm' else 'Loopback TCP'}\n")
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    print("\n".join(lines))


def unix_against_tcp(points, verdicts, missed_only):
    whos = {who for figures in points.values() for who in figures}
    families = {who[1] for who in whos if who[0] == "unisono"}
    if not {"tcp", "unix"} <= families:
        return  # one of them was not asked for
    lines = []
    for point in sorted(points, key=sort_key):
        figures = points[point]
        tcp = figures.get(("unisono", "tcp", "private"))
        unix = figures.get(("unisono", "unix", "private"))
        if not tcp and not unix:
            continue
        times = [time_text(figure.us) if figure else "" for figure in (tcp, unix)]
        if is_whole(tcp, figures) and is_whole(unix, figures):
            ratio = f"{tcp.us / unix.us:.2f}"
            verdict = verdicts.text(tcp.us / unix.us, bars.UNIX_OVER_TCP)
        else:
            ratio = ""
            verdict = verdicts.failure(unix if is_whole(tcp, figures) else tcp, figures)
        if missed_only and verdict == "met":
            continue
        cells = [point[1], str(point[0]), point[3], size_text(point[2]), *times, ratio]
        lines.append("| " + " | ".join(cells + [str(bars.UNIX_OVER_TCP), verdict]) + " |")
    if lines:
        print("\n### UNIX sockets against loopback TCP, both unisono\n")
        print("| collective | ranks | mode | bytes | tcp us | unix us | ratio | bar | |")
        print("|---" * 9 + "|")
        print("\n".join(lines))


def cells_of(points, wire, buffers):
    """What both unisono and a peer have done, by point."""
    return {
        point: Cell(point, wire, buffers, figures)
        for point, figures in points.items()
        if ("unisono", wire, buffers) in figures
        and peers_of(figures, wire)
        and point[1] != "all_reduce_busy"
    }


def is_lost(ratio):
    return ratio < EQUAL


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


def lost(points):
    """Where anyone is faster, worst first, and the geometric mean of all."""
    lines = []
    for wire, buffers in ((wire, each) for wire in BUFFERS for each in BUFFERS[wire]):
        cells = cells_of(points, wire, buffers).values()
        if not cells:
            continue
        behind = sorted((cell.ratio, cell.point, cell) for cell in cells if is_lost(cell.ratio))
        print(
            f"\n{'shared memory' if wire == 'shm' else 'loopback TCP'}, {buffers} buffers: "
            f"{len(behind)} of {len(cells)} cells lost by more than {1 - EQUAL:.0%}, "
            f"geometric mean {mean([cell.ratio for cell in cells]):.2f}"
        )
        for ratio, (ranks, collective, size, mode), cell in behind:
            texts = [f"{ratio:.2f}", wire, buffers, collective, str(ranks), mode, size_text(size)]
            texts += [time_text(cell.own.us), cell.who]
            lines.append((ratio, "| " + " | ".join(texts) + " |"))
    if lines:
        print("\n| ratio | transport | buffers | collective | ranks | mode | bytes | us | best peer |")
        print("|---" * 9 + "|")
        print("\n".join(text for _, text in sorted(lines)))


# Which bare exchange of run.sh --limits does what a collective of two ranks has to, by buffers.
FLOORS = {
    ("send_receive", "private"): ("slot_exchange",),
    ("all_reduce", "private"): ("slot_all_reduce",),
    ("all_reduce", "allocated"): ("slot_all_reduce", "mapped_all_reduce"),
}


def load_floors(path):
    """{(test, bytes, mode): (us, way)} of the fastest way."""
    floors = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            way, _, mode = row["variant"].rpartition("; ")
            if row["unit"] != "us" or mode not in ("hot", "cold"):
                continue
            key, us = (row["test"], int(row["bytes"]), mode), float(row["value"])
            if us < floors.get(key, (math.inf,))[0]:
                floors[key] = (us, way)
    return floors


def against_floor(points, path):
    floors = load_floors(path)
    lines, within = [], 0
    for point in sorted(points, key=sort_key):
        ranks, collective, size, mode = point
        for buffers in BUFFERS["shm"]:
            own = points[point].get(("unisono", "shm", buffers))
            ways = [
                floors[key]
                for test in FLOORS.get((collective, buffers), ())
                if (key := (test, size, mode)) in floors
            ]
            if ranks != 2 or own is None or not ways:
                continue
            us, way = min(ways)
            within += own.us <= WITHIN * us
            cells = [collective, buffers, mode, size_text(size), way, time_text(us)]
            lines.append(cells + [time_text(own.us), f"{own.us / us:.2f}"])
    print("| collective | buffers | mode | bytes | bare exchange | us | unisono us | ratio |")
    print("|---" * 8 + "|")
    for cells in lines:
        print("| " + " | ".join(cells) + " |")
    print(f"\n{within} of {len(lines)} within {WITHIN} times the bare exchange")


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
        if best and not is_whole(own, points[point]):
            print(f"\nbar {bars.BUSY}: {verdicts.failure(own, points[point])}")
        elif best:
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
    parser.add_argument("--floor", metavar="CSV", help="beside bare exchanges, of run.sh --limits")
    parser.add_argument("--peers", metavar="COLLECTIVE", help="every peer's time instead")
    arguments = parser.parse_args()
    points, foreign = load(arguments.csv, arguments.only)
    if foreign:
        print(f"{foreign} lines of {arguments.csv} are no figures and were set aside")
    if arguments.peers:
        all_peers(points, arguments.peers)
        return 0
    if arguments.floor:
        against_floor(points, arguments.floor)
        return 0
    if not any(who[0] == "unisono" for figures in points.values() for who in figures):
        print("unisono is not among these figures: no bar can be met; --peers shows the others")
        return 1
    verdicts = Verdicts()
    for wire in ("shm", "tcp"):
        comparison(points, wire, verdicts, arguments.missed)
    unix_against_tcp(points, verdicts, arguments.missed)
    busy(points, verdicts)
    lost(points)
    failed = f", {verdicts.failed} of them FAILED" if verdicts.failed else ""
    print(
        f"\n{verdicts.met} bars met, {verdicts.missed} missed{failed}. "
        "(* without the empty operation)"
    )
    return 1 if verdicts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
