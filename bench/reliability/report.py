#!/usr/bin/env python3
"""Measures what docs/reliability.md says of processes that fail, and writes it there.

    bench/reliability/report.py [--into docs/reliability.md] [--build build/release] [--rejoins 100]
                                [--peers FOLDER] [--kills 20] [--stops 4] [--ranks 8] [...]

What run.py and rejoin.py measure takes its place between the marks of the document, and with --peers
what bench/peers/run.sh --fault does as well (FOLDER is its --build; the build has to be one of
`cmake --install`, see --prefix). Exits with 1, after it has written, where run.py would.
"""

import datetime
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

import peers
import rejoin
import run

HERE = pathlib.Path(__file__).resolve().parent


def machine():
    facts = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    cores = subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout.strip()
    return (
        f"{cores} cores of {facts.get('model name', platform.machine())} (family {facts.get('cpu family', '?')}, "
        f"model {facts.get('model', '?')}), Linux {platform.release()}, {datetime.date.today()}"
    )


def trials_text(trials, arguments):
    kills = sum(row["fault"] == "kill" for row in trials)
    wrong = [row for row in trials if not run.is_right(row)]
    what = f"{kills:,} kills and {len(trials) - kills:,} stops of {arguments.ranks} ranks"
    all_went_well = (
        "in all of them all survivors named the true rank and the same one, all went on together, and "
        "nothing was left."
    )
    verdict = f"in {len(wrong)} of them a survivor was told or did wrong." if wrong else all_went_well
    command = (
        f"bench/reliability/report.py --ranks {arguments.ranks} --kills {arguments.kills} "
        f"--stops {arguments.stops} --seed {arguments.seed}"
    )
    return [f"**{what}: {verdict}** {machine()}, `{command}`."]


def rejoin_text(arguments):
    columns = [
        rejoin.times_of(arguments.build, 4, arguments.rejoins, transport) for transport in ("auto", "tcp")
    ]
    lines = [
        f"{arguments.rejoins} kills of four ranks with each transport, {machine()}.",
        "",
        "| ms | shared memory: median | max | TCP: median | max |",
        "|---|---|---|---|---|",
    ]
    for (_, _, words), shared, tcp in zip(rejoin.FROM_TO, *columns):
        times = " | ".join(f"{statistics.median(each):.1f} | {max(each):.1f}" for each in (shared, tcp))
        lines.append(f"| {words} | {times} |")
    return lines


def peers_text(arguments):
    with tempfile.NamedTemporaryFile() as found:
        command = [HERE.parent / "peers/run.sh", "--fault", "--kills", str(arguments.kills)]
        command += ["--build", arguments.peers, "--unisono", arguments.prefix, "--out", found.name]
        subprocess.run(command, check=True, stdout=sys.stderr)
        return [f"{machine()}.", "", *peers.table_of(found.name)]


def put(text, name, lines):
    mark = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not mark.search(text):
        sys.exit(f"the document has no place for '{name}'")
    return mark.sub(lambda found: found[1] + "\n".join(lines).strip() + "\n" + found[2], text)


def main():
    parser = run.parser_of(__doc__)
    parser.add_argument("--into", type=pathlib.Path, default=HERE.parent.parent / "docs/reliability.md")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rejoins", type=int, default=100)
    parser.add_argument("--peers", help="folder in which bench/peers/run.sh builds")
    parser.add_argument("--prefix", help="with --peers: where unisono is installed")
    arguments = parser.parse_args()
    if bool(arguments.peers) != bool(arguments.prefix):
        parser.error("--peers and --prefix go together")
    arguments.program = f"{arguments.build}/bench/reliability_bench"
    text = arguments.into.read_text()
    trials = run.run_all(arguments)
    text = put(text, "summary", trials_text(trials, arguments))
    text = put(text, "trials", run.tables_of(trials))
    text = put(text, "rejoin", rejoin_text(arguments))
    if arguments.peers:
        text = put(text, "peers", peers_text(arguments))
    arguments.into.write_text(text)
    return 0 if all(map(run.is_right, trials)) else 1


if __name__ == "__main__":
    sys.exit(main())
