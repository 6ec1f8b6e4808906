"""torch.distributed by unisono and by Gloo: the same processes, in turns, medians of the slowest.

    python bench [--ranks 2 4] [--rounds 11] [--only PART ...] [--into README.md]

Prints tables in Markdown. Ratios above 1 are in favour of unisono. `--into` puts them into a
document, between the comments that say so.
"""

import argparse
import datetime
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import common

PARTS = ("collectives", "objects", "steps", "overhead")
HEADS = {
    "collectives": ("call, us", ("unisono", "gloo", "ratio")),
    "objects": ("`all_gather_object` of 100 MB", ("own", "unisono", "gloo", "nothing", "ratio")),
    "steps": ("model of 10 MB, ms", ("unisono", "gloo", "nothing", "ratio")),
    "overhead": ("all-reduce of 4 B", ("us",)),  # by one rank, which waits for nobody
}
TITLES = {
    "gloo": "Gloo",
    "nothing": "nothing moved",
    "own": "`unisono_torch`",
}


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", help="write all values there")
    parser.add_argument("--into", type=pathlib.Path)
    return parser.parse_args()


def measure(arguments):
    """What a rank does."""
    import torch.distributed as dist

    groups = common.start()
    rows = {}
    for part in arguments.only:
        module = importlib.import_module(part)
        rows[part] = list(module.rows(groups, arguments.rounds))
    if dist.get_rank() == 0:
        with open(arguments.json, "w") as file:
            json.dump(rows, file)
    dist.destroy_process_group()


def measured(part, ranks, arguments):
    """The rows of `part` with `ranks` ranks."""
    with tempfile.NamedTemporaryFile("r") as file:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        command += [__file__, "--rounds", str(arguments.rounds), "--json", file.name]
        subprocess.run([*command, "--only", part], check=True)
        return json.load(file)[part]


def cell(value):
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def value_of(row, column):
    if column != "ratio":
        return row.get(column)
    return row["gloo"] / row.get("own", row["unisono"])


def table_of(part, results):
    """Lines: a row for each thing measured, columns for each number of ranks."""
    name, columns = HEADS[part]
    heads = [f"{n}: {TITLES.get(column, column)}" for n in results for column in columns]
    yield f"| {name} | " + " | ".join(heads) + " |"
    yield "|---" * (len(heads) + 1) + "|"
    for rows in zip(*results.values()):
        cells = [cell(value_of(row, column)) for row in rows for column in columns]
        yield f"| {rows[0]['name']} | " + " | ".join(cells) + " |"


def title_of(arguments):
    import torch

    return (
        f"{common.processor()}, {os.cpu_count()} virtual cores, torch {torch.__version__}, "
        f"{datetime.date.today()}, medians of {arguments.rounds} rounds"
    )


def put_into(document, lines):
    before, begin, rest = document.read_text().partition("<!-- figures of bench -->\n")
    _, end, after = rest.partition("<!-- end of figures -->\n")
    if not end:
        sys.exit(f"{document} has no place for figures")
    document.write_text(before + begin + "\n".join(lines) + "\n" + end + after)


def main():
    arguments = parse()
    if "RANK" in os.environ:
        measure(arguments)
        return
    lines, results = [title_of(arguments) + ":"], {}
    for part in arguments.only:
        counts = [1] if part == "overhead" else arguments.ranks
        results[part] = {ranks: measured(part, ranks, arguments) for ranks in counts}
        lines += ["", *table_of(part, results[part])]
        print(*table_of(part, results[part]), sep="\n", file=sys.stderr)
    print("\n".join(lines))
    if arguments.into:
        put_into(arguments.into, lines)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
