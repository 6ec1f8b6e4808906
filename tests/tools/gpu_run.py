"""Running bench/gpu/run.sh and reading what it leaves, for the tests of it.

Their first two arguments are a build tree and the driver, the rest is unittest's.
"""
import os
import subprocess
import sys
import tarfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SCRIPT = os.path.join(ROOT, "bench", "gpu", "run.sh")
BUILD, DRIVER = sys.argv[1:3]
CUBLAS = os.path.join(BUILD, "tests", "train", "cuda", "fake_cublas", "libcublas.so.13")


def run(folder, *arguments, **environment):
    full = {k: v for k, v in os.environ.items() if not k.startswith(("UNISONO_", "OUT"))}
    full.update(environment)
    return subprocess.run(
        [SCRIPT, "--out", os.path.join(folder, "out"), *arguments],
        env=full, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def unpack(folder, call=1):
    """The raw output of a call, in the folder `raw` there."""
    with tarfile.open(os.path.join(folder, "out", f"raw-{call}.tar.gz")) as archive:
        archive.extractall(folder)
    return os.path.join(folder, "raw")


def parts(folder, call=1):
    """Outcome and note of each part."""
    with open(os.path.join(unpack(folder, call), "parts.tsv")) as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    return {name: (outcome, note) for name, outcome, _, note in lines}


def outcomes(folder, call=1):
    return {name: outcome for name, (outcome, _) in parts(folder, call).items()}
