#!/usr/bin/env python3
"""Makes the tables of docs/speed.md, or with --readme that of README.md, from the CSV of run.sh.

usage: speed_table.py CSV [--commit HASH] [--date YYYY-MM-DD] [--seconds N] [--into FILE] [--readme]
       speed_table.py CSV --behind

--into puts them into that file, in the place of those that stand there: from '### Summary' to the
next '## ', or the table of README.md. --behind prints a line for each cell that is lost: ratio of
best rounds, ratio, where, our median and our best round in us.
"""
import argparse
import datetime
import os
import sys
import textwrap

import bars
import table

WIDTH = 200
NAMES = {"openmpi": "Open MPI 4", "mpich": "MPICH 4", "gloo": "Gloo", "openmpi-5": "Open MPI 5",
         "mpich-5": "MPICH 5", "intel-mpi": "Intel MPI"}
TITLES = {"shm": "Shared memory", "tcp": "Loopback TCP, and UNIX sockets beside it"}
COLUMNS = {"shm": ("private", "allocated"), "tcp": ("TCP", "UNIX")}
LABELS = {("shm", "private"): "shared memory, private",
          ("shm", "allocated"): "shared memory, allocated",
          ("tcp", "private"): "loopback TCP, private"}
K, M = 1 << 10, 1 << 20
# Of README.md: the work, its transport, ranks and collective, and the sizes.
README_ROWS = (
    ("all_reduce, 2 ranks, shared memory", "shm", 2, "all_reduce",
     (4, 4 * K, 64 * K, M, 16 * M, 64 * M)),
    ("all_reduce, 4 ranks on 2 cores", "shm", 4, "all_reduce", (4, 64 * K, M)),
    ("reduce_scatter, 2 ranks", "shm", 2, "reduce_scatter", (M,)),
    ("broadcast, 2 ranks", "shm", 2, "broadcast", (16 * K, M)),
    ("all_gather, 2 ranks", "shm", 2, "all_gather", (M,)),
    ("all_to_all, 2 ranks", "shm", 2, "all_to_all", (M,)),
    ("send and receive, 2 ranks", "shm", 2, "send_receive", (K, M)),
    ("all_reduce, 2 ranks, loopback TCP", "tcp", 2, "all_reduce", (4, 64 * K, M, 16 * M)),
)
README_HEAD = "| work | bytes | peer | unisono | times faster | best rounds |"


def line_of(texts):
    return "| " + " | ".join(texts) + " |"


def time_text(us):
    return f"{us:,.0f}" if us >= 1000 else table.time_text(us)


def ratio_text(ratio):
    return f"**{ratio:.2f}**" if table.is_lost(ratio) else f"{ratio:.2f}"


def size_text(size):
    return table.size_text(size) if size else "-"  # a barrier


def work_text(ranks, collective):
    return collective + ("" if ranks == 2 else f", {ranks} ranks")


def peer_text(who):
    """With its algorithm, where it has several."""
    peer, transport = who.split(" ")
    return ", ".join([NAMES.get(peer, peer), *transport.split("/")[1:]])


class Tables:
    def __init__(self, points):
        self.points = points
        self.cells = {key: table.cells_of(points, *key) for key in LABELS}
        self.unix = {  # (unisono's figure, how many times as long TCP takes)
            point: (unix, tcp.us / unix.us)
            for point, figures in points.items()
            for tcp, unix in [[figures.get(("unisono", t, "private")) for t in ("tcp", "unix")]]
            if tcp and unix
        }

    def text_of(self, wire, buffers, point):
        cell = self.cells[wire, buffers].get(point)
        if cell is None:
            return ""
        if not table.is_whole(cell.own, self.points[point]):
            print(f"fewer rounds than others: {wire} {buffers} {point}", file=sys.stderr)
        ratios = ", ".join(map(ratio_text, cell.ratios))
        return f"{time_text(cell.own.us)} ({ratios}){' †' if cell.misses_bar() else ''}"

    def unix_text(self, point):
        if point not in self.unix:
            return ""
        unix, ratio = self.unix[point]
        return f"{time_text(unix.us)} ({ratio:.2f}){'' if ratio >= bars.UNIX_OVER_TCP else ' †'}"

    def texts_of_mode(self, wire, point):
        """The best peer, and what unisono does."""
        figures = self.points.get(point, {})
        if not table.concerns(figures, wire) or not table.peers_of(figures, wire):
            return ["", "", ""]
        who, best = table.best_peer(figures, wire)
        note = ", TCP" if wire == "shm" and who.split(" ")[1].startswith("tcp") else ""
        texts = [f"{peer_text(who)}{note}: {time_text(best.us)}"]
        texts += [self.text_of(wire, buffers, point) for buffers in table.BUFFERS[wire]]
        return texts + ([self.unix_text(point)] if wire == "tcp" else [])

    def rows_of(self, wire):
        columns = [f"{mode}: {column}" for mode in ("hot", "cold")
                   for column in ("best peer", *COLUMNS[wire])]
        lines = [line_of(["collective", "bytes", *columns]), "|---" * (2 + len(columns)) + "|"]
        works = {(ranks, collective, size, "hot") for ranks, collective, size, _ in self.points
                 if collective != "all_reduce_busy"}
        for ranks, collective, size, _ in sorted(works, key=table.sort_key):
            texts = [text for mode in ("hot", "cold")
                     for text in self.texts_of_mode(wire, (ranks, collective, size, mode))]
            if any(texts):
                lines.append(line_of([work_text(ranks, collective), size_text(size), *texts]))
        return lines

    def summary(self):
        heads = ["transport, buffers", "cells", "lost", "lost, best rounds", "lost in both",
                 "mean ratio", "mean, best rounds", "bars met"]
        lines = [line_of(heads), "|---" * len(heads) + "|"]
        for key, label in LABELS.items():
            if self.cells[key]:
                lines.append(line_of([label, *summary_of(self.cells[key].values())]))
        met = sum(ratio >= bars.UNIX_OVER_TCP for _, ratio in self.unix.values())
        count = len(self.unix)
        lines.append(line_of(["UNIX sockets beside TCP", str(count)]) + "  |" * 5 +
                     f" {met} of {count} |")
        return lines

    def lost_in_both(self, key):
        texts = [f"{place_text(cell)} {cell.ratio:.2f}, {cell.ratio_of_best_rounds:.2f}"
                 for cell in sorted(self.cells[key].values(), key=order_of_loss)
                 if all(map(table.is_lost, cell.ratios))]
        return "; ".join(texts) or "nothing"

    def slow_states(self):
        """How many series of small messages there are, and in how many the state changed."""
        figures = [figure for point, whos in self.points.items() if point[0] == 2 and point[2] <= K
                   for who, figure in whos.items() if who[1] == "shm"]
        return len(figures), sum(figure.most > 1.6 * figure.least for figure in figures)

    def speed(self, run):
        series, changed = self.slow_states()
        lines = ["### Summary", ""]
        lines += wrapped(
            f"{run} Of the {series} series of up to 1 KiB between two ranks in shared memory (one "
            f"library, collective, mode and size), {changed} have a slowest round that takes more "
            "than 1.6 times as long as the fastest: the state changed in them.")
        lines += ["", *self.summary(), ""]
        lines += ["Lost in both columns, with both ratios, the median's first:", ""]
        for key, label in LABELS.items():
            if self.cells[key]:
                lines += wrapped(f"- {label}: {self.lost_in_both(key)}.")
        for wire, title in TITLES.items():
            lines += ["", f"### {title}", "", *self.rows_of(wire)]
        return lines + [""]

    def readme(self):
        lines = [README_HEAD, "|---" * 6 + "|"]
        for name, wire, ranks, collective, sizes in README_ROWS:
            for size in sizes:
                cell = self.cells[wire, "private"].get((ranks, collective, size, "hot"))
                if cell is None:
                    sys.exit(f"no figures of {name or collective} with {size} bytes")
                peer = f"{peer_text(cell.who)}: {table.time_text(cell.best.us)}"
                texts = [name, long_size_text(size), peer, table.time_text(cell.own.us),
                         *map(short_ratio_text, cell.ratios)]
                lines.append(line_of(texts).replace("|  |", "| |"))
                name = ""
        return lines


def summary_of(cells):
    columns = list(zip(*(cell.ratios for cell in cells)))
    lost = [sum(map(table.is_lost, column)) for column in columns]
    lost.append(sum(all(map(table.is_lost, cell.ratios)) for cell in cells))
    judged = [cell for cell in cells if cell.bar is not None]
    met = sum(not cell.misses_bar() for cell in judged)
    return [str(len(cells)), *map(str, lost), *(f"{table.mean(column):.2f}" for column in columns),
            f"{met} of {len(judged)}"]


def long_size_text(size):
    return table.size_text(size).replace("K", " KiB").replace("M", " MiB")


def short_ratio_text(ratio):
    return f"{ratio:.1f}" if ratio >= 1.05 else ratio_text(ratio)


def order_of_loss(cell):
    return cell.ratio_of_best_rounds, cell.ratio, cell.wire, cell.buffers, cell.point


def place_text(cell):
    ranks, collective, size, mode = cell.point
    size = f" {table.size_text(size)}" if size else ""
    return f"{work_text(ranks, collective)} {mode}{size}"


def wrapped(text):
    indent = "  " if text.startswith("- ") else ""
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def behind(tables):
    cells = [cell for cells in tables.cells.values() for cell in cells.values()
             if any(map(table.is_lost, cell.ratios))]
    for cell in sorted(cells, key=order_of_loss):
        print(f"{cell.ratio_of_best_rounds:.2f} {cell.ratio:.2f} {cell.wire} {cell.buffers} "
              f"{place_text(cell)} {cell.own.us:.4g} {cell.own.least:.4g}")


def put(lines, path, first, is_last):
    """In the place of what stands there from the line `first` to before the next that is_last()."""
    with open(path) as file:
        old = file.read().split("\n")
    if first not in old:
        sys.exit(f"{path} has no line {first!r}, where the tables begin")
    begin = old.index(first)
    end = next((i for i in range(begin, len(old)) if is_last(old[i])), len(old))
    old[begin:end] = lines
    with open(path, "w") as file:
        file.write("\n".join(old))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv")
    parser.add_argument("--commit", metavar="HASH", help="of the run", default="unknown")
    parser.add_argument("--date", help="of the run; the day of the CSV where none is given")
    parser.add_argument("--seconds", type=int, help="that the run took")
    parser.add_argument("--into", metavar="FILE", help="replaces the tables there")
    parser.add_argument("--readme", action="store_true", help="the table of README.md")
    parser.add_argument("--behind", action="store_true", help="a line for each cell that is lost")
    arguments = parser.parse_args()
    points, _ = table.load(arguments.csv, ".")
    if not points:
        sys.exit(f"{arguments.csv} has no figures")
    tables = Tables(points)
    if arguments.behind:
        return behind(tables)
    if arguments.readme:
        lines, first = tables.readme(), README_HEAD
        is_last = lambda line: not line.startswith("|")  # noqa: E731
    else:
        written = datetime.date.fromtimestamp(os.path.getmtime(arguments.csv))
        rounds = max(table.rounds_of(figures) for figures in points.values())
        seconds = f", {arguments.seconds:,} s," if arguments.seconds else ""
        run = (f"The run is of {arguments.date or written}, {rounds} rounds{seconds} and of commit "
               f"{arguments.commit}.")
        lines, first = tables.speed(run), "### Summary"
        is_last = lambda line: line.startswith("## ")  # noqa: E731
    if arguments.into:
        put(lines, arguments.into, first, is_last)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
