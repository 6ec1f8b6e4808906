import multiprocessing
from multiprocessing.connection import wait


def _wrap(function, rank, arguments):
    """A child imports torch to find it, before it runs anything of its own."""
    function(rank, *arguments)


class Job:
    def __init__(self, processes):
        self.processes = processes

    def join(self, timeout):
        wait([process.sentinel for process in self.processes if process.is_alive()], timeout)
        codes = [process.exitcode for process in self.processes]
        if any(codes):
            raise RuntimeError(f"exit codes {codes}")
        return None not in codes


def spawn(function, args, nprocs, join):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_wrap, args=(function, rank, args))
                 for rank in range(nprocs)]
    for process in processes:
        process.start()
    return Job(processes)
