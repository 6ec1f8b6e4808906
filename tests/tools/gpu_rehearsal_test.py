"""bench/gpu/run.sh from beginning to end on the double of the driver, with stand-ins for the tools
of the CUDA toolkit: every part of both calls runs, what fails is told, and without a GPU nothing is
built.

usage: gpu_rehearsal_test.py BUILD_TREE DRIVER [unittest arguments]
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
from gpu_run import BUILD, CUBLAS, DRIVER, SCRIPT, outcomes, parts, run, unpack  # noqa: E402

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

    def logs(self, call=1):
        text, raw = "", unpack(self.folder, call)
        for name in sorted(os.listdir(raw)):
            if name.endswith(".log"):
                with open(os.path.join(raw, name), errors="replace") as file:
                    text += f"--- {name}\n" + file.read()[-3000:]
        return text

    def test_every_part_of_the_first_call_runs(self):
        result = self.rehearse()
        self.assertEqual(result.returncode, 0, result.stdout)
        told = outcomes(self.folder)
        self.assertEqual(set(told.values()), {"pass"}, result.stdout + self.logs())
        self.assertEqual(list(told), ["probe", "kernels", "brief", "memcheck", "correctness",
                                      "goals", "ncu", "graph", "waits"])
        self.assertRegex(parts(self.folder)["kernels"][1],
                         r"[1-9]\d* suites, [1-9]\d* tests passed, 0 skipped")
        self.assertIn("REHEARSAL", result.stdout)
        self.assertRegex(result.stdout, r"DRAM bytes.* 1\.00 +- +-")
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "out"))),
                         ["raw-1.tar.gz", "table-1.txt"])
        with open(os.path.join(self.folder, "raw", "timing.jsonl")) as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual({row["wrong"] for row in rows if "collective" in row}, {0})
        self.assertEqual(len([row for row in rows if "floor" in row]), 2)
        with open(os.path.join(self.folder, "raw", "probe.jsonl")) as file:
            answers = [json.loads(line) for line in file]
        asked = {answer["question"] for answer in answers}
        self.assertEqual(asked, {"attributes", "memory_operations", "freed_handle"})
        self.assertNotIn("failed", {answer["what"] for answer in answers})

    def test_every_part_of_the_second_call_runs(self):
        result = self.rehearse("--call", "2")
        self.assertEqual(result.returncode, 0, result.stdout)
        told = outcomes(self.folder, 2)
        self.assertEqual(told.pop("peers"), "missing")
        names = ["conformance", "train", "sanitizer", "sweep"]
        self.assertEqual(told, dict.fromkeys(names, "pass"), result.stdout + self.logs(2))

    def test_a_driver_that_takes_no_kernels_is_told_at_once(self):
        smi = os.path.join(self.folder, "nvidia-smi")
        with open(smi, "w") as file:
            file.write("#!/bin/sh\necho Driver Version: 535.1\n")
        os.chmod(smi, 0o755)
        result = self.rehearse(FAKE_CUDA_FAIL="cuLibraryLoadData:1=200",
                               PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("nothing can run on this GPU", result.stdout)
        self.assertEqual(os.listdir(os.path.join(self.folder, "out")), ["nvidia-smi.txt"],
                         "a part was begun")

    def test_a_part_that_fails_is_told_and_the_rest_goes_on(self):
        # The kernels do nothing: whatever checks its results must find out.
        result = self.rehearse("--only", "correctness ncu", PROGRAM_DRIVER="idle")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual(outcomes(self.folder), {"correctness": "FAIL", "ncu": "pass"})
        self.assertIn("all_reduce/2/threads:1", parts(self.folder)["correctness"][1])
        self.assertRegex(result.stdout, re.compile(r"^correctness +FAIL", re.M))
        self.assertIn("parts failed: correctness;", result.stdout)

    def test_a_test_program_that_is_not_there_or_has_no_tests_fails(self):
        for name in ("cuda_no_such_test", "gpu_probe"):
            result = self.rehearse("--only", "kernels", REHEARSE_TESTS=name)
            self.assertEqual(result.returncode, 1, result.stdout)
            self.assertIn(f"{name}:no tests", parts(self.folder)["kernels"][1])

    def test_a_program_that_hangs_is_stopped_and_what_had_no_time_is_told(self):
        with open(os.path.join(self.folder, "compute-sanitizer"), "w") as file:
            file.write("#!/bin/sh\nexec sleep 1000\n")
        result = self.rehearse("--only", "memcheck graph", "--seconds", "5")
        # Nobody knows how long it would have taken: it was the run that ended.
        self.assertEqual(result.returncode, 75, result.stdout)
        self.assertEqual(outcomes(self.folder), {"memcheck": "no time", "graph": "no time"})
        self.assertIn("had no time: memcheck, graph;", result.stdout)

    def test_a_program_that_reaches_its_own_limit_has_failed(self):
        with open(os.path.join(self.folder, "ncu"), "w") as file:
            file.write("#!/bin/sh\nexec sleep 1000\n")
        result = self.rehearse("--only", "ncu graph", LIMIT_DIVISOR="10")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual(outcomes(self.folder)["ncu"], "FAIL")
        # Its own limit is short as well, but it has its turn.
        self.assertIn(outcomes(self.folder)["graph"], ("pass", "FAIL"))
        self.assertIn("2(stopped after 6 s)", parts(self.folder)["ncu"][1])

    def test_a_slow_tool_at_its_limit_had_no_time(self):
        with open(os.path.join(self.folder, "compute-sanitizer"), "w") as file:
            file.write("#!/bin/sh\nexec sleep 1000\n")
        result = self.rehearse("--only", "memcheck", LIMIT_DIVISOR="20")
        self.assertEqual(result.returncode, 75, result.stdout)
        outcome, note = parts(self.folder)["memcheck"]
        self.assertEqual(outcome, "no time")
        self.assertIn("memcheck/all_reduce(stopped after 2 s)", note)

    def test_an_earlier_runs_files_stay(self):
        out = os.path.join(self.folder, "out")
        os.mkdir(out)
        for name in ("raw-1.tar.gz", "table-1.txt", "table-1.txt.old"):
            with open(os.path.join(out, name), "w") as file:
                file.write(f"the old {name}")
        result = self.rehearse("--only", "memcheck")
        self.assertEqual(result.returncode, 0, result.stdout)
        kept = {"raw-1.tar.gz.old": "raw-1.tar.gz", "table-1.txt.old": "table-1.txt",
                "table-1.txt.old.~1~": "table-1.txt.old"}
        self.assertEqual(sorted(os.listdir(out)), sorted([*kept, "raw-1.tar.gz", "table-1.txt"]))
        for name, before in kept.items():
            with open(os.path.join(out, name)) as file:
                self.assertEqual(file.read(), f"the old {before}")

    def test_every_call_says_where_it_ran(self):
        result = self.rehearse("--call", "2", "--only", "peers")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"(?m)^call 2, 20.*, host .+, commit .+$")
        self.assertRegex(result.stdout, r"(?m)^GPU: .+, CUDA 13\.0.*, MPS off$")
        self.assertIn("could not run: peers;", result.stdout)

    def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(self):
        result = self.rehearse("--out", "/proc")
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("run.sh: cannot write into /proc", result.stdout)
        self.assertNotIn("at most", result.stdout)

    def test_what_cannot_be_written_at_the_end_is_kept(self):
        out = os.path.join(self.folder, "out")
        with open(os.path.join(self.folder, "ncu"), "w") as file:
            file.write(f"#!/bin/sh\nrm -r {out} && touch {out}\n")
        result = self.rehearse("--only", "ncu", TMPDIR=self.folder)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("parts failed: none;", result.stdout)
        self.assertNotIn("is the table", result.stdout)
        kept = re.search(r"the output of all programs is in (\S+)", result.stdout)[1]
        self.assertTrue(os.path.exists(os.path.join(kept, "raw", "parts.tsv")), result.stdout)

    def test_what_a_program_leaves_running_ends_with_its_part(self):
        left = os.path.join(self.folder, "left")
        with open(os.path.join(self.folder, "ncu"), "w") as file:
            file.write(f"#!/bin/sh\nsleep 1000 > /dev/null &\necho $! > {left}\n")
        self.rehearse("--only", "ncu graph")
        with open(left) as file:
            pid = file.read().strip()
        try:
            with open(f"/proc/{pid}/stat") as file:
                self.assertEqual(file.read().split()[2], "Z")
        except FileNotFoundError:
            pass

    def test_processes_are_left_out_where_they_cannot_wait_for_each_other(self):
        result = self.rehearse("--only", "probe brief", FAKE_CUDA_MEMOPS="off")
        self.assertEqual(result.returncode, 1, result.stdout)
        outcome, note = parts(self.folder)["brief"]
        self.assertEqual(outcome, "missing")
        self.assertIn("1 runs of", note)
        self.assertIn("left out: processes/2(processes hang: memory_operations)", note)

    def test_what_needs_cublas_is_missing_without(self):
        if subprocess.run(["bash", "-c", f". {os.path.dirname(SCRIPT)}/others.sh; has_cublas"],
                          check=False).returncode == 0:
            self.skipTest("this machine has a cuBLAS")
        result = run(self.folder, "--rehearse", "--programs", BUILD, "--call", "2", "--only", "train",
                     DRIVER=DRIVER)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(parts(self.folder, 2)["train"], ("missing", "no cuBLAS here "))

    def test_a_run_that_is_ended_leaves_no_context_and_what_it_has(self):
        with open(os.path.join(self.folder, "ncu"), "w") as file:
            file.write("#!/bin/sh\nexec sleep 1000\n")
        job = subprocess.Popen(
            [SCRIPT, "--out", os.path.join(self.folder, "out"), "--rehearse", "--programs", BUILD,
             "--only", "probe ncu"], env=dict(os.environ, DRIVER=DRIVER, TMPDIR=self.folder,
                                              NCU=os.path.join(self.folder, "ncu")),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in job.stderr:
            if line.startswith("ncu"):
                break
        holders = self.holders()
        job.terminate()
        job.communicate()
        self.assertEqual(len(holders), 1, "no context was held")
        # The kernel ends it when its parent is gone, not before.
        end = time.monotonic() + 20
        while self.holders() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.holders(), [])
        self.assertEqual(outcomes(self.folder), {"probe": "pass"})
        self.assertEqual([n for n in os.listdir(self.folder) if n.startswith("unisono-gpu")], [])

    def holders(self):
        """Processes that hold a context for a run of this test's."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                out = os.readlink(f"/proc/{pid}/fd/1")
            except OSError:
                continue
            if b"hold" in words and out.startswith(self.folder):
                found.append(pid)
        return found


class PlainDriver(unittest.TestCase):
    """The run as it is with a real driver: no function of the tests' is there, and a process that
    was forked behind cuInit has no driver."""

    plain = os.path.join(os.path.dirname(DRIVER), "libunisono_plain_driver.so")
    of_two_devices = (
        ("cuda/cuda_memory_test", "*OnTheOtherDevice"),
        ("cuda/cuda_collective_test", "DeviceThreadsOfTwoGpus.*"),
        ("cuda/cuda_process_test", "DeviceProcessesOfTwoGpus.*"),
        ("cuda/cuda_hierarchical_test", "HierarchicalCalls.RunOnSeveralGpusOfAHost"),
        ("cuda/cuda_hierarchical_test", "HierarchicalProcesses.RunOnSeveralGpusOfAHost"),
        ("train/cuda/train_cuda_strategies_test", "*2_ranks_on_2:*dp_on_two_gpus"))

    def run_tests_of_two_devices(self, devices):
        """What each of them printed; all have succeeded."""
        printed = []
        for program, suite in self.of_two_devices:
            path = os.path.join(BUILD, "tests", program)
            if not os.path.exists(path):
                print(f"left out: {program} is not built", file=sys.stderr)
                continue
            with self.subTest(suite):
                result = subprocess.run(
                    [path, f"--gtest_filter={suite}"], stdout=subprocess.PIPE, text=True,
                    env=dict(os.environ, UNISONO_CUDA_LIBRARY=self.plain,
                             UNISONO_CUBLAS_LIBRARY=CUBLAS, PLAIN_DRIVER_DEVICES=devices),
                    check=False)
                self.assertEqual(result.returncode, 0, result.stdout)
                printed.append(result.stdout)
        return printed

    def test_what_needs_more_is_skipped_named_and_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run(folder, "--programs", BUILD, "--only", "kernels",
                         UNISONO_CUDA_LIBRARY=self.plain, FAKE_CUDA_DELAY_US="0")
            outcome, note = parts(folder)["kernels"]
            self.assertEqual(outcome, "pass", result.stdout)
            self.assertRegex(note, r"[1-9]\d* tests passed, [1-9]\d* skipped \(.*"
                                   r"[1-9]\d* needs two devices")

    def test_of_one_gpu_skips_tests_of_two(self):
        for text in self.run_tests_of_two_devices("1"):
            self.assertIn("needs two devices", text)
            self.assertNotIn("[       OK ]", text)

    def test_of_two_gpus_skips_none_of_them(self):
        for text in self.run_tests_of_two_devices("2"):
            self.assertIn("[       OK ]", text)
            self.assertNotIn("[  SKIPPED ]", text)


class Probe(unittest.TestCase):
    def test_says_what_becomes_of_memory_at_the_place_of_freed_memory(self):
        for addresses, place, opened in (("fresh", "another one", "works"),
                                         ("reuse", "the same", "error 208")):
            result = subprocess.run(
                [os.path.join(BUILD, "bench", "gpu", "gpu_probe"), "freed_handle"],
                stdout=subprocess.PIPE, text=True, check=False,
                env=dict(os.environ, UNISONO_CUDA_LIBRARY=DRIVER, FAKE_CUDA_ADDRESSES=addresses))
            self.assertEqual(result.returncode, 0, result.stdout)
            answers = [json.loads(line) for line in result.stdout.splitlines()]
            self.assertEqual({answer["what"]: answer["value"] for answer in answers},
                             {"address_after_freeing": place, "opened_beside_freed_one": opened,
                              "opened_behind_freed_one": "works"})


class Graph(unittest.TestCase):
    def test_a_rank_that_fails_leaves_nobody_waiting(self):
        # Of the rank that begins the capture, and of one that joins it.
        for call in ("cuStreamBeginCapture:1", "cuStreamWaitEvent:1"):
            result = subprocess.run(
                [os.path.join(BUILD, "bench", "gpu", "gpu_graph"), "3", "2", "4096"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
                env=dict(os.environ, UNISONO_CUDA_LIBRARY=DRIVER, FAKE_CUDA_FAIL=f"{call}=1"))
            self.assertEqual(result.returncode, 1, result.stdout)
            self.assertIn("CUDA_ERROR_INVALID_VALUE", result.stdout)


class NoGpu(unittest.TestCase):
    def test_says_why_and_builds_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            build = os.path.join(folder, "build")
            result = run(folder, "--build", build, UNISONO_CUDA_LIBRARY="/no/such/libcuda.so.1")
            self.assertEqual(result.returncode, 77, result.stdout)
            self.assertIn("no GPU here: no driver (/no/such/libcuda.so.1 is nowhere", result.stdout)
            self.assertEqual(os.listdir(folder), [])

    def test_says_what_the_driver_says(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run(folder, "--programs", BUILD, UNISONO_CUDA_LIBRARY=DRIVER,
                         FAKE_CUDA_DEVICES="0")
            self.assertEqual(result.returncode, 77, result.stdout)
            self.assertRegex(result.stdout, "no GPU here: the driver .*sees no GPU")
            self.assertEqual(os.listdir(folder), [])

    def test_unknown_arguments_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments, words in (
                    (["--quick"], "unknown argument '--quick'"),
                    (["--call", "3"], "--call is 1 or 2"),
                    (["--call"], "--call needs a value"),
                    (["--from"], "--from needs a value"),
                    (["--seconds", "abc"], "--seconds is a number, not 'abc'"),
                    (["--only", "probe weights"], "there is no part 'weights'"),
                    (["--from", SCRIPT, "--programs", BUILD], "--from goes without --programs"),
                    (["--from", "/no/such.tar"], "there is no archive /no/such.tar"),
                    (["--programs", "/none"], "there is no folder /none"),
                    (["--rehearse"], "--rehearse needs DRIVER=file")):
                result = run(folder, *arguments)
                self.assertEqual(result.returncode, 2, result.stdout)
                self.assertIn(f"run.sh: {words}", result.stdout)
            result = run(folder, "--rehearse", "--programs", BUILD, DRIVER="/no/such")
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertIn("'/no/such' is none", result.stdout)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
