"""Ranks that die, leave, come and change places in one process group: reconfigure() of torch 2.14
and newer. Each case starts processes of its own, which exchange their handles in a file."""

import os
import signal
import textwrap
import unittest
import unittest.mock

import torch.distributed as dist

from test_failures import run_ranks

HEAD = """
import contextlib
store = dist.FileStore(os.environ["MEETING"] + ".handles", -1)
store.set_timeout(datetime.timedelta(seconds=40))
def begin(ranks=size, seconds=30):
    own = dist.FileStore(os.environ["MEETING"] + f".of-{rank}", 1)
    dist.init_process_group("unisono", store=own, rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=seconds), enable_reconfigure=True)
    assert dist._supports_reconfigure()
def handles_of(step, members):
    if rank in members:
        store.set(f"{step}/{rank}", dist._get_reconfigure_handle())
    return [store.get(f"{step}/{member}").decode() for member in members]
def regroup(uuid, members, seconds=20):
    handles = handles_of(uuid, members)
    dist._reconfigure(uuid, handles, timeout=datetime.timedelta(seconds=seconds)).wait()
    assert dist.get_world_size() == len(members), dist.get_world_size()
    assert dist.get_rank() == members.index(rank), dist.get_rank()
    add_up(members)
def add_up(members):
    tensor = torch.full((1000,), float(rank))
    dist.all_reduce(tensor)
    assert tensor[0] == sum(members), (tensor[0], members)
def wait_for_all(step, ranks=size):
    store.set(f"{step}/done/{rank}", "1")
    for other in range(ranks):
        store.get(f"{step}/done/{other}")
@contextlib.contextmanager
def raises(kind, *words):
    try:
        yield
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        sys.exit(f"nothing said {words}")
"""


@unittest.skipUnless(hasattr(dist, "_reconfigure"), "this torch has no reconfigure()")
class Reconfigure(unittest.TestCase):
    def assertAllEnd(self, size, body, codes=None):
        got, said = run_ranks(size, HEAD + textwrap.dedent(body))
        self.assertEqual(got, codes or [0] * size, "\n".join(said))

    def test_the_survivors_of_a_killed_rank_go_on_and_a_replacement_joins(self):
        self.assertAllEnd(
            4,
            """
            if rank < 3:
                begin(3)
                regroup(1, [0, 1, 2])
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if rank == 3:
                # It is as new as a process can be: the others are two by then.
                store.get("two are left")
                begin(1)
            else:
                with raises(dist.DistBackendError, "rank at fault: 1"):
                    for _ in range(1000):
                        dist.all_reduce(torch.ones(10))
                regroup(2, [0, 2])
                add_up([0, 2])
                store.set("two are left", "")
            regroup(3, [0, 3, 2])
            dist.barrier()
            dist.destroy_process_group()
            """,
            [0, -signal.SIGKILL, 0, 0],
        )

    def test_rank_0_may_die_too(self):
        self.assertAllEnd(
            3,
            """
            begin()
            regroup(1, [0, 1, 2])
            if rank == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            with raises(dist.DistBackendError, "rank at fault: 0"):
                dist.recv(torch.ones(1), 0)
            regroup(2, [2, 1])
            """,
            [-signal.SIGKILL, 0, 0],
        )

    def test_groups_change_their_order_and_fall_apart_and_come_together(self):
        self.assertAllEnd(
            3,
            """
            begin()
            with raises(RuntimeError, "before its first reconfigure()"):
                dist.all_reduce(torch.ones(1))
            regroup(1, [0, 1, 2])
            regroup(2, [2, 0, 1])
            regroup(3 + rank, [rank])
            regroup(6 + (rank == 2), [2] if rank == 2 else [1, 0])
            # Calls that have ended on one rank end on the others too, though it leaves at once.
            for turn in range(20):
                regroup(10 + turn, [0, 1, 2] if turn % 2 == 0 else [1, 2, 0])
            # A set leaves the order to the group, and each keeps its place.
            before = dist.get_rank()
            handles = handles_of("set", [0, 1, 2])
            dist._reconfigure(100, set(handles)).wait()
            assert dist.get_rank() == before
            add_up([0, 1, 2])
            # One is left out, and told so.
            wait_for_all("shrink")
            if rank == 2:
                with raises(dist.DistBackendError, "rank left"):
                    dist.recv(torch.ones(1), 0)
            else:
                regroup(101, [0, 1])
            wait_for_all("end")
            """,
        )

    def test_bad_arguments_leave_the_group_as_it_was(self):
        self.assertAllEnd(
            2,
            """
            begin()
            old = dist._get_reconfigure_handle()
            assert old == dist._get_reconfigure_handle()
            regroup(1, [0, 1])
            own = dist._get_reconfigure_handle()
            with raises(RuntimeError, "already used"):
                dist._reconfigure(1, [own])
            with raises(RuntimeError, "not among the 1 given"):
                dist._reconfigure(2, [old])
            with raises(RuntimeError, "no handles"):
                dist._reconfigure(2, [])
            with raises(RuntimeError, "two ranks"):
                dist._reconfigure(2, [own, own])
            with raises(RuntimeError, "no handle of get_reconfigure_handle()"):
                dist._reconfigure(2, [own, "gloo:0"])
            with raises(RuntimeError, "changed on its way"):
                dist._reconfigure(2, [own, own[:-1] + "x"])
            with raises(RuntimeError, "the timeout is 0"):
                dist._reconfigure(2, [own], timeout=datetime.timedelta(0))
            add_up([0, 1])
            """,
        )

    def test_a_failure_is_told_and_may_be_tried_again(self):
        self.assertAllEnd(
            3,
            """
            begin()
            regroup(1, [0, 1, 2])
            backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
            backend.abort()
            handles = handles_of("incomplete", [0, 1, 2])
            if rank != 2:
                with raises(dist.DistBackendError, "rank at fault: 2"):
                    dist._reconfigure(2, handles, timeout=datetime.timedelta(seconds=5))
                with raises(RuntimeError, "its last reconfigure() failed", "rank at fault: 2"):
                    dist.all_reduce(torch.ones(1))
            wait_for_all("incomplete")
            # Without agreement on the uuid nobody takes part.
            handles = handles_of("disagreement", [0, 1, 2])
            with raises(dist.DistBackendError, "different uuids"):
                dist._reconfigure(3 + rank, handles)
            regroup(10, [0, 1, 2])
            dist.destroy_process_group()
            """,
        )

    # Without the caches of freed memory that malloc() has for threads, a use after it shows.
    @unittest.mock.patch.dict(os.environ, GLIBC_TUNABLES="glibc.malloc.tcache_count=0")
    def test_other_threads_may_make_calls_meanwhile(self):
        self.assertAllEnd(
            1,
            """
            import threading
            begin()
            backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
            is_over = False
            def call():
                while not is_over:
                    backend.allreduce_coalesced([])
            threads = [threading.Thread(target=call, daemon=True) for _ in range(3)]
            for thread in threads:
                thread.start()
            end = time.monotonic() + 5
            for uuid in range(3000):
                dist._reconfigure(uuid, [dist._get_reconfigure_handle()]).wait()
                if time.monotonic() > end:
                    break
            assert all(thread.is_alive() for thread in threads), "a call was refused"
            is_over = True
            for thread in threads:
                thread.join()
            add_up([0])
            """,
        )


if __name__ == "__main__":
    unittest.main(verbosity=2)
