#!/usr/bin/env python3
"""PyTorch's own tests of torch.distributed (torch/testing/_internal/distributed, which ships in the
wheel), driven against a backend.

    python distributed_suite.py --backend unisono --as gloo -n 2 [NAME ...]

Many of these tests look at the backend's name and skip those that they do not know. With
`--as NAME` unisono takes that name: the tests ask for NAME and are told NAME. `--as mpi` opens
tests that Gloo does not run. Ranks are forked from a process that has imported torch, and a test
that is not over after `--limit` seconds has failed.

A line for each test (passed, failed, skipped and why), and the same for machines by `--json FILE`.
Exit status 0: none failed, and of those named none was skipped. suite_table.py runs all of them by
both backends.
"""

import argparse
import collections
import functools
import json
import os
import re
import sys
import tempfile
import time
import unittest
import unittest.mock

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
    import torch

    import unisono_torch  # noqa: F401  registers the name

    IS_UNISONO = NAME in os.environ or os.environ["BACKEND"] == "unisono"
    if NAME in os.environ:
        take_name(os.environ[NAME])
    from torch.testing._internal.common_distributed import DistTestCases, MultiProcessTestCase

    for feature in ("ddp", "subgroup", "plugin", "gpu", "cuda"):
        DistTestCases.backend_feature[feature] |= {"unisono"}
    from torch.testing._internal.distributed.distributed_test import (
        DistributedTest,
        TestDistBackend,
    )

    from torch.testing._internal.distributed.ddp_under_dist_autograd_test import (
        DdpComparisonTest,
        DdpUnderDistAutogradTest,
    )
    from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import (
        TensorPipeRpcAgentTestFixture,
    )

    class Forked(MultiProcessTestCase):
        def setUp(self):
            super().setUp()
            # Ranks that import torch anew take most of a test's time.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    class Distributed(Forked, TestDistBackend, DistributedTest._DistTestBase):
        def test_ddp_logging_data_cpu(self):
            # DDP's log has one word for all backends that are not torch's own.
            word = "custom" if IS_UNISONO else "gloo"
            with unittest.mock.patch.object(torch.distributed, "get_backend", lambda _: word):
                super().test_ddp_logging_data_cpu()

    # These two have numbers of ranks of their own.
    class UnderAutograd(DdpUnderDistAutogradTest, TensorPipeRpcAgentTestFixture, Forked):
        pass

    class Comparison(DdpComparisonTest, TensorPipeRpcAgentTestFixture, Forked):
        pass

    SUITES = (Distributed, UnderAutograd, Comparison)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=["unisono", "gloo"], default="unisono")
    parser.add_argument("--as", dest="name", choices=["gloo", "mpi"])
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--limit", type=int, default=120, help="seconds that a test may take")
    parser.add_argument("--json", help="write the results there")
    parser.add_argument("names", nargs="*", help="tests; all of the file without any")
    arguments = parser.parse_args()
    if arguments.name and arguments.backend != "unisono":
        parser.error("--as is for unisono")
    return arguments


def prepare(arguments):
    """Starts this program anew, once, so that it is imported with the names set."""
    if os.environ.get("SUITE_STARTED") == "1":
        return
    if arguments.name:
        os.environ[NAME] = arguments.name
    os.environ["BACKEND"] = arguments.name or arguments.backend
    os.environ["WORLD_SIZE"] = str(arguments.ranks)
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(arguments.limit)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["SUITE_STARTED"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.argv])


def reason_of(error):
    """The line of the first exception's text, else the last line."""
    lines = str(error).strip().splitlines()
    return next((line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)), lines[-1])


class Results(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.rows = {}
        self.started = time.monotonic()

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
        self.note(test, "failed", reason_of(error[1]))

    addError = addFailure

    def addSubTest(self, test, part, error):
        if error is not None:
            self.note(test, "failed", reason_of(error[1]))

    def addExpectedFailure(self, test, error):
        self.note(test, "passed", "fails, as expected")

    def addUnexpectedSuccess(self, test):
        self.note(test, "failed", "passes, and was expected to fail")


def run(names):
    loader = unittest.TestLoader()
    all_tests = {name: suite for suite in SUITES for name in loader.getTestCaseNames(suite)}
    results = Results()
    unittest.TestSuite(all_tests[name](name) for name in names or all_tests).run(results)
    return results.rows


def main():
    arguments = parse()
    prepare(arguments)
    with tempfile.TemporaryDirectory(prefix="unisono-suite-") as folder:
        os.environ["TEMP_DIR"] = folder
        rows = run(arguments.names)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)
    count = collections.Counter(row["outcome"] for row in rows.values())
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    # A test that is asked for by name has to run.
    idle = [name for name in arguments.names if rows.get(name, {}).get("outcome") != "passed"]
    if idle:
        print(f"asked for and not passed: {', '.join(idle)}")
    return 1 if count["failed"] or idle else 0


if __name__ == "__main__":
    sys.exit(main())
