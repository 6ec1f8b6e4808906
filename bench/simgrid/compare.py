#!/usr/bin/env python3
"""Holds the predictions of `unisono plan --cost` against SimGrid: run.sh starts it.

For every algorithm, size, number of ranks and network: the plan that --cost prefers is exported,
replayed on the same network, and both times are written down. What is printed is Markdown.
"""
import argparse
import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TURNS = ("rank", "pair")
# Fair shares without the losses of TCP that SimGrid's default model (LV08) charges.
CONFIG = ("--cfg=network/model:CM02", "--cfg=network/crosstraffic:0", "--cfg=network/TCP-gamma:0",
          "--cfg=network/weight-S:0", "--cfg=network/bandwidth-factor:1", "--cfg=network/latency-factor:1",
          "--cfg=surf/precision:1e-12",
          "--cfg=contexts/stack-size:256", "--log=root.thresh:critical")
COLLECTIVES = ("all_reduce", "all_gather", "broadcast")
SIZES = (1 << 10, 64 << 10, 1 << 20, 64 << 20)


def topology(network, ranks):
    """The text of --topology, and what it says: ranks of a node, (bits a second, us) of links."""
    if network == "flat":
        return "intra=100G:5us", ranks, (100e9, 5), None
    each = 8 if ranks > 8 else 4
    text = f"nodes={ranks // each}x{each},intra=100G:1us,inter=200G:5us"
    return text, each, (100e9, 1), (200e9, 5)


def platform(network, ranks):
    """The network as a platform of SimGrid: hosts, a switch for each node, one for all nodes."""
    _, each, (rate, latency), between = topology(network, ranks)
    lines = ["<?xml version='1.0'?>",
             '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
             '<platform version="4.1"><zone id="network" routing="Floyd">']
    nodes = ranks // each
    lines += [f'<host id="rank-{rank}" speed="1Gf"/>' for rank in range(ranks)]
    lines += [f'<router id="node-{node}"/>' for node in range(nodes)]

    links, routes = [], []

    def connect(name, switch, bits, us):
        links.append(f'<link id="{name}-link" bandwidth="{bits / 8:.0f}Bps" latency="{us}us" '
                     'sharing_policy="SPLITDUPLEX"/>')
        routes.append(f'<route src="{name}" dst="{switch}">'
                      f'<link_ctn id="{name}-link" direction="UP"/></route>')

    for rank in range(ranks):
        connect(f"rank-{rank}", f"node-{rank // each}", rate, latency / 2)
    if between:
        # A way between nodes is two links of ranks and two of nodes.
        lines.append('<router id="all"/>')
        for node in range(nodes):
            connect(f"node-{node}", "all", between[0], (between[1] - latency) / 2)
    return "\n".join(lines + links + routes + ["</zone></platform>"]) + "\n"


def read(*command, text=None):
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


class Comparison:
    def __init__(self, arguments):
        self.unisono = arguments.unisono
        self.replay = arguments.replay
        self.folder = Path(arguments.folder)
        self.messages_max = arguments.messages_max

    def cells(self, network, ranks):
        """One row for each collective, size and algorithm."""
        file = self.folder / f"{network}-{ranks}.xml"
        file.write_text(platform(network, ranks))
        for collective in COLLECTIVES:
            for size in SIZES:
                answer = json.loads(read(
                    self.unisono, "plan", collective, "--cost", "-n", str(ranks), "-b", str(size),
                    "--topology", topology(network, ranks)[0], "--json"))
                for entry in answer["algorithms"]:
                    if "predicted_us" in entry:
                        yield network, ranks, file, collective, size, entry

    def row(self, cell):
        network, ranks, file, collective, size, entry = cell
        row = {"network": network, "ranks": ranks, "collective": collective, "bytes": size,
               "algorithm": entry["algorithm"], "chunks": entry["chunks"],
               "unisono": entry["predicted_us"]}
        if entry["messages"] > self.messages_max:
            return row | {turns: "" for turns in TURNS}
        plan = read(self.unisono, "plan", collective, "-a", entry["algorithm"], "-n", str(ranks),
                    "-b", str(size), "--chunks", str(entry["chunks"]), "--json")
        for turns in TURNS:
            row[turns] = float(read(self.replay, str(file), turns, *CONFIG, text=plan))
        return row


def span(ratios):
    low, high = (f"{ratio:.2f}" for ratio in (min(ratios), max(ratios)))
    return low if low == high else f"{low}-{high}"


def ratios_of(rows):
    """For each algorithm and number of ranks: predicted by simulated time, over all sizes."""
    points = sorted({(row["network"], int(row["ranks"])) for row in rows})
    titles = [f"{network} {ranks}, {turns}" for network, ranks in points for turns in TURNS]
    lines = ["| | " + " | ".join(titles) + " |", "|---|" + "---|" * len(titles)]
    for collective, algorithm in dict.fromkeys((row["collective"], row["algorithm"])
                                               for row in rows):
        line = f"| {collective} {algorithm} |"
        for point in points:
            for turns in TURNS:
                ratios = [float(row["unisono"]) / float(row[turns]) for row in rows
                          if (row["network"], int(row["ranks"])) == point and row[turns] != ""
                          and (row["collective"], row["algorithm"]) == (collective, algorithm)]
                line += f" {span(ratios)} |" if ratios else " - |"
        lines.append(line)
    return "\n".join(lines)


def choices_of(rows):
    """Where what is predicted to be the fastest is simulated to be more than 10 % off it."""
    cells = {}
    for row in rows:
        if row[TURNS[0]] != "":
            key = (row["network"], int(row["ranks"]), row["collective"], int(row["bytes"]))
            cells.setdefault(key, []).append(row)
    lines = []
    for turns in TURNS:
        worse = []
        for key, of_cell in cells.items():
            chosen = min(of_cell, key=lambda row: float(row["unisono"]))
            best = min(of_cell, key=lambda row: float(row[turns]))
            loss = float(chosen[turns]) / float(best[turns])
            if loss > 1.1:
                worse.append(f"- {' '.join(map(str, key))}: {chosen['algorithm']} takes "
                             f"{loss:.2f} times as long as {best['algorithm']}")
        lines.append(f"{turns}: {len(worse)} of {len(cells)} choices cost more than 10 %")
        lines += worse
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--unisono", required=True)
    parser.add_argument("--replay", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--ranks", default="8,64")
    parser.add_argument("--messages-max", type=int, default=100_000)
    arguments = parser.parse_args()
    comparison = Comparison(arguments)
    points = [(network, int(ranks)) for network in ("flat", "tree")
              for ranks in arguments.ranks.split(",")]
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(comparison.row,
                             (cell for point in points for cell in comparison.cells(*point))))
    with open(comparison.folder / "simgrid.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    print(ratios_of(rows) + "\n\n" + choices_of(rows))


if __name__ == "__main__":
    sys.exit(main())
