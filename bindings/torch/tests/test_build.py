"""How the adapter is compiled and found: with a compiler that is none, in a cache of its own."""

import concurrent.futures
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch

from unisono_torch import _build

# It says its version, and else writes what it was called with to its output.
COMPILER = """#!/bin/sh
[ "$1" != --version ] || { echo "the fake compiler $VERSION"; exit; }
[ -z "$BROKEN" ] || { echo "no rule to make sense of this" >&2; exit 1; }
echo "$$" >> "$0.runs"
while [ "$1" != -o ]; do shift; done
echo made > "$2"
"""


class Build(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.compiler = pathlib.Path(self.folder.name) / "compiler"
        self.compiler.write_text(COMPILER)
        self.compiler.chmod(0o755)
        self.enter(CXX=str(self.compiler), TORCH_UNISONO_CACHE=f"{self.folder.name}/cache")
        silent = contextlib.redirect_stderr(open(os.devnull, "w"))
        silent.__enter__()
        self.addCleanup(silent.__exit__, None, None, None)

    def enter(self, **variables):
        patch = mock.patch.dict(os.environ, variables)
        patch.start()
        self.addCleanup(patch.stop)

    def runs(self):
        return len(pathlib.Path(f"{self.compiler}.runs").read_text().splitlines())

    def test_it_is_made_once_for_each_version_of_the_compiler(self):
        made = _build.build()
        self.assertEqual(made.read_text(), "made\n")
        self.assertEqual(_build.build(), made)
        self.assertEqual(self.runs(), 1)
        self.enter(VERSION="2")
        self.assertNotEqual(_build.build(), made)
        self.assertEqual(self.runs(), 2)

    def test_machines_that_share_a_cache_have_their_own(self):
        made = _build.build()
        with mock.patch("platform.machine", return_value="another"):
            self.assertNotEqual(_build.build(), made)

    def test_ranks_that_start_together_compile_once(self):
        command = [sys.executable, "-c", "from unisono_torch import _build; print(_build.build())"]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            runs = [pool.submit(subprocess.check_output, command, text=True) for _ in range(2)]
        self.assertEqual(runs[0].result(), runs[1].result())
        self.assertEqual(self.runs(), 1)

    def test_what_was_made_beforehand_needs_no_compiler(self):
        made = _build.build()
        self.enter(CXX="there-is-none")
        self.assertEqual(_build.build(), made)

    def test_what_is_missing_is_said(self):
        with self.assertRaisesRegex(_build.BuildError, "there-is-none was not .* --prebuild"):
            self.enter(CXX="there-is-none")
            _build.build()
        self.enter(CXX=str(self.compiler), BROKEN="1")
        with self.assertRaisesRegex(_build.BuildError, "no rule to make sense of this"):
            _build.build()
        with mock.patch.object(torch, "__version__", "2.3.1+cpu"):
            with self.assertRaisesRegex(_build.BuildError, "needs torch 2.4 or newer, not 2.3.1"):
                _build.build()
        self.enter(TORCH_UNISONO_ROOT=self.folder.name)
        with self.assertRaisesRegex(_build.BuildError, "has no lib/libunisono.so"):
            _build.build()


if __name__ == "__main__":
    unittest.main(verbosity=2)
