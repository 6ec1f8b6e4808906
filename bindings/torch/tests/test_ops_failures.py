"""What goes wrong in operators ends in an exception that names the rank, never in a hang. Each case
starts processes of its own."""

import shutil
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
            ops.group()
            @torch.compile(backend="aot_eager", fullgraph=True)
            def layer(x):
                return ops.all_reduce_(x + 1) * 2
            assert layer(torch.ones(2))[0] == 8
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                layer(torch.ones(2))
            except dist.DistBackendError as error:
                assert "rank at fault: 1" in str(error), error
                os._exit(0)
            sys.exit("no exception")
            """,
            [0, -signal.SIGKILL],
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

    @unittest.skipIf(shutil.which("ip") is None, "there is no ip (apt install iproute2)")
    def test_hosts_that_look_alike_by_name_share_nothing(self):
        """As containers of one host name, each with a network of its own. A cable is between them."""
        said = self.assertAllEnd(
            2,
            """
            import ctypes, subprocess
            CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET = 0x20000, 0x4000000, 0x8000000, 0x40000000
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET) != 0:
                print("SKIPPED: namespaces are not allowed:", os.strerror(ctypes.get_errno()))
                sys.exit(0)
            def ip(*words):
                subprocess.run(["ip", *words], check=True)
            own = f"10.9.9.{rank + 1}"
            cable = dist.FileStore(os.environ["MEETING"] + ".cable", size)
            cable.set_timeout(datetime.timedelta(seconds=20))
            if rank == 1:
                cable.set("pid", str(os.getpid()))
                cable.get("laid")
            else:
                pid = cable.get("pid").decode()
                ip("link", "add", "end0", "type", "veth", "peer", "name", "end1", "netns", pid)
                cable.set("laid", "")
            ip("address", "add", own + "/24", "dev", f"end{rank}")
            ip("link", "set", f"end{rank}", "up")
            ip("link", "set", "lo", "up")
            os.environ.update(LOCAL_WORLD_SIZE="2", LOCAL_RANK=str(rank), UNISONO_INTERFACE=own)
            start(20)
            from unisono_torch import ops
            group = ops.group(timeout=20)
            for count in (1, 100_000):
                assert ops.all_reduce_(torch.ones(count)).sum().item() == 2 * count
            print(group)
            """,
        )
        for text in said:
            if "SKIPPED: " in text:
                self.skipTest(text.partition("SKIPPED: ")[2].strip())
            self.assertIn("of 2 on", text)
            self.assertNotIn("shared memory", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
