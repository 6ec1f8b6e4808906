#!/usr/bin/env python3
"""All of PyTorch's own tests that distributed_suite.py drives, by Gloo and by unisono, as a table:

    python suite_table.py [--ranks 2 4 8] [--folder FOLDER]

What MPI alone is said to do unisono does under MPI's name. FOLDER keeps results and logs; what is
there is not run again. Exit status 0: unisono fails nothing, and passes whatever Gloo passes.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

OUTCOMES = ("passed", "failed", "skipped")
DRIVER = pathlib.Path(__file__).with_name("distributed_suite.py")


def results_of(folder, title, options):
    """What the driver found out, now or in an earlier run."""
    file = folder / f"{title}.json"
    if not file.exists():
        with open(folder / f"{title}.log", "w") as log:
            command = [sys.executable, "-B", DRIVER, "--json", file, *options]
            subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    return json.loads(file.read_text())


def is_for_mpi(name, row, ranks):
    """A test that Gloo skips; those of a group are with ranks 1 and 2."""
    is_of_group = name.endswith("_group") and not name.endswith("_full_group")
    return "Only MPI" in row["why"] and (ranks > 2 or not is_of_group)


def results_of_unisono(folder, ranks, count):
    rows = results_of(folder, f"unisono-{ranks}", ["--as", "gloo", *count])
    names = [name for name, row in rows.items() if is_for_mpi(name, row, ranks)]
    return {**rows, **results_of(folder, f"unisono-mpi-{ranks}", ["--as", "mpi", *count, *names])}


def print_table(results):
    print("| ranks | backend | passed | failed | skipped |")
    print("|---|---|---|---|---|")
    for (ranks, backend), rows in results.items():
        count = collections.Counter(row["outcome"] for row in rows.values())
        cells = (ranks, backend, *(count[outcome] for outcome in OUTCOMES))
        print("| " + " | ".join(map(str, cells)) + " |")


def passed_only_by(rows, others):
    passed = (name for name, row in rows.items() if row["outcome"] == "passed")
    return sorted(name for name in passed if others[name]["outcome"] != "passed")


def print_names(title, results):
    """Names with the numbers of ranks, of a dictionary by number of ranks."""
    ranks_of = collections.defaultdict(list)
    for ranks, names in results.items():
        for name in names:
            ranks_of[name].append(str(ranks))
    print(f"\n{title}: {'none' if not ranks_of else ''}")
    for name, ranks in sorted(ranks_of.items()):
        print(f"- `{name}` ({', '.join(ranks)})")
    return len(ranks_of)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--folder", type=pathlib.Path)
    arguments = parser.parse_args()
    folder = arguments.folder or pathlib.Path(tempfile.mkdtemp(prefix="unisono-suites-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"results and logs: {folder}\n", file=sys.stderr)
    results = {}
    for ranks in arguments.ranks:
        count = ["-n", str(ranks)]
        gloo = results_of(folder, f"gloo-{ranks}", ["--backend", "gloo", *count])
        results[ranks, "Gloo"] = gloo
        results[ranks, "unisono"] = results_of_unisono(folder, ranks, count)
    print_table(results)

    pairs = {n: (results[n, "Gloo"], results[n, "unisono"]) for n in arguments.ranks}
    missing = {n: passed_only_by(gloo, ours) for n, (gloo, ours) in pairs.items()}
    more = {n: passed_only_by(ours, gloo) for n, (gloo, ours) in pairs.items()}
    failed = {
        n: [f"{name}: {row['why']}" for name, row in ours.items() if row["outcome"] == "failed"]
        for n, (_, ours) in pairs.items()
    }
    print_names("Passed by unisono alone", more)
    bad = print_names("Passed by Gloo alone", missing) + print_names("Failed by unisono", failed)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
