"""What goes wrong ends in an exception that says so, never in a hang. Each case starts processes of
its own."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import torch

HEAD = """
import datetime, os, signal, sys, time
import torch, torch.distributed as dist
import unisono_torch
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
# Before a start() that gives the ranks little time to meet.
def await_all():
    here = dist.FileStore(os.environ["MEETING"] + ".here", -1)
    here.set_timeout(datetime.timedelta(seconds=40))
    here.set(str(rank), "")
    for other in range(size):
        here.get(str(other))
def start(seconds=30):
    dist.init_process_group("unisono", init_method="file://" + os.environ["MEETING"], rank=rank,
                            world_size=size, timeout=datetime.timedelta(seconds=seconds))
"""


def run_ranks(size, body, seconds=90):
    """Runs `body` as ranks; their exit codes and what they said."""
    with tempfile.TemporaryDirectory(prefix="unisono-torch-") as folder:
        return run_ranks_at(os.path.join(folder, "meeting"), size, body, seconds)


def run_ranks_at(meeting, size, body, seconds):
    script = HEAD + textwrap.dedent(body)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "RANK": str(r), "WORLD_SIZE": str(size), "MEETING": meeting},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for r in range(size)
    ]
    deadline = time.monotonic() + seconds
    said, codes = [], []
    try:
        for process in ranks:
            said.append(process.communicate(timeout=max(1, deadline - time.monotonic()))[0])
            codes.append(process.returncode)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
            process.stdout.close()
    return codes, said


class Failures(unittest.TestCase):
    def assertAllEnd(self, size, body, codes=None):
        got, said = run_ranks(size, body)
        self.assertEqual(got, codes or [0] * size, "\n".join(said))
        return said

    def test_a_rank_that_is_killed_is_named_and_the_survivors_go_on(self):
        self.assertAllEnd(
            3,
            """
            start()
            dist.all_reduce(torch.ones(10))
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                for _ in range(1000):
                    dist.all_reduce(torch.ones(10))
                sys.exit("nothing was noticed")
            except dist.DistBackendError as error:
                assert "rank at fault: 1" in str(error), error
            dist.destroy_process_group()
            rank, size = (0 if rank == 0 else 1), 2
            os.environ["MEETING"] += ".again"
            start()
            survivors = torch.ones(10)
            dist.all_reduce(survivors)
            assert survivors[0] == 2
            dist.destroy_process_group()
            """,
            [0, -signal.SIGKILL, 0],
        )

    def test_errors_of_a_group_name_ranks_of_the_world_too(self):
        self.assertAllEnd(
            4,
            """
            start()
            group = dist.new_group([1, 2, 3])
            seconds = lambda number: datetime.timedelta(seconds=number)
            def fails(words, call):
                try:
                    call()
                except Exception as error:
                    assert words in str(error), error
                else:
                    sys.exit(f"nothing said {words}")
            def reduce():
                for _ in range(1000):
                    dist.all_reduce(torch.ones(10), group=group)
            if rank == 1:
                backend = group._get_backend(torch.device("cpu"))
                fails("Ranks 1, 2 of the group, 2, 3 of the world failed",
                      lambda: backend.monitored_barrier(seconds(0.5), True))
                fails("rank at fault: 1 of the group, 2 of the world",
                      lambda: dist.new_group([1, 2], timeout=seconds(2)))
                fails("rank 1 of the group, 2 of the world sent 20 bytes",
                      lambda: dist.recv(torch.zeros(10), 2, group=group))
                dist.send(torch.ones(1), 2, group=group)
            elif rank == 2:
                dist.send(torch.ones(5), 1, group=group)
                dist.recv(torch.ones(1), 1, group=group)
                os.kill(os.getpid(), signal.SIGKILL)
            if rank > 0:
                fails("rank at fault: 1 of the group, 2 of the world", reduce)
            """,
            [0, 0, -signal.SIGKILL, 0],
        )

    @unittest.skipUnless(torch.cuda.is_available(), "no GPU here")
    def test_a_call_on_a_gpu_that_has_failed_is_no_success(self):
        self.assertAllEnd(
            2,
            """
            torch.cuda.set_device(0)
            start()
            tensor = torch.ones(10, device="cuda")
            dist.all_reduce(tensor)
            torch.cuda.synchronize()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                # The last one: no later call could tell.
                dist.all_reduce(tensor, async_op=True).wait()
                sys.exit("nothing was noticed")
            except dist.DistBackendError as error:
                assert "rank at fault: 1" in str(error), error
            """,
            [0, -signal.SIGKILL],
        )

    def test_a_call_that_is_overdue_names_who_is_missing(self):
        self.assertAllEnd(
            2,
            """
            await_all()
            start(8)
            told = os.environ["MEETING"] + ".told"
            if rank == 1:
                while not os.path.exists(told):
                    time.sleep(0.1)
                sys.exit(0)
            try:
                dist.all_reduce(torch.ones(10))
            except dist.DistBackendError as error:
                assert "timeout" in str(error) and "rank at fault: 1" in str(error), error
                sys.exit(0)
            finally:
                open(told, "w").close()
            sys.exit("no exception")
            """,
        )

    def test_shapes_that_differ_are_an_error_on_every_rank(self):
        self.assertAllEnd(
            2,
            """
            start()
            try:
                dist.all_reduce(torch.ones(10 + rank))
                dist.barrier()
            except dist.DistBackendError as error:
                assert "differ" in str(error), error
                sys.exit(0)
            sys.exit("no exception")
            """,
        )

    def test_types_that_differ_are_an_error_on_every_rank(self):
        self.assertAllEnd(
            2,
            """
            start()
            try:
                dist.broadcast(torch.ones(10, dtype=[torch.float32, torch.int32][rank]), 0)
                dist.barrier()
            except dist.DistBackendError as error:
                assert "differ" in str(error), error
                assert "float32" in str(error) and "int32" in str(error), error
                sys.exit(0)
            sys.exit("no exception")
            """,
        )

    def test_a_rank_that_is_missing_is_named_at_the_start(self):
        self.assertAllEnd(
            2,
            """
            if rank == 1:
                sys.exit(0)
            try:
                start(3)
            except Exception as error:
                assert "rank at fault: 1" in str(error), error
                sys.exit(0)
            sys.exit("no exception")
            """,
        )

    def test_the_end_without_destroy_is_quiet(self):
        said = self.assertAllEnd(
            2,
            """
            start()
            dist.all_reduce(torch.ones(10))
            work = dist.all_reduce(torch.ones(10), async_op=True)
            for _ in range(20):
                future = dist.all_reduce(torch.ones(100_000), async_op=True).get_future()
                future.then(lambda done: sum(range(2000)))
            """,
        )
        for text in said:
            for word in ("terminate", "Traceback", "rror"):
                self.assertNotIn(word, text)

    def test_groups_are_made_again_and_again_in_one_process(self):
        self.assertAllEnd(
            2,
            """
            os.environ["MASTER_ADDR"] = "127.0.0.1"
            store = dist.FileStore(os.environ["MEETING"], size)
            # The last time with a time-out that is for ever: no clock can add it.
            for_ever = datetime.timedelta(days=500 * 365)
            for turn in range(8):
                timeout = for_ever if turn == 7 else datetime.timedelta(seconds=30)
                dist.init_process_group("unisono", store=store, rank=rank, world_size=size,
                                        timeout=timeout)
                tensor = torch.full((4,), float(turn))
                work = dist.all_reduce(tensor, async_op=True)
                if rank == 0:
                    work.wait(timeout)
                work.wait()
                assert tensor[0] == 2 * turn
                backend = dist.distributed_c10d._get_default_group()._get_backend(tensor.device)
                backend.monitored_barrier(timeout)
                dist.destroy_process_group()
            """,
        )

    def test_a_world_that_is_bound_to_a_device_makes_other_groups(self):
        self.assertAllEnd(
            2,
            """
            start()
            # As init_process_group(device_id=...) does it, which wants the device to be there.
            world = dist.distributed_c10d._get_default_group()
            world.bound_device_id = torch.device("cuda", 0)
            tensor = torch.ones(4)
            for group in [dist.new_group([1]), dist.new_group([1, 0])]:
                if dist.get_rank(group) >= 0:
                    dist.all_reduce(tensor, group=group)
            assert tensor[0] == 2, tensor
            # Other backends that cannot split say so as before.
            split = torch._C._distributed_c10d.Backend.perform_nocolor_split
            if split is unisono_torch._no_split_without_a_part:
                gloo = dist.new_group(backend="gloo")._get_backend(torch.device("cpu"))
                try:
                    gloo.perform_nocolor_split(world.bound_device_id)
                    sys.exit("no exception")
                except AttributeError:
                    pass
            """,
        )

    def test_a_forked_child_leaves_the_group_alone(self):
        self.assertAllEnd(
            2,
            """
            start()
            loader = torch.utils.data.DataLoader(list(range(8)), batch_size=2, num_workers=2)
            for items in loader:
                dist.all_reduce(items)
            if os.fork() == 0:
                os._exit(0)
            os.wait()
            dist.barrier()
            dist.destroy_process_group()
            """,
        )

    def test_a_monitored_barrier_that_fails_names_who_is_missing_and_leaves_the_group(self):
        self.assertAllEnd(
            2,
            """
            await_all()
            start(8)
            backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
            if rank == 0:
                try:
                    backend.monitored_barrier(datetime.timedelta(seconds=0.5))
                    sys.exit("no exception")
                except RuntimeError as error:
                    assert "Rank 1 failed to pass monitoredBarrier" in str(error), error
            # Longer than any call of the group may take.
            time.sleep(9)
            dist.all_reduce(torch.ones(10))
            dist.destroy_process_group()
            """,
        )

    def test_a_future_is_refused_where_there_is_no_thread_for_what_follows_it(self):
        self.assertAllEnd(
            2,
            """
            import ctypes
            start()
            tensor = torch.ones(3)
            work = dist.irecv(tensor, 1 - rank)
            libc = ctypes.CDLL(None)
            given, huge = (ctypes.create_string_buffer(128) for _ in range(2))
            libc.pthread_getattr_default_np(given)
            libc.pthread_attr_init(huge)
            assert libc.pthread_attr_setstacksize(huge, ctypes.c_size_t(1 << 47)) == 0
            libc.pthread_setattr_default_np(huge)  # there is no memory for such a thread
            for _ in range(2):
                try:
                    work.get_future()
                    sys.exit("no exception")
                except RuntimeError as error:
                    assert "no thread for what follows a future" in str(error), error
            libc.pthread_setattr_default_np(given)
            followed = work.get_future().then(lambda done: dist.all_reduce(done.value()[0]))
            dist.send(torch.full((3,), 2.0), 1 - rank)
            followed.wait()
            assert tensor.tolist() == [4, 4, 4], tensor
            """,
        )

    def test_abort_does_not_wait_for_a_split(self):
        self.assertAllEnd(
            2,
            """
            import threading
            start()
            world = dist.distributed_c10d._get_default_group()
            if not hasattr(world, "split_group"):
                sys.exit(0)
            backend = world._get_backend(torch.device("cpu"))
            dist.barrier()
            if rank == 1:
                try:
                    dist.recv(torch.ones(1), 0)
                except dist.DistBackendError as error:
                    assert "aborted" in str(error), error
                    sys.exit(0)
                sys.exit("no exception")
            said = []
            def split():
                try:
                    world.split_group([0, 1], group_name="never")
                except dist.DistBackendError as error:
                    said.append(str(error))
            thread = threading.Thread(target=split)
            thread.start()
            time.sleep(1)  # it waits for rank 1 by then
            began = time.monotonic()
            backend.abort()
            thread.join()
            assert time.monotonic() - began < 15 and "aborted" in said[0], said
            """,
        )

    def test_a_rank_without_memory_for_an_object_ends_the_group(self):
        self.assertAllEnd(
            2,
            """
            from unisono_torch import objects
            class NoRoom(bytearray):
                def __init__(self, content):
                    if isinstance(content, int):
                        raise MemoryError(content)
                    super().__init__(content)
            start()
            mine, every = [b"z" * (2 << 20)], [None] * size
            if rank == 1:
                objects.bytearray = NoRoom
            try:
                objects.all_gather_object(every, mine)
                dist.barrier()
            except MemoryError:
                sys.exit(0 if rank == 1 else "no memory")
            except dist.DistBackendError as error:
                assert rank == 0 and "aborted" in str(error), error
                sys.exit(0)
            sys.exit("no exception")
            """,
        )

    def test_an_object_that_cannot_be_pickled_is_told_and_leaves_the_group_usable(self):
        self.assertAllEnd(
            3,
            """
            from unisono_torch import objects
            start()
            every = [None] * size
            try:
                objects.all_gather_object(every, (lambda: 0) if rank == 1 else 1)
                sys.exit("no exception")
            except Exception as error:
                told = isinstance(error, RuntimeError) and "rank 1 of the group" in str(error)
                assert told == (rank != 1), error
            objects.all_gather_object(every, rank)
            assert every == [0, 1, 2], every
            """,
        )

    def test_abort_ends_what_others_wait_for(self):
        self.assertAllEnd(
            2,
            """
            start()
            dist.barrier()
            if rank == 1:
                time.sleep(1)
                unisono_torch.abort()
                sys.exit(0)
            try:
                dist.recv(torch.ones(1), 1)
            except dist.DistBackendError as error:
                assert "aborted" in str(error), error
                sys.exit(0)
            sys.exit("no exception")
            """,
        )


if __name__ == "__main__":
    unittest.main(verbosity=2)
