"""bench/peers/table.py: what has no figure must not pass for a bar that was met."""
import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench", "peers"))
import table  # noqa: E402

HEADER = (
    "peer,transport,ranks,collective,mode,buffers,bytes,iterations,time_us_median,time_us_min,"
    "time_us_p99,time_us_loop,busbw_GBps,empty_us,round"
)


def row(peer, transport, us, round=1, buffers="private", collective="all_reduce", size=65536,
        ranks=2):
    return f"{peer},{transport},{ranks},{collective},hot,{buffers},{size},100,{us},1,1,1,1,0.03,{round}"


def run(module, rows, *arguments):
    """Exit status and text of main()."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv", errors="surrogateescape") as file:
        file.write("\n".join([HEADER, *rows]) + "\n")
        file.flush()
        text = io.StringIO()
        before, sys.argv = sys.argv, [module.__file__, file.name, *arguments]
        try:
            with contextlib.redirect_stdout(text):
                return module.main(), text.getvalue()
        finally:
            sys.argv = before


def run_table(rows, *arguments):
    return run(table, rows, *arguments)


PEER = [row("openmpi", "shm", 100, round) for round in (1, 2, 3)]
PRIVATE = [row("unisono", "shm", 10, round) for round in (1, 2, 3)]
ALLOCATED = [row("unisono", "shm", 10, round, "allocated") for round in (1, 2, 3)]


class Verdicts(unittest.TestCase):
    def test_whole_figures_are_judged(self):
        status, text = run_table(PEER + PRIVATE + ALLOCATED)
        self.assertEqual(status, 0)
        self.assertIn("2 bars met, 0 missed.", text)
        self.assertNotIn("FAILED", text)

    def test_a_bare_exchange_is_the_fastest_way_of_its_mode(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as limits:
            limits.write(
                "test,variant,bytes,value,unit\n"
                "slot_all_reduce,slots; hot,65536,9,us\n"
                "slot_all_reduce,single copy; hot,65536,8,us\n"
                "slot_all_reduce,slots; cold,65536,5,us\n"
                "mapped_all_reduce,add; copy; both cores; hot,65536,4,us\n"
                "copy,of one core; hot,65536,1,GB/s\n"
            )
            limits.flush()
            status, text = run_table(PRIVATE + ALLOCATED, "--floor", limits.name)
        self.assertEqual(status, 0)
        self.assertIn("| all_reduce | private | hot | 64K | single copy | 8.00 | 10.0 | 1.25 |", text)
        self.assertIn("| allocated | hot | 64K | add; copy; both cores | 4.00 | 10.0 | 2.50 |", text)
        self.assertIn("1 of 2 within 1.25 times", text)

    def test_cells_lost_to_anyone_are_told_worst_first(self):
        def cells(collective, us):
            return [row(*who, 1, buffers, collective) for *who, buffers in (
                ("intel-mpi", "shm", 10, "private"), ("unisono", "shm", us, "private"))]

        rows = cells("gather", 11) + cells("scatter", 20) + cells("all_gather", 10.2)
        text = run_table(rows + cells("broadcast", 2.5))[1]
        # 10/11, 10/20, 10/10.2 (within 3 %), 10/2.5
        self.assertIn("private buffers: 2 of 4 cells lost by more than 3%, geometric mean 1.16", text)
        told = [line for line in text.splitlines() if "intel-mpi shm |" in line and "| shm |" in line]
        self.assertEqual([line.split(" | ")[0] for line in told], ["| 0.50", "| 0.91"])

    def test_what_a_library_printed_among_them_is_set_aside_and_counted(self):
        foreign = [
            "[1700000000.1] [host:1:0] parser.c:2036 UCX  WARN  unused environment variable",
            "",
            "a,b,c",
            row("openmpi", "shm", "n/a"),
            ",".join(["x"] * 20),
        ]
        status, text = run_table(foreign + PEER + foreign[:1] + PRIVATE + ALLOCATED)
        self.assertEqual(status, 0)
        self.assertIn("5 lines of ", text)
        self.assertIn("2 bars met, 0 missed.", text)

    def test_such_a_line_takes_no_figures_with_it(self):
        unbalanced = 'UCX  WARN  unused variable "UCX_TLS'
        for foreign in (unbalanced, '"', 'x,"y', "\udcff\udcfe", "z" * 200_000):
            rows = PEER[:1] + [foreign] + PEER[1:] + PRIVATE + [foreign] + ALLOCATED
            status, text = run_table(rows)
            self.assertEqual(status, 0, foreign[:20])
            self.assertIn("2 lines of ", text)
            self.assertIn("2 bars met, 0 missed.", text)

    def test_what_is_no_finite_time_is_no_figure(self):
        for us in ("nan", "inf", "-inf", "0", "-1"):
            status, text = run_table([row("openmpi", "shm", us)] + PEER + PRIVATE + ALLOCATED)
            self.assertEqual(status, 0, us)
            self.assertIn("1 lines of ", text)
            self.assertIn("2 bars met, 0 missed.", text)

    def test_a_slow_figure_is_missed_but_no_failure(self):
        slow = [row("unisono", "shm", 99, round) for round in (1, 2, 3)]
        status, text = run_table(PEER + slow + ALLOCATED)
        self.assertEqual(status, 0)
        self.assertIn("1 bars met, 1 missed.", text)

    def test_a_missing_figure_fails(self):
        for rows in (PEER + PRIVATE, PEER + ALLOCATED):
            for arguments in ((), ("--missed",)):
                status, text = run_table(rows, *arguments)
                self.assertEqual(status, 1)
                self.assertIn("FAILED, 0 of 3 rounds", text)
                self.assertIn("1 bars met, 1 missed, 1 of them FAILED", text)

    def test_a_point_without_any_own_figure_fails(self):
        elsewhere = [row("unisono", "shm", 1, 1, size=1 << 20)]
        status, text = run_table(PEER + elsewhere)
        self.assertEqual(status, 1)
        self.assertIn("0 bars met, 2 missed, 2 of them FAILED", text)

    def test_fewer_rounds_fail(self):
        status, text = run_table(PEER + PRIVATE[:2] + ALLOCATED)
        self.assertEqual(status, 1)
        self.assertIn("FAILED, 2 of 3 rounds", text)

    def test_a_peer_with_fewer_rounds_is_no_failure_of_ours(self):
        status, text = run_table(PEER[:1] + PRIVATE + ALLOCATED)
        self.assertEqual(status, 0)

    def test_unix_sockets_count_as_well(self):
        tcp = [row(peer, "tcp", us, size=4) for peer, us in (("gloo", 20), ("unisono", 10))]
        unix = [row("unisono", "unix", 5, size=4)]
        other = [row("unisono", "tcp", 10, size=64), row("gloo", "tcp", 20, size=64)]
        self.assertEqual(run_table(tcp + unix)[0], 0)
        self.assertEqual(run_table(tcp + other)[0], 0, "unix was not asked for at all")
        status, text = run_table(tcp + unix + other)
        self.assertEqual(status, 1)
        self.assertIn("FAILED, 0 of 1 rounds", text)

    def test_a_point_of_the_other_wire_is_not_judged(self):
        tcp = [row(peer, "tcp", us) for peer, us in (("gloo", 20), ("unisono", 10))]
        status, text = run_table(tcp)
        self.assertEqual(status, 0)
        self.assertIn("1 bars met, 0 missed.", text)

    def test_a_busy_run_without_our_figure_fails(self):
        busy = [row("openmpi", "shm", 100, collective="all_reduce_busy", size=4)]
        status, text = run_table(busy + PEER + PRIVATE + ALLOCATED)
        self.assertEqual(status, 1)
        self.assertIn("FAILED, 0 of 1 rounds", text)

    def test_peers_alone_are_no_success(self):
        status, text = run_table(PEER)
        self.assertEqual(status, 1)
        self.assertIn("no bar can be met", text)
        self.assertEqual(run_table(PEER, "--peers", "all_reduce")[0], 0)


if __name__ == "__main__":
    unittest.main()
