"""bench/gpu/table.py: what has no figure, or failed, must not pass for a goal that was met."""
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench", "gpu"))
import table  # noqa: E402

MIB = 1 << 20
TABLE = table.__file__


def row(ratio, collective="all_reduce", type="float32", ranks=2, ranks_as="threads",
        size=256 * MIB, mode="cold", wrong=0, floor=100.0):
    """As `unisono perf --memory cuda --floor --json` prints it."""
    return {
        "collective": collective, "transport": "auto", "ranks": ranks, "bytes": size,
        "count": size // 4, "type": type, "op": "sum", "in_place": True, "root": 0,
        "time_us": {"min": 1, "median": 1, "p99": 1}, "algbw_GBps": 1, "busbw_GBps": 1,
        "wrong": wrong, "mode": mode, "buffers": "allocated", "algorithm": "auto",
        "iterations": 5, "loop_us": 1, "memory": "cuda", "ranks_as": ranks_as, "device": "GPU",
        "gpu_us": {"min": 1, "median": 1, "p99": 1}, "gpu_loop_us": ratio * floor,
        "copy_GBps": 4300.0, "launch_us": 2.0, "floor_us": floor, "floor_ratio": ratio,
    }


def floors(begin, end):
    """The last line of a program that measured a floor: the driver's copies, and a kernel's."""
    both = {when: {"driver_copy_GBps": rates[0], "kernel_copy_GBps": rates[1], "launch_us": 2.0}
            for when, rates in (("begin", begin), ("end", end))}
    return {"floor": both}


def rows_that_meet_all():
    rows = []
    for goal in table.GOALS:
        for ranks in table.RANKS:
            rows += [row(1.02, goal.collective, goal.type, ranks, goal.ranks_as, size)
                     for size in goal.sizes]
    return rows


class Table(unittest.TestCase):
    def run_table(self, rows, parts=(("timing", "pass"),), files=(), arguments=()):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "timing.jsonl"), "w") as file:
                for one in rows:
                    file.write((one if isinstance(one, str) else json.dumps(one)) + "\n")
            with open(os.path.join(folder, "parts.tsv"), "w") as file:
                for name, outcome in parts:
                    file.write(f"{name}\t{outcome}\t3\ta note\n")
            for name, text in files:
                with open(os.path.join(folder, name), "w") as file:
                    file.write(text)
            printed = io.StringIO()
            sys.argv = ["table.py", folder, *arguments]
            with contextlib.redirect_stdout(printed):
                status = table.main()
            return status, printed.getvalue()

    def test_all_goals_met_is_success(self):
        status, text = self.run_table(rows_that_meet_all())
        self.assertEqual(status, 0, text)
        self.assertIn(f"goals: met {len(table.GOALS)}, missed 0, no figure 0 of", text)
        self.assertLessEqual(len(text.splitlines()), 25)

    def test_nothing_measured_is_failure(self):
        status, text = self.run_table([])
        self.assertEqual(status, 1)
        self.assertIn(f"goals: met 0, missed {len(table.GOALS)}, no figure 0 of", text)
        self.assertIn("wrong elements: none checked;", text)

    def test_the_worst_size_counts(self):
        status, text = self.run_table(rows_that_meet_all() + [row(1.11, size=64 * MIB)])
        self.assertEqual(status, 1)
        self.assertIn("missed 1, no figure 0 of", text)

    def test_one_number_of_ranks_without_figure_misses(self):
        rows = [r for r in rows_that_meet_all()
                if not (r["collective"] == "broadcast" and r["ranks"] == 8)]
        status, text = self.run_table(rows)
        self.assertEqual(status, 1)
        self.assertIn("MISSED: no figure", text)

    def test_hot_and_other_kinds_do_not_count(self):
        others = [row(9.0, mode="hot"), row(9.0, ranks_as="processes", size=MIB),
                  row(9.0, ranks=3), row(9.0, collective="scan")]
        status, text = self.run_table(rows_that_meet_all() + others)
        self.assertEqual(status, 0, text)

    def test_small_sizes_are_compared_with_launch(self):
        rows = rows_that_meet_all()
        # 1.27 of T alone, but an empty kernel takes 2 us beside T's 100.
        status, text = self.run_table(rows + [row(1.27, size=8 * MIB)])
        self.assertEqual(status, 0, text)
        status, text = self.run_table(rows + [row(1.28, size=8 * MIB)])
        self.assertEqual(status, 1, text)
        # A small call of the library's own is no launch.
        status, text = self.run_table(rows + [row(9.0, size=4096), row(1.28, size=8 * MIB)])
        self.assertEqual(status, 1, text)

    def test_the_best_copy_of_the_run_is_what_counts(self):
        # 1.02 of a T by 4300 GB/s.
        rows = rows_that_meet_all()
        for best in (floors((4300, 4000), (4299, 4500)), floors((4600, 4000), (4000, 4000))):
            status, text = self.run_table(rows + [best])
            self.assertEqual(status, 0, text)
        for best in (floors((4300, 4300), (4300, 4700)), floors((4300, 4300), (4700, 4300)),
                     floors((4700, 4300), (4300, 4300)), floors((4300, 4700), (4300, 4300))):
            status, text = self.run_table(rows + [best])
            self.assertEqual(status, 1, text)
            self.assertIn("GB/s read and written", text)

    def test_one_call_alone_is_beside_the_loops(self):
        brief = dict(row(1.0, size=4096, mode="hot", floor=7.5), gpu_us={"median": 11.25},
                     time_us={"median": 23.5})
        status, text = self.run_table(
            rows_that_meet_all(), files=[("brief.jsonl", json.dumps(brief) + "\n")])
        self.assertRegex(text, r"threads, one behind the other +7\.5 +- +-")
        self.assertRegex(text, r"threads, alone on the GPU +11\.2 +- +-")
        self.assertRegex(text, r"threads, alone with the host +23\.5 +- +-")

    def test_what_had_no_time_is_told_and_no_failure(self):
        status, text = self.run_table(
            rows_that_meet_all(), parts=(("probe", "pass"), ("ncu", "no time")))
        self.assertEqual(status, 75, text)
        self.assertIn("had no time: ncu;", text)
        self.assertNotIn("missing", text)

    def test_what_could_not_run_is_told(self):
        status, text = self.run_table(
            rows_that_meet_all(), parts=(("memcheck", "missing"), ("ncu", "missing")))
        self.assertEqual(status, 0, text)
        self.assertIn("could not run: memcheck, ncu;", text)

    def test_a_goal_whose_rows_had_no_time_is_not_missed(self):
        rows = [r for r in rows_that_meet_all() if r.get("ranks") != 8]
        status, text = self.run_table(rows, parts=(("goals", "no time"),))
        self.assertEqual(status, 75, text)
        self.assertRegex(text, r"- +\d\.\d\d  no time")
        self.assertIn(f"met 0, missed 0, no figure {len(table.GOALS)} of", text)
        status, text = self.run_table(rows, parts=(("goals", "pass"),))
        self.assertEqual(status, 1, text)

    def test_a_figure_over_the_limit_misses_whatever_had_no_time(self):
        rows = [row(1.35, type="bfloat16", ranks=ranks) for ranks in (2, 4)]
        status, text = self.run_table(rows, parts=(("goals", "no time"),))
        self.assertEqual(status, 1, text)
        self.assertRegex(text, r"all_reduce bfloat16 threads .* 1\.35 +1\.35 +- +1\.10  MISSED \(")
        self.assertIn("missed 1, no figure 7 of", text)

    def test_a_goal_is_met_with_all_of_its_sizes_alone(self):
        rows = [r for r in rows_that_meet_all()
                if r["collective"] != "broadcast" or r["bytes"] == 64 * MIB]
        for outcome, verdict, expected in (("pass", "MISSED: no figure", 1),
                                           ("no time", "no time", 75)):
            status, text = self.run_table(rows, parts=(("goals", outcome),))
            self.assertEqual(status, expected, text)
            self.assertIn(f"{verdict} (64M of 64M,256M)", text)

    def test_rows_that_nobody_checked_are_counted(self):
        rows = rows_that_meet_all()
        _, text = self.run_table(rows + [row(1.0, wrong=None, size=1024 * MIB)])
        self.assertIn(f"wrong elements: 0 of {len(rows)} rows checked, 1 rows unchecked;", text)

    def test_raw_output_is_taken_as_it_was_packed(self):
        with tempfile.TemporaryDirectory() as folder:
            archive = os.path.join(folder, "raw-2.tar.gz")
            os.mkdir(os.path.join(folder, "raw"))
            for name, text in (("parts.tsv", "train\tpass\t3\ta note\n"),
                               ("run.json", '{"call": 2, "unjudged": "the first call does"}\n')):
                with open(os.path.join(folder, "raw", name), "w") as file:
                    file.write(text)
            with tarfile.open(archive, "w:gz") as file:
                file.add(os.path.join(folder, "raw"), "raw")
            for output in (archive, folder):
                result = subprocess.run([TABLE, output], stdout=subprocess.PIPE, text=True,
                                        check=False)
                self.assertEqual(result.returncode, 0, result.stdout)
                self.assertIn("not judged (the first call does)", result.stdout)
            for output in (os.path.join(folder, "none"), "/usr", TABLE):
                result = subprocess.run([TABLE, output], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(result.returncode, 2, result.stdout)
                self.assertRegex(result.stderr, r"^table.py: .*\n$")

    def test_a_failed_part_or_a_wrong_element_is_failure(self):
        rows = rows_that_meet_all()
        status, text = self.run_table(rows, parts=(("probe", "FAIL"), ("ncu", "missing")))
        self.assertEqual(status, 1)
        self.assertIn("parts failed: probe;", text)
        status, text = self.run_table(rows + [row(1.0, wrong=3)])
        self.assertEqual(status, 1)
        self.assertIn("wrong elements: 3", text)
        status, text = self.run_table(
            rows, files=[("correctness.jsonl", json.dumps(row(1.0, wrong=2)) + "\n")])
        self.assertEqual(status, 1)
        self.assertEqual(self.run_table(rows, parts=())[0], 1, "no part ran")

    def test_the_driver_is_told_beside_its_cuda(self):
        answer = {"question": "attributes", "what": "driver_version", "value": 13000}
        _, text = self.run_table(
            [], files=[("probe.jsonl", json.dumps(answer) + "\n"),
                       ("nvidia-smi.txt", "| SMI 580.65  Driver Version: 580.65.06  CUDA 13 |")])
        self.assertIn(", CUDA 13.0, driver 580.65.06, MPS off\n", text)

    def test_every_row_has_the_same_floor_as_the_goals(self):
        rows = [row(1.02), floors((4730, 4300), (4300, 4300))]
        _, text = self.run_table(rows, arguments=["--all"])
        self.assertIn("| 102.0 | 90.9 | 1.12 |", text)

    def test_half_a_line_is_passed_over(self):
        status, text = self.run_table(rows_that_meet_all() + ['{"collective": "all_re'])
        self.assertEqual(status, 0, text)

    def test_a_rehearsal_judges_no_time(self):
        status, text = self.run_table(
            [row(5000.0)],
            files=[("run.json", '{"rehearsal": true, "unjudged": "a rehearsal"}\n')])
        self.assertEqual(status, 0, text)
        self.assertIn("meaningless", text)
        self.assertIn("goals: not judged (a rehearsal)", text)

    def test_bytes_of_ncu_are_compared_with_the_least(self):
        page = ('==PROF== Connected\n"ID","Kernel Name","dram__bytes_read.sum",'
                '"dram__bytes_write.sum"\n"","","Mbyte","Gbyte"\n')
        for _ in range(3):
            page += f'"0","k","{512 * 1.048576:.6f}","{0.512 * 1.048576:.6f}"\n'
        status, text = self.run_table(rows_that_meet_all(), files=[("ncu_2.csv", page)])
        self.assertIn("    1.00       -       -", text)

    def test_peers_are_compared_at_their_largest_size(self):
        peers = [{"peer": "torch gloo", "collective": "all_reduce", "type": "float32", "ranks": 2,
                  "ranks_as": "processes", "bytes": 64 * MIB, "us": 1020.0, "right": True}]
        rows = rows_that_meet_all()
        status, text = self.run_table(
            rows, files=[("peers.jsonl", "".join(json.dumps(p) + "\n" for p in peers))])
        self.assertRegex(text, r"torch gloo all_reduce 64M, times unisono +10\.0 +- +-")
        # Measured alone.
        for rows_here in ([], [row(1.0, size=16 * MIB, ranks_as="processes")]):
            _, alone = self.run_table(rows_here, files=[("peers.jsonl", json.dumps(peers[0]))])
            self.assertRegex(alone, r"torch gloo all_reduce 64M, us +1020\.0 +- +-")
        self.assertNotIn("wrong results", text)
        peers[0]["right"] = False
        status, text = self.run_table(rows, files=[("peers.jsonl", json.dumps(peers[0]) + "\n")])
        self.assertNotIn("torch gloo all_reduce 64M,", text)
        self.assertIn("peers with wrong results: torch gloo all_reduce k=2 64M\n", text)

    def test_every_row_can_be_printed(self):
        status, text = self.run_table(rows_that_meet_all(), arguments=["--all"])
        self.assertEqual(status, 0)
        self.assertEqual(len(text.splitlines()), 2 + len(rows_that_meet_all()))


if __name__ == "__main__":
    unittest.main()
