"""bench/gpu/run.sh from beginning to end on the double of the driver, with stand-ins for the tools
of the CUDA toolkit: every part runs, what fails is told, and without a GPU nothing is built.

usage: gpu_rehearsal_test.py BUILD_TREE DRIVER [unittest arguments]
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SCRIPT = os.path.join(ROOT, "bench", "gpu", "run.sh")
BUILD, DRIVER = sys.argv[1:3]
CUBLAS = os.path.join(BUILD, "tests", "train", "cuda", "fake_cublas", "libcublas.so.13")

SANITIZER = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift 2; [ "$1" = 9 ] && shift; done
exec "$@"
"""
# Runs the program and tells of five kernels that moved just the bytes that they had to.
NCU = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do
  case $1 in --csv) shift ;; --log-file) log=$2; shift 2 ;; *) shift 2 ;; esac
done
"$@" || exit
{ echo '"ID","dram__bytes_read.sum","dram__bytes_write.sum"'; echo '"","Kbyte","Kbyte"'
  for i in 1 2 3 4 5; do echo '"0","131.072","131.072"'; done; } > "$log"
"""


def run(folder, *arguments, **environment):
    full = {k: v for k, v in os.environ.items() if not k.startswith(("UNISONO_", "OUT"))}
    full.update(environment)
    return subprocess.run(
        [SCRIPT, "--out", os.path.join(folder, "out"), *arguments],
        env=full, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def parts(folder):
    with open(os.path.join(folder, "out", "parts.tsv")) as file:
        return {line.split("\t")[0]: line.split("\t")[1] for line in file}


class Rehearsal(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.folder = self.place.name
        for name, text in (("compute-sanitizer", SANITIZER), ("ncu", NCU)):
            path = os.path.join(self.folder, name)
            with open(path, "w") as file:
                file.write(text)
            os.chmod(path, 0o755)

    def tearDown(self):
        self.place.cleanup()

    def rehearse(self, *arguments, **environment):
        return run(self.folder, "--rehearse", "--programs", BUILD, *arguments, DRIVER=DRIVER,
                   UNISONO_CUBLAS_LIBRARY=CUBLAS,
                   COMPUTE_SANITIZER=os.path.join(self.folder, "compute-sanitizer"),
                   NCU=os.path.join(self.folder, "ncu"), **environment)

    def logs(self):
        text = ""
        out = os.path.join(self.folder, "out")
        for name in sorted(os.listdir(out)):
            if name.endswith(".log"):
                with open(os.path.join(out, name), errors="replace") as file:
                    text += f"--- {name}\n" + file.read()[-3000:]
        return text

    def test_every_part_runs(self):
        result = self.rehearse()
        self.assertEqual(result.returncode, 0, result.stdout + self.logs())
        told = parts(self.folder)
        self.assertEqual(told.pop("peers"), "missing")
        self.assertEqual(set(told.values()), {"pass"}, result.stdout + self.logs())
        self.assertEqual(
            set(told),
            {"probe", "conformance", "correctness", "timing", "sanitizer", "ncu", "graph", "train"})
        self.assertIn("REHEARSAL", result.stdout)
        self.assertRegex(result.stdout, r"DRAM bytes.* 1\.00 +- +-")
        with open(os.path.join(self.folder, "out", "timing.jsonl")) as file:
            for line in file:
                self.assertEqual(json.loads(line)["wrong"], 0)
        with open(os.path.join(self.folder, "out", "probe.jsonl")) as file:
            asked = {json.loads(line)["question"] for line in file}
        self.assertEqual(len(asked), 6, asked)

    def test_a_part_that_fails_is_told_and_the_rest_goes_on(self):
        # The kernels do nothing: whatever checks its results must find out.
        result = self.rehearse("--only", "correctness ncu", PROGRAM_DRIVER="idle")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual(parts(self.folder), {"correctness": "FAIL", "ncu": "pass"})
        self.assertRegex(result.stdout, re.compile(r"^correctness +FAIL", re.M))
        self.assertIn("parts failed: correctness;", result.stdout)

    def test_a_part_that_hangs_is_stopped_and_the_rest_goes_on(self):
        with open(os.path.join(self.folder, "compute-sanitizer"), "w") as file:
            file.write("#!/bin/sh\nexec sleep 1000\n")
        result = self.rehearse("--only", "sanitizer ncu", "--seconds", "6")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual(parts(self.folder)["sanitizer"], "FAIL")
        self.assertIn("ncu", parts(self.folder))


class NoGpu(unittest.TestCase):
    def test_says_why_and_builds_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            build = os.path.join(folder, "build")
            result = run(folder, "--build", build, UNISONO_CUDA_LIBRARY="/no/such/libcuda.so.1")
            self.assertEqual(result.returncode, 77, result.stdout)
            self.assertIn("no GPU here: no driver (/no/such/libcuda.so.1:", result.stdout)
            self.assertEqual(os.listdir(folder), [])

    def test_unknown_arguments_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run(folder, "--quick").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
