"""bench/peers/speed_table.py: the tables of docs/speed.md and README.md say what the CSV says."""
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from bench_table_test import row, run  # noqa: E402; it finds bench/peers
import speed_table  # noqa: E402


def rounds(peer, transport, times, **point):
    return [row(peer, transport, us, round, **point) for round, us in enumerate(times, 1)]


# The fastest by medians is MPICH 4 (80), in any one round Open MPI 4 (50).
ROWS = (
    rounds("openmpi", "shm", (50, 100, 100))
    + rounds("mpich", "shm", (80, 80, 80))
    + rounds("gloo", "tcp/ring", (60, 99, 99))
    + rounds("unisono", "shm", (40, 160, 160))
    + rounds("unisono", "shm", (20, 20, 20), buffers="allocated")
    + rounds("unisono", "tcp", (60, 60, 60))
    + rounds("unisono", "unix", (55, 55, 55))
)


def tables(*arguments):
    return run(speed_table, ROWS, "--commit", "abc", "--date", "2026-01-02", *arguments)[1]


class Tables(unittest.TestCase):
    def test_have_both_ratios_and_what_is_lost_and_missed(self):
        lines = tables("--seconds", "1079").splitlines()
        self.assertIn("| all_reduce | 64K | MPICH 4: 80.0 | 160 (**0.50**, 1.25) † "
                      "| 20.0 (4.00, 2.50) |  |  |  |", lines)
        self.assertIn("| all_reduce | 64K | Gloo, ring: 99.0 | 60.0 (1.65, 1.00) "
                      "| 55.0 (1.09) † |  |  |  |", lines)
        self.assertIn("| shared memory, private | 1 | 1 | 0 | 0 | 0.50 | 1.25 | 0 of 1 |", lines)
        self.assertIn("| UNIX sockets beside TCP | 1 |  |  |  |  |  | 0 of 1 |", lines)
        self.assertIn("The run is of 2026-01-02, 3 rounds, 1,079 s, and of commit abc.", lines[2])
        self.assertEqual(tables("--behind"), "1.25 0.50 shm private all_reduce hot 64K 160 40\n")

    def test_name_what_is_lost_in_both(self):
        slow = rounds("openmpi", "shm", (9,), size=0, collective="barrier") + rounds(
            "unisono", "shm", (10,), size=0, collective="barrier")
        text = run(speed_table, slow)[1]
        self.assertIn("\n- shared memory, private: barrier hot 0.90, 0.90.\n", text)

    def test_go_where_those_before_stand(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "speed.md")
            with open(path, "w") as file:
                file.write("# Speed\n\n### Summary\n\nold\n\n### old\n\n## Next\n\n### Summary\n")
            tables("--into", path)
            with open(path) as file:
                self.assertEqual(file.read(), f"# Speed\n\n{tables()}## Next\n\n### Summary\n")
            with self.assertRaisesRegex(SystemExit, "has no line .* work .* the tables begin"):
                run(speed_table, ROWS_OF_README, "--readme", "--into", path)


ROWS_OF_README = [
    row(peer, wire, us, collective=collective, size=size, ranks=ranks)
    for _, wire, ranks, collective, sizes in speed_table.README_ROWS
    for size in sizes
    for peer, us in (("intel-mpi", 1234), ("unisono", 1200))
]


class Readme(unittest.TestCase):
    def test_names_each_work_once(self):
        lines = run(speed_table, ROWS_OF_README, "--readme")[1].splitlines()
        figures = "Intel MPI: 1234 | 1200 | 1.03 | 1.03 |"
        self.assertIn(f"| broadcast, 2 ranks | 16 KiB | {figures}", lines)
        self.assertIn(f"| | 1 MiB | {figures}", lines)

    def test_is_not_made_of_nothing(self):
        with self.assertRaisesRegex(SystemExit, "has no figures"):
            run(speed_table, [], "--readme")

    def test_is_not_made_of_half_a_run(self):
        half = [line for line in ROWS_OF_README if "broadcast" not in line]
        with self.assertRaisesRegex(SystemExit, "no figures of broadcast, 2 ranks with 16384"):
            run(speed_table, half, "--readme")


if __name__ == "__main__":
    unittest.main()
