"""Programs of Python as ranks: their ends, good and bad, and the launcher."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import unisono
from unisono.run import command, with_interpreter


def run(tmp_path, program, ranks=2, flags=(), timeout=30):
    """The outcome of a program as ranks, started by `python -m unisono.run`."""
    script = tmp_path / "program.py"
    script.write_text("import numpy as np, unisono, sys, os\n" + textwrap.dedent(program))
    arguments = [sys.executable, "-m", "unisono.run", "-n", str(ranks), *flags, str(script)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=timeout)


def test_ranks(tmp_path):
    outcome = run(tmp_path, "print(unisono.init().all_reduce(np.ones(2)))", ranks=3)
    assert outcome.returncode == 0, outcome.stderr
    assert sorted(outcome.stdout.splitlines()) == [f"[{rank}] [3. 3.]" for rank in range(3)]
    outcome = run(tmp_path, "print(unisono.init().size)", flags=["--no_prefix"])
    assert outcome.returncode == 0 and outcome.stdout.split() == ["2", "2"], outcome.stderr


def test_arguments_of_the_launcher():
    python = sys.executable
    assert with_interpreter(["-n", "2", "a.py", "b.py"]) == ["-n", "2", python, "a.py", "b.py"]
    assert with_interpreter(["-n2", "--keep-going", "--", "a.py"])[-2:] == [python, "a.py"]
    for switch in ("--keep_going", "--no_python", "--tag_output", "--no_prefix"):
        assert with_interpreter([switch, "a.py"]) == [switch, python, "a.py"]
    assert with_interpreter(["--node_rank", "0", "a.py"])[-2:] == [python, "a.py"]
    assert with_interpreter(["--bind-to=core", "./a"]) == ["--bind-to=core", "./a"]
    assert with_interpreter(["--help"]) == ["--help"]
    assert command().exists()
    help_text = subprocess.run(
        [sys.executable, "-m", "unisono.run", "--help"], capture_output=True, text=True
    )
    assert help_text.returncode == 0 and "unisono run" in help_text.stdout


def test_the_command_of_the_package():
    installed = os.path.join(os.path.dirname(sys.executable), "unisono")
    outcome = subprocess.run([installed, "info"], capture_output=True, text=True)
    assert outcome.returncode == 0 and "UNISONO_TIMEOUT" in outcome.stdout


def test_init_in_a_store(tmp_path):
    outcome = run(
        tmp_path,
        """
        import pathlib, time
        class Folder:
            path = pathlib.Path(sys.argv[0]).parent
            def set(self, key, value):
                part = self.path / f"{hash(key)}.{os.getpid()}"
                part.write_bytes(value)
                part.rename(self.path / key.replace("/", "_"))
            def get(self, key, timeout):
                end = time.monotonic() + timeout
                while time.monotonic() < end:
                    try:
                        return (self.path / key.replace("/", "_")).read_bytes()
                    except FileNotFoundError:
                        time.sleep(0.01)
        del os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
        with unisono.init(store=Folder(), timeout=20) as comm:
            print(comm.all_gather_objects(comm.rank))
        """,
        flags=["--no-prefix"],
    )
    assert outcome.stdout.splitlines() == ["[0, 1]"] * 2, outcome.stderr


def test_exit_status_is_the_ranks(tmp_path):
    assert run(tmp_path, "sys.exit(7 if unisono.init().rank == 1 else 0)").returncode == 7


def test_a_killed_rank_is_named(tmp_path):
    outcome = run(
        tmp_path,
        """
        comm = unisono.init()
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), 9)
        try:
            while True:
                comm.all_reduce(np.ones(10))
        except unisono.RankFailed as error:
            print("failed:", error.rank, error.operation)
        """,
        ranks=3,
        flags=["--keep-going"],
    )
    lines = sorted(line for line in outcome.stdout.splitlines() if "failed:" in line)
    assert lines == ["[0] failed: 1 all_reduce", "[2] failed: 1 all_reduce"], outcome.stderr


ENDS = {
    "without close": "comm.all_reduce(np.ones(3))",
    "with a request under way": "request = comm.receive_async(np.ones(3), comm.rank)",
    "with a request dropped": "comm.receive_async(np.ones(3), comm.rank)",
    "with a request in a cycle": """
        cycle = [comm.receive_async(np.ones(3), comm.rank)]
        cycle.append(cycle)
    """,
    "with a callback that never ran": """
        request = comm.receive_async(np.ones(3), comm.rank)
        request.on_completion(lambda: None)
    """,
    "with memory of the job": "data = comm.allocate(100); data[:] = 1",
    "with a daemon thread in a call": """
        import threading, time
        threading.Thread(
            target=lambda: comm.receive(np.ones(3), comm.rank), daemon=True
        ).start()
        time.sleep(0.2)
    """,
    "with a daemon thread that looks on": """
        import threading, time
        def look():
            while True:
                comm.status
        threading.Thread(target=look, daemon=True).start()
        time.sleep(0.2)
    """,
    "with a daemon thread in a group": """
        import threading, time
        def wait():
            with comm.group():
                comm.receive(np.ones(3), comm.rank)
        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.2)
    """,
    "with a daemon thread in a sink that ends": """
        import threading, time
        threading.Thread(
            target=lambda: comm.stream_all_gather_objects(b"x", lambda piece: time.sleep(0.5)),
            daemon=True,
        ).start()
        time.sleep(0.2)
    """,
    "with a daemon thread in a sink that never ends": """
        import threading, time
        threading.Thread(
            target=lambda: comm.stream_all_gather_objects(
                b"x", lambda piece: threading.Event().wait()
            ),
            daemon=True,
        ).start()
        time.sleep(0.2)
    """,
    "with a daemon thread that waits for a request": """
        import threading, time
        request = comm.receive_async(np.ones(3), comm.rank)
        threading.Thread(target=request.wait, daemon=True).start()
        time.sleep(0.2)
    """,
    "with several communicators": "others = [comm.duplicate() for _ in range(3)]; others[0].barrier()",
    "with a child that was forked": """
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        comm.barrier()
    """,
    "with an asyncio wait cut short": """
        import asyncio
        async def main():
            request = comm.receive_async(np.ones(3), comm.rank)
            try:
                await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(wait(request))), 0.1)
            except asyncio.TimeoutError:
                pass
        async def wait(request):
            await request
        asyncio.run(main())
    """,
}


@pytest.mark.parametrize("end", ENDS)
def test_the_interpreter_ends(tmp_path, end):
    """Neither a hang nor a crash, whatever is alive."""
    outcome = run(tmp_path, "comm = unisono.init()\n" + textwrap.dedent(ENDS[end]) + "\nprint('end')")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert outcome.stdout.count("end") == 2
    assert "Fatal" not in outcome.stderr and "in _end" not in outcome.stderr


def test_the_end_of_one_communicator_that_fails_keeps_no_other_open(tmp_path):
    outcome = run(
        tmp_path,
        """
        import unisono.communicator
        class Broken:
            def end(self):
                raise OSError("broken")
        comm, broken = unisono.init(), [Broken() for _ in range(9)]
        unisono.communicator._alive.update(broken)
        request = comm.receive_async(np.ones(3), comm.rank)
        """,
        ranks=1,
    )
    assert outcome.returncode == 0 and outcome.stderr.count("OSError: broken") == 9, outcome.stderr


def test_a_forked_child_ends_whatever_threads_its_parent_had(tmp_path):
    """Its parent's threads are in calls and in callbacks; it must wait for none of them."""
    outcome = run(
        tmp_path,
        """
        import threading, time
        comm = unisono.init()
        other = comm.duplicate()
        threading.Thread(target=lambda: comm.receive(np.ones(3), comm.rank), daemon=True).start()
        entered, ended = threading.Event(), threading.Event()
        def slow():
            entered.set()
            ended.wait(60)
        request = other.receive_async(np.ones(1), other.rank)
        request.on_completion(slow)
        threading.Thread(target=lambda: other.send(np.ones(1), other.rank), daemon=True).start()
        assert entered.wait(10)
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            sys.exit(0)
        started = time.monotonic()
        while os.waitpid(child, os.WNOHANG)[0] == 0 and time.monotonic() < started + 30:
            time.sleep(0.01)
        took = time.monotonic() - started
        if took > 30:
            os.kill(child, 9)
        print("took", took)
        ended.set()
        sys.exit(took > 30)
        """,
        ranks=1,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_operators_that_collect_garbage(tmp_path):
    """The library holds a lock while they run, which a request wants at its end, as others do."""
    outcome = run(
        tmp_path,
        """
        import gc
        comm = unisono.init(timeout=10)
        gc.disable()
        def drop():
            cycle = [comm.receive_async(np.ones(3), comm.rank), comm.duplicate(), comm.allocate(9)]
            cycle.append(cycle)
        def combine(low, high):
            gc.collect()
            high += low
        for _ in range(3):
            drop()
            total = comm.all_reduce(np.ones(2), op=unisono.user_op("collect", combine))
            assert total.tolist() == [2, 2]
        print("end")
        """,
    )
    assert outcome.returncode == 0 and outcome.stdout.count("end") == 2, outcome.stderr


def test_an_exception_ends_the_others(tmp_path):
    outcome = run(
        tmp_path,
        """
        comm = unisono.init()
        if comm.rank == 1:
            raise SystemExit(3)
        comm.barrier()
        """,
    )
    assert outcome.returncode != 0
    assert "RankLeft" in outcome.stderr or "RankFailed" in outcome.stderr


def test_ctrl_c_in_a_call(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(
            """
            import numpy as np, unisono
            comm = unisono.init()
            try:
                print("waits", flush=True)
                comm.receive(np.ones(1), 0)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            """
        )
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(10) == 0


def test_the_package_stands_alone():
    """The library and the command are beside the extension, wherever they were built from."""
    folder = os.path.dirname(unisono.__file__)
    maps = open("/proc/self/maps").read()
    libraries = {line.split()[-1] for line in maps.splitlines() if "libunisono" in line}
    assert libraries and all(path.startswith(folder) for path in libraries), libraries


def test_types_are_checked(tmp_path):
    pytest.importorskip("mypy")
    outcome = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "-p", "unisono"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert outcome.returncode == 0, outcome.stdout
