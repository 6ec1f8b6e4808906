"""bench/gpu/table.py: what has no figure, or failed, must not pass for a goal that was met."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench", "gpu"))
import table  # noqa: E402

MIB = 1 << 20


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
        "copy_GBps": 4300.0, "floor_us": floor, "floor_ratio": ratio,
    }


def rows_that_meet_all():
    rows = []
    for goal in table.GOALS:
        for ranks in table.RANKS:
            size = goal.high or goal.low
            if goal.plus_launch:
                rows.append(row(5.0, ranks=ranks, size=4096, floor=1.0))
            rows.append(row(1.02, goal.collective, goal.type, ranks, goal.ranks_as, size))
    return rows


class Table(unittest.TestCase):
    def run_table(self, rows, parts=(("timing", "pass"),), files=(), arguments=()):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "timing.jsonl"), "w") as file:
                for one in rows:
                    file.write((one if isinstance(one, str) else json.dumps(one)) + "\n")
            with open(os.path.join(folder, "parts.tsv"), "w") as file:
                for name, verdict in parts:
                    file.write(f"{name}\t{verdict}\t3\ta note\n")
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
        self.assertIn(f"goals missed: 0 of {len(table.GOALS)}", text)
        self.assertLessEqual(len(text.splitlines()), 25)

    def test_nothing_measured_is_failure(self):
        status, text = self.run_table([])
        self.assertEqual(status, 1)
        self.assertIn(f"goals missed: {len(table.GOALS)} of {len(table.GOALS)}", text)

    def test_the_worst_size_counts(self):
        status, text = self.run_table(rows_that_meet_all() + [row(1.11, size=64 * MIB)])
        self.assertEqual(status, 1)
        self.assertIn("goals missed: 1 of", text)

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
        # 1.28 of T alone, but a launch takes 5 us beside T's 100.
        status, text = self.run_table(rows + [row(1.28, size=8 * MIB)])
        self.assertEqual(status, 0, text)
        status, text = self.run_table(rows + [row(1.33, size=8 * MIB)])
        self.assertEqual(status, 1, text)

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

    def test_half_a_line_is_passed_over(self):
        status, text = self.run_table(rows_that_meet_all() + ['{"collective": "all_re'])
        self.assertEqual(status, 0, text)

    def test_a_rehearsal_judges_no_time(self):
        status, text = self.run_table([row(5000.0)], arguments=["--rehearsal"])
        self.assertEqual(status, 0, text)
        self.assertIn("meaningless", text)
        self.assertIn("goals missed: not judged", text)

    def test_bytes_of_ncu_are_compared_with_the_least(self):
        page = ('==PROF== Connected\n"ID","Kernel Name","dram__bytes_read.sum",'
                '"dram__bytes_write.sum"\n"","","Mbyte","Gbyte"\n')
        for _ in range(table.CALLS_UNDER_NCU):
            page += f'"0","k","{512 * 1.048576:.6f}","{0.512 * 1.048576:.6f}"\n'
        status, text = self.run_table(rows_that_meet_all(), files=[("ncu_2.csv", page)])
        self.assertIn("    1.00       -       -", text)

    def test_peers_are_compared_at_their_largest_size(self):
        peers = [{"peer": "torch gloo", "collective": "all_reduce", "type": "float32", "ranks": 2,
                  "ranks_as": "processes", "bytes": 64 * MIB, "us": 1020.0, "right": True}]
        rows = rows_that_meet_all()
        status, text = self.run_table(
            rows, files=[("peers.jsonl", "".join(json.dumps(p) + "\n" for p in peers))])
        self.assertRegex(text, r"torch gloo, times unisono +10\.0 +- +-")

    def test_every_row_can_be_printed(self):
        status, text = self.run_table(rows_that_meet_all(), arguments=["--all"])
        self.assertEqual(status, 0)
        self.assertEqual(len(text.splitlines()), 2 + len(rows_that_meet_all()))


if __name__ == "__main__":
    unittest.main()
