#!/usr/bin/env python3
"""Removes safety checks one at a time and lists those that no test misses. See README.md."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from guards import guards_of, with_switches  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
# Where to look for checks, and the test programs that should miss them, the quickest first. The
# first row that a path begins with holds.
TESTS = {
    "src/base/handshake.cc": ["handshake_test", "stream_strangers_test", "fuzz_test"],
    "src/rendezvous": ["rendezvous_rules_test", "fuzz_test", "rendezvous_joining_test",
                       "fault_rendezvous_test"],
    "transports/tcp": ["stream_frames_test", "fuzz_test", "stream_strangers_test",
                       "stream_transport_test", "transport_conformance_test"],
    "transports/shm": ["fuzz_test", "native_test", "transport_message_ring_test",
                       "transport_conformance_test"],
    "src/engine": ["messenger_test", "fault_mismatch_test",
                   "collective_point_to_point_test", "collective_request_test",
                   "fault_deadline_test"],
}
TIME_FACTOR = 6    # of what a program needs with all checks
TIME_MIN_S = 60


def run(command, limit, log, **more):
    """(status, seconds); the status is "hang" where it had to be ended."""
    began = time.monotonic()
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True, **more)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            status = "hang"
    return status, time.monotonic() - began


class Build:
    """A copy of the sources, in which checks go missing, and its build directory."""

    def __init__(self, folder, jobs, switched):
        """`switched`: the sources that get switches and are not copied again."""
        self.folder = folder
        self.source = os.path.join(folder, "source")
        # Where the preset has it: ccache then knows what is compiled in the tree itself.
        self.binary = os.path.join(self.source, "build", "dev")
        self.log = os.path.join(folder, "output.txt")
        self._jobs = str(jobs)
        self._paths = {}
        os.makedirs(self.source, exist_ok=True)
        self._copy(switched)
        self._configure()

    def _copy(self, switched):
        listed = subprocess.check_output(
            ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        names = {name for name in listed.decode().split("\0") if name}
        for folder, folders, files in os.walk(self.source):
            if folder == self.source and "build" in folders:
                folders.remove("build")
            for file in files:
                path = os.path.join(folder, file)
                if os.path.relpath(path, self.source) not in names:
                    os.remove(path)
        for name in names:
            origin, copy = os.path.join(ROOT, name), os.path.join(self.source, name)
            if not os.path.isfile(origin) or (name in switched and os.path.exists(copy)):
                continue
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            if not os.path.exists(copy) or open(origin, "rb").read() != open(copy, "rb").read():
                shutil.copy(origin, copy)

    def _configure(self):
        command = ["cmake", "-S", self.source, "--preset", "dev"]
        if shutil.which("ccache"):
            command.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        if shutil.which("ld.lld"):
            command.append("-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld")
        if subprocess.call(command, stdout=subprocess.DEVNULL, cwd=self.source) != 0:
            sys.exit("the copy in " + self.source + " cannot be configured")

    def build(self, programs):
        """Whether all could be built; if not, {file: lines with errors} of the sources."""
        command = ["nice", "ninja", "-C", self.binary, "-k", "0", "-j", self._jobs, *programs]
        with open(self.log, "w") as out:
            if subprocess.call(command, stdout=out, stderr=subprocess.STDOUT) == 0:
                return True, {}
        wrong = {}
        with open(self.log, errors="replace") as file:
            for name, line in re.findall(r"^(\S+?):(\d+):\d+: error:", file.read(), flags=re.M):
                path = os.path.normpath(os.path.join(self.binary, name))
                wrong.setdefault(os.path.relpath(path, self.source), set()).add(int(line))
        return False, wrong

    def test(self, program, limit, log, removed=None, only=None):
        if program not in self._paths:
            tests = os.path.join(self.binary, "tests")
            found = subprocess.check_output(["find", tests, "-name", program, "-type", "f"])
            self._paths[program] = found.decode().split()[0]
        environment = dict(os.environ, **({} if removed is None else {"REMOVED_CHECK": str(removed)}))
        command = [self._paths[program], "--gtest_fail_fast", "--gtest_brief=1"]
        if only and only != "hangs":
            command.append("--gtest_filter=" + only)
        return run(command, limit, log, env=environment)

    def write(self, name, text):
        path = os.path.join(self.source, name)
        with open(path) as file:
            if file.read() == text:
                return
        with open(path, "w") as file:
            file.write(text)


def failed_test(log):
    """The first test that failed; None where the program ended before."""
    with open(log, errors="replace") as file:
        found = re.search(r"\[  FAILED  \] (\S+)", file.read())
    return found.group(1).rstrip(",") if found else None


def programs_for(name):
    return next(programs for folder, programs in TESTS.items() if name.startswith(folder))


def sources(only):
    names = []
    for folder in TESTS:
        path = os.path.join(ROOT, folder)
        files = [path] if os.path.isfile(path) else [
            os.path.join(path, file) for file in sorted(os.listdir(path))]
        names += [os.path.relpath(file, ROOT) for file in files if file.endswith((".cc", ".h"))]
    return [name for name in names if not only or any(name.startswith(one) for one in only)]


def all_guards(only):
    """Guards with their keys: of what they say and not of their lines, so that results last."""
    seen = {}
    for name in sources(only):
        with open(os.path.join(ROOT, name)) as file:
            text = file.read()
        for guard in guards_of(name, text):
            says = (guard.file, guard.function, guard.condition)
            seen[says] = seen.get(says, 0) + 1
            digest = hashlib.sha256("\0".join((*says, str(seen[says]))).encode())
            yield digest.hexdigest()[:16], guard


def explanations():
    """{(file, function, condition): reason} of explained.txt, stanzas of `field: text` lines."""
    table = {}
    with open(os.path.join(HERE, "explained.txt")) as file:
        text = re.sub(r"^#.*\n", "", file.read(), flags=re.M)
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^(\w+): (.*)$", re.sub(r"\n\s+", " ", stanza), flags=re.M))
        if fields:
            table[fields["file"], fields["function"], fields["condition"]] = fields["reason"]
    return table


def compile_all(build, guards, programs):
    """Builds `programs`, each check of `guards`, {number: guard}, with a switch. The numbers of those
    that cannot be compiled."""
    hopeless = set()
    while True:
        for name in sorted({guard.file for guard in guards.values()}):
            with open(os.path.join(ROOT, name)) as file:
                text = file.read()
            build.write(name, with_switches(text, {
                number: guard for number, guard in guards.items()
                if guard.file == name and number not in hopeless}))
        done, wrong = build.build(programs)
        if done:
            return hopeless
        fresh = {number for number, guard in guards.items()
                 if any(guard.line <= line <= guard.last_line for line in wrong.get(guard.file, ()))}
        if fresh <= hopeless:
            sys.exit(f"the tests cannot be built; see {build.log}")
        hopeless |= fresh


def limits_of(build, programs):
    """The time each program may take; all must pass while no check is missing."""
    limits = {}
    for program in programs:
        # Not at once on a machine that is too busy.
        for _ in range(3):
            status, seconds = build.test(program, 900, build.log)
            if status == 0:
                break
        else:
            sys.exit(f"{program} fails with all checks in place; see {build.log}")
        limits[program] = max(TIME_MIN_S, TIME_FACTOR * seconds)
        print(f"{program}: {seconds:.1f} s", flush=True)
    return limits


def judge(build, number, guard, limits):
    """(decision, by whom) of one check that is missing."""
    log = os.path.join(build.folder, f"output-{number}.txt")
    try:
        for program in programs_for(guard.file):
            status, _ = build.test(program, limits[program], log, number)
            if status == 0:
                continue
            test = "hangs" if status == "hang" else failed_test(log)
            # On a machine that is too busy tests fail by themselves.
            again, _ = build.test(program, limits[program], log, only=test)
            decision = "caught" if again == 0 else "unclear"
            return decision, f"{program}: {test or 'it ended before a test had failed'}"
        return "survived", ""
    finally:
        if os.path.exists(log):
            os.remove(log)


def report(guards, results):
    """Prints what became of the checks; the number of unexplained survivors."""
    explained, used, counts, left = explanations(), set(), {}, []
    for key, guard in guards:
        result = results.get(key)
        decision = result["decision"] if result else "not tried"
        says = (guard.file, guard.function, guard.condition)
        if says in explained:
            used.add(says)
            decision = "explained" if decision in ("survived", "not tried") else decision
        counts[decision] = counts.get(decision, 0) + 1
        if decision in ("survived", "unclear"):
            left.append((decision, guard))
    print(", ".join(f"{count} {decision}" for decision, count in sorted(counts.items())))
    for decision, guard in left:
        print(f"{guard.file}:{guard.line}: {decision}, in {guard.function}: {guard.condition}")
    for says in explained:
        if says not in used and any(says[0] == guard.file for _, guard in guards):
            print("explained, but no such check is found: " + ", ".join(says))
    return len(left)


def number_of(key):
    """Of the check's switch: the same in every run, so that little is compiled again."""
    return int(key[:7], 16)


def try_all(build, guards, wanted, jobs, results, journal):
    """Tries `wanted`, [(key, guard)], and adds to `results` and to the file `journal`."""
    programs = list(dict.fromkeys(
        program for _, guard in wanted for program in programs_for(guard.file)))
    hopeless = compile_all(build, {number_of(key): guard for key, guard in guards}, programs)
    limits = limits_of(build, programs)

    def try_one(each):
        key, guard = each
        decision, by = (("not compilable", "") if number_of(key) in hopeless
                       else judge(build, number_of(key), guard, limits))
        return {"key": key, "decision": decision, "by": by, "file": guard.file,
                "function": guard.function, "condition": guard.condition}

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool, open(journal, "a") as file:
        for at, result in enumerate(pool.map(try_one, wanted)):
            results[result["key"]] = result
            file.write(json.dumps(result) + "\n")
            file.flush()
            by = " by " + result["by"] if result["by"] else ""
            print(f"{at + 1}/{len(wanted)} {result['file']}:{wanted[at][1].line} "
                  f"{result['condition']}: {result['decision']}{by}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the checks and end")
    parser.add_argument("--report", action="store_true", help="print the results there are and end")
    parser.add_argument("--only", action="append", metavar="PATH", help="files or folders")
    parser.add_argument("--retry", action="store_true",
                        help="try survivors, and what was unclear, again")
    parser.add_argument("--jobs", type=int, default=2,
                        help="compilers, and then test programs, at a time")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build", "mutation"),
                        help="for the copy of the sources, its build and the results")
    arguments = parser.parse_args()
    guards = list(all_guards(arguments.only))
    if arguments.list:
        for key, guard in guards:
            print(f"{key} {guard.file}:{guard.line} {guard.function}: {guard.condition}")
        return 0
    os.makedirs(arguments.folder, exist_ok=True)
    journal = os.path.join(arguments.folder, "results.jsonl")
    results = {}
    if os.path.exists(journal):
        with open(journal) as file:
            results = {line["key"]: line for line in map(json.loads, file)}
    if not arguments.report:
        explained = explanations()
        wanted = [(key, guard) for key, guard in guards
                  if (guard.file, guard.function, guard.condition) not in explained
                  and (key not in results
                       or (arguments.retry
                           and results[key]["decision"] in ("survived", "unclear")))]
        if wanted:
            files = {guard.file for _, guard in wanted}
            of_files = [(key, guard) for key, guard in guards if guard.file in files]
            try_all(Build(arguments.folder, arguments.jobs, files), of_files, wanted,
                    arguments.jobs, results, journal)
    return 1 if report(guards, results) else 0


if __name__ == "__main__":
    sys.exit(main())
