#!/usr/bin/env python3
"""PyTorch's own tests of torch.distributed (torch/testing/_internal/distributed, which ships in the
wheel), driven against a backend.

    python distributed_suite.py --backend unisono --as gloo -n 2 [NAME ...]

Many of these tests look at the backend's name and skip those that they do not know. With `--as NAME`
unisono takes that name: the tests ask for NAME and are told NAME. `--as mpi` opens the all-to-all tests of CPU tensors, which Gloo does not run.

A line for each test (passed, failed, skipped and why), and a table at the end. `--json FILE` for
machines; `--compare FILE` with the results of another run names what passed there and not here.
Exit status 0: none failed, of those named none was skipped, and none is missing that passed in the
other run.
"""

import argparse
import collections
import functools
import json
import os
import sys
import tempfile
import time
import unittest

NAME = "TORCH_UNISONO_SUITE_NAME"


def take_name(name):
    """In this process torch makes unisono's groups where `name` is asked for, and says `name`."""
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    import unisono_torch

    def renamed(function, place):
        @functools.wraps(function)
        def call(*arguments, **named):
            arguments = list(arguments)
            if "backend" in named or len(arguments) <= place:
                asked = named.get("backend")
                named["backend"] = "unisono" if asked in (None, name) else asked
            elif arguments[place] in (None, name):
                arguments[place] = "unisono"
            return function(*arguments, **named)

        return call

    def get_backend(group=None):
        return name if found(group) == "unisono" else found(group)

    # Profiles and messages have the name as well.
    unisono_torch.SHOWN_NAME = name
    found = c10d.get_backend
    replaced = {
        "init_process_group": renamed(c10d.init_process_group, 0),
        "new_group": renamed(c10d.new_group, 2),
        "get_backend": get_backend,
    }
    for module in (dist, c10d):
        for function, replacement in replaced.items():
            setattr(module, function, replacement)


# The ranks of a test import this module again.
if "BACKEND" in os.environ:
    import unisono_torch  # noqa: F401  registers the name

    if NAME in os.environ:
        take_name(os.environ[NAME])
    from torch.testing._internal.common_distributed import DistTestCases

    for feature in ("ddp", "subgroup", "plugin", "gpu", "cuda"):
        DistTestCases.backend_feature[feature] |= {"unisono"}
    from torch.testing._internal.distributed.distributed_test import (
        DistributedTest,
        TestDistBackend,
    )

    class Suite(TestDistBackend, DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=["unisono", "gloo"], default="unisono")
    parser.add_argument("--as", dest="name", choices=["gloo", "mpi"])
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--json", help="write the results there")
    parser.add_argument("--compare", help="results of another run")
    parser.add_argument("names", nargs="*", help="tests; all of the file without any")
    arguments = parser.parse_args()
    if arguments.name and arguments.backend != "unisono":
        parser.error("--as is for unisono")
    return arguments


def prepare(arguments):
    if arguments.name:
        os.environ[NAME] = arguments.name
    os.environ["BACKEND"] = arguments.name or arguments.backend
    os.environ["WORLD_SIZE"] = str(arguments.ranks)
    os.environ["TEMP_DIR"] = tempfile.mkdtemp(prefix="unisono-suite-")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Started anew, so that this module is imported with the names set.
    if os.environ.get("SUITE_STARTED") != "1":
        os.environ["SUITE_STARTED"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])


class Results(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.rows = {}

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def note(self, test, outcome, why=""):
        name = test.id().rsplit(".", 1)[-1]
        self.rows[name] = {"outcome": outcome, "why": why}
        seconds = time.monotonic() - self.started
        print(f"{outcome:8} {seconds:6.1f} s  {name}{'  ' + why if why else ''}", flush=True)

    def addSuccess(self, test):
        self.note(test, "passed")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason.splitlines()[0])

    def addFailure(self, test, error):
        self.note(test, "failed", str(error[1]).strip().splitlines()[-1])

    addError = addFailure


def run(names):
    loader = unittest.TestLoader()
    wanted = names or loader.getTestCaseNames(Suite)
    results = Results()
    unittest.TestSuite(Suite(name) for name in wanted).run(results)
    return results.rows


def missing_here(rows, other):
    return sorted(
        name
        for name, row in other.items()
        if row["outcome"] == "passed" and rows.get(name, {}).get("outcome") != "passed"
    )


def main():
    arguments = parse()
    prepare(arguments)
    rows = run(arguments.names)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)
    count = collections.Counter(row["outcome"] for row in rows.values())
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    missing = []
    if arguments.compare:
        with open(arguments.compare) as file:
            missing = missing_here(rows, json.load(file))
        for name in missing:
            print(f"passed there and not here: {name}")
    # A test that is asked for by name has to run.
    idle = arguments.names and count["skipped"]
    return 1 if count["failed"] or missing or idle else 0


if __name__ == "__main__":
    sys.exit(main())
