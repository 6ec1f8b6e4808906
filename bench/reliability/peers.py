#!/usr/bin/env python3
"""What survivors see of a killed rank, unisono beside other libraries: a table of many kills.

    bench/peers/run.sh --fault --kills 20 --out kills.csv
    bench/reliability/peers.py kills.csv

Four ranks call all_reduce of 4 KiB or 4 MiB in a loop, and a random one kills itself at a random
moment. A survivor is told when all_reduce returns an error; ended by the launcher's signal, or
without a word; or in the same call 10 s later. "named": its error has the rank that was killed.
"""

import argparse
import collections
import re
import statistics

TRIAL = re.compile(r"^== (\S+) (\S+), (\S+), (\S+), rank (\d+) killed")
SAID = re.compile(r"FAULT rank (\d+): (.*), (-?[\d.]+) ms after the kill")
SURVIVORS = 3


class Trial:
    def __init__(self, peer, transport, flags, victim):
        self.name = (peer, transport, "" if flags == "defaults" else ", errors returned")
        self.victim = victim
        self.told_ms = {}
        self.named = set()
        self.went_on = set()
        self.hung = set()
        self.signalled = set()

    def note(self, rank, words, at_ms):
        if words.startswith("all_reduce failed"):
            self.told_ms[rank] = at_ms
            if re.search(rf"\brank {self.victim}\b", words):
                self.named.add(rank)
        elif words.startswith("went on"):
            self.went_on.add(rank)
        elif words.startswith("HANG"):
            self.hung.add(rank)
        elif words.startswith("got SIG"):
            self.signalled.add(rank)


def read(path):
    trials = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if begun := TRIAL.match(line):
                peer, transport, _, flags, victim = begun.groups()
                trials.append(Trial(peer, transport, flags, int(victim)))
            elif trials and (said := SAID.search(line)):
                trials[-1].note(int(said[1]), said[2], float(said[3]))
    return trials


def line_of(name, trials):
    told = [at for trial in trials for at in trial.told_ms.values()]
    times = f"{statistics.median(told):.1f} | {max(told):.1f}" if told else "- | -"
    hung = sum(len(trial.hung - trial.told_ms.keys()) for trial in trials)
    heard = sum(len(trial.told_ms.keys() | trial.hung | trial.signalled) for trial in trials)
    signalled = sum(len(trial.signalled - trial.told_ms.keys() - trial.hung) for trial in trials)
    survivors = SURVIVORS * len(trials)
    peer, transport, flags = name
    return (
        f"| {peer}, {transport}{flags} | {len(trials)} | {len(told)} of {survivors} | {times} "
        f"| {sum(len(trial.named) for trial in trials)} | {sum(len(trial.went_on) for trial in trials)} "
        f"| {signalled + survivors - heard} | {hung} |"
    )


def table_of(path):
    """Of what run.sh wrote there, as lines of Markdown."""
    groups = collections.defaultdict(list)
    for trial in read(path):
        groups[trial.name].append(trial)
    return [
        "| library, transport | kills | survivors told | after, ms: median | max | named the true rank "
        "| went on | ended | in the call after 10 s |",
        "|---|---|---|---|---|---|---|---|---|",
        *(line_of(name, trials) for name, trials in sorted(groups.items())),
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", help="what bench/peers/run.sh --fault --kills N wrote")
    print("\n".join(table_of(parser.parse_args().file)))


if __name__ == "__main__":
    main()
