"""What goes wrong in operators ends in an exception that names the rank, never in a hang. Each case
starts processes of its own."""

import signal
import unittest

from test_failures import run_ranks


class Failures(unittest.TestCase):
    def assertAllEnd(self, size, body, codes=None):
        got, said = run_ranks(size, body)
        self.assertEqual(got, codes or [0] * size, "\n".join(said))
        return said

    def test_a_rank_that_is_killed_is_named(self):
        self.assertAllEnd(
            3,
            """
            from unisono_torch import ops
            start()
            group = ops.group()
            calls = [
                lambda: ops.all_reduce_(torch.ones(10)),
                lambda: ops.all_gather(torch.ones(10)),
                lambda: ops.receive_(torch.ones(10), 1),
                ops.barrier,
            ]
            ops.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            for call in calls:
                try:
                    call()
                    call()
                    sys.exit("nothing was noticed")
                except dist.DistBackendError as error:
                    assert "rank at fault: 1" in str(error), error
            # Its own communicator: the process group finds out by itself.
            again = ops.join(dist.FileStore(os.environ["MEETING"] + "again", 2), rank // 2, 2)
            assert ops.all_reduce_(torch.ones(1), group=again).item() == 2
            """,
            [0, -signal.SIGKILL, 0],
        )

    def test_compiled_code_has_the_error_too(self):
        self.assertAllEnd(
            2,
            """
            from unisono_torch import ops
            start()
            ops.group(timeout=3)
            @torch.compile(backend="aot_eager", fullgraph=True)
            def layer(x):
                return ops.all_reduce_(x + 1) * 2
            assert layer(torch.ones(2))[0] == 8
            if rank == 1:
                time.sleep(6)
                os._exit(0)
            try:
                layer(torch.ones(2))
            except dist.DistBackendError as error:
                assert "timeout" in str(error) and "rank at fault: 1" in str(error), error
                os._exit(0)
            sys.exit("no exception")
            """,
        )

    def test_calls_that_differ_are_an_error_on_every_rank(self):
        self.assertAllEnd(
            2,
            """
            from unisono_torch import ops
            start()
            store = dist.FileStore(os.environ["MEETING"] + "ops", size)
            calls = [
                lambda: ops.all_reduce_(torch.ones(10 + rank)),
                lambda: ops.all_reduce_(torch.ones(10).to(torch.float32 if rank else torch.int32)),
                lambda: ops.all_gather(torch.ones(10 * (rank + 1))),
                lambda: ops.barrier() if rank else ops.broadcast_(torch.ones(3)),
            ]
            for turn, call in enumerate(calls):
                ops.set_default_group(ops.join(dist.PrefixStore(str(turn), store), rank, size, 20))
                try:
                    call()
                    ops.barrier()
                    sys.exit("no exception")
                except dist.DistBackendError as error:
                    assert "differ" in str(error), error
            ops.set_default_group(ops.join(dist.PrefixStore("message", store), rank, size, 20))
            if rank == 0:
                ops.send(torch.ones(2), 1)
            else:
                try:
                    ops.receive_(torch.ones(3), 0)
                    sys.exit("no exception")
                except ValueError as error:
                    assert "rank 0 sent 8 bytes" in str(error), error
            ops.barrier()
            """,
        )

    def test_hosts_that_look_alike_by_name_share_nothing(self):
        said = self.assertAllEnd(
            2,
            """
            import ctypes
            os.environ["LOCAL_WORLD_SIZE"], os.environ["LOCAL_RANK"] = "2", str(rank)
            CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
            libc = ctypes.CDLL(None, use_errno=True)
            can = True
            if rank == 1:
                # Memory of its own under the same names, as in another container of that host name.
                can = libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC) == 0
                can = can and libc.mount(b"none", b"/", None, 0x44000, None) == 0  # private from here
                can = can and libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, None) == 0
                if not can:
                    print("SKIPPED: namespaces are not allowed:", os.strerror(ctypes.get_errno()))
            start(20)
            from unisono_torch import ops
            group = ops.group(timeout=20)
            for count in (1, 100_000):
                assert ops.all_reduce_(torch.ones(count)).sum().item() == 2 * count
            print(group)
            """,
        )
        print(said[1].splitlines()[-1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
