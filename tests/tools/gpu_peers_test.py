"""bench/gpu/peers.py with a PyTorch and an NCCL that do nothing: what it measures, by which NCCL,
and what it says of what it could not.

usage: gpu_peers_test.py BUILD_TREE DRIVER [unittest arguments]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from gpu_run import BUILD, DRIVER, ROOT, parts, run  # noqa: E402

STUBS = os.path.join(BUILD, "tests", "tools", "stub_torch")
PEERS = os.path.join(ROOT, "bench", "gpu", "peers.py")
# PyTorch's own is older.
NCCL = os.path.join(STUBS, "nccl_2.30", "libnccl.so.2")
TORCH = {
    "PYTHONPATH": os.path.join(ROOT, "tests", "tools", "stub_torch"),
    "PYTHONDONTWRITEBYTECODE": "1",
    "STUB_TORCH_LIBRARY": os.path.join(STUBS, "libtorch_cuda.so"),
}


class Peers(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.file = os.path.join(self.place.name, "peers.jsonl")

    def tearDown(self):
        self.place.cleanup()

    def measure(self, **environment):
        """The run, and the ranks of each peer's figures."""
        full = {k: v for k, v in os.environ.items() if not k.startswith("NCCL_")}
        result = subprocess.run(
            [sys.executable, PEERS, self.file, "100"], env=dict(full, **TORCH, **environment),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        figures = {}
        if os.path.exists(self.file):
            with open(self.file) as file:
                for row in map(json.loads, file):
                    figures.setdefault(row["peer"], set()).add(row["ranks"])
        return result, figures

    def test_all_processes_take_the_nccl_that_is_named(self):
        result, figures = self.measure(NCCL_LIBRARY=NCCL)
        self.assertEqual(result.returncode, 0, result.stdout)
        # What has come to no end before comes last.
        peers = ["NCCL", "torch NCCL", "torch gloo", "torch symm_mem"]
        self.assertEqual(list(figures.items()), [(peer, {2, 4, 8}) for peer in peers],
                         result.stdout)

    def test_an_old_nccl_is_no_peer(self):
        result, figures = self.measure(STUB_TORCH_FAILS="nccl")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("NCCL 2.28.0 has no several ranks on a GPU", result.stdout)
        self.assertEqual(list(figures), ["torch gloo", "torch symm_mem"])

    def test_a_peer_without_any_figure_is_a_failure(self):
        result, figures = self.measure(STUB_TORCH_FAILS="symmetric")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("torch symm_mem k=2: RuntimeError", result.stdout)
        self.assertEqual(list(figures), ["torch gloo"])

    def test_an_old_nccl_that_was_asked_for_is_a_failure(self):
        old = os.path.join(STUBS, "nccl_2.28", "libnccl.so.2")
        result, _ = self.measure(NCCL_LIBRARY=old)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("NCCL 2.28.0 has no several ranks on a GPU", result.stdout)

    def rehearse(self, **environment):
        """Outcome and note of the part of the run, and the run's status."""
        folder = self.place.name
        result = run(folder, "--rehearse", "--programs", BUILD, "--call", "2", "--only", "peers",
                     "--seconds", "14", DRIVER=DRIVER, REHEARSE_PEERS="yes", NCCL_LIBRARY=NCCL,
                     **TORCH, **environment)
        return *parts(folder, 2)["peers"], result.returncode

    def test_what_comes_to_no_end_leaves_the_others_without_time(self):
        outcome, note, status = self.rehearse(STUB_TORCH_HANGS="nccl")
        self.assertEqual((outcome, status), ("no time", 75), note)
        self.assertIn("no time for torch NCCL k=2; ", note)
        self.assertIn("no time for torch symm_mem k=2; ", note)

    def test_a_run_that_does_not_end_by_itself_had_no_time(self):
        outcome, note, status = self.rehearse(STUB_TORCH_HANGS="gpu")
        self.assertEqual((outcome, status), ("no time", 75), note)
        self.assertIn("no time for: peers(cut)", note)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
