"""bench/gpu/run.sh --pack and --from: the archive runs in a root that has nothing but a C library
and a shell, on the double of the driver.

usage: gpu_pack_test.py BUILD_TREE DRIVER [unittest arguments]
"""
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.dont_write_bytecode = True
from gpu_run import BUILD, CUBLAS, DRIVER, SCRIPT, outcomes, run  # noqa: E402

# What a bare machine has. Its Python, its compiler and our packages are not there.
TOOLS = ("bash sh awk basename cat chmod cp cut date dirname env getconf grep gzip head ldd ls "
         "mkdir mktemp mv nproc rm rmdir sed seq setsid sleep sort stat tail tar timeout touch tr "
         "uname uniq wc xargs").split()


def libraries(*files):
    text = subprocess.run(["ldd", *files], stdout=subprocess.PIPE, text=True, check=False).stdout
    return sorted(set(re.findall(r"(/\S+) \(0x", text)))


class BareRoot:
    """A root with the C library, the tools above, the script, the double and nothing else."""

    def __init__(self, folder):
        self.folder = folder
        for tool in TOOLS:
            path = shutil.which(tool)
            if path is not None:
                self.take(os.path.realpath(path), os.path.join("/bin", tool))
                if not self.is_script(path):
                    for library in libraries(path):
                        self.take(library)
        for name in os.listdir(os.path.dirname(SCRIPT)):
            path = os.path.join(os.path.dirname(SCRIPT), name)
            if os.path.isfile(path):
                self.take(path, f"/tree/bench/gpu/{name}")
        # Of the double only the build's own libraries: all others it finds in the archive, or not.
        self.take(DRIVER)
        for library in libraries(DRIVER):
            if library.startswith(os.path.realpath(BUILD)):
                self.take(library)
        self.take(CUBLAS)
        for name in ("tmp", "dev", "proc", "out"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)

    @staticmethod
    def is_script(path):
        with open(path, "rb") as file:
            return file.read(2) == b"#!"

    def take(self, path, place=None):
        target = self.folder + (place or path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            shutil.copy(path, target)

    def run(self, *command, **environment):
        settings = [f"{name}={value}" for name, value in environment.items()]
        return subprocess.run(
            ["unshare", *UNSHARE, "sh", "-c",
             'mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"',
             self.folder, "/bin/env", "-i", "PATH=/bin", "HOME=/", *settings, *command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


# Processes of the job end with it.
UNSHARE = ["--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]


def why_no_root():
    if shutil.which("unshare") is None or shutil.which("chroot") is None:
        return "there is no unshare or no chroot"
    tried = subprocess.run(["unshare", *UNSHARE, "mount", "-t", "proc", "proc", "/proc"],
                           stderr=subprocess.PIPE, text=True, check=False)
    return f"no namespace of its own: {tried.stderr.strip()}" if tried.returncode != 0 else None


@unittest.skipIf(why_no_root(), why_no_root())
class BareMachine(unittest.TestCase):
    """The archive, packed here, runs where nothing is installed."""

    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.folder = cls.place.name
        cls.archive = os.path.join(cls.folder, "root", "pack.tar")
        # Not all of the tests, for the compressor to be quick.
        cls.packed = run(cls.folder, "--programs", BUILD, "--pack", cls.archive,
                         PACK_TESTS="cuda_pieces_test|cuda_kernels_test")
        cls.root = BareRoot(os.path.join(cls.folder, "root"))

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def from_archive(self, *arguments, **environment):
        return self.root.run("/bin/bash", "/tree/bench/gpu/run.sh", "--from", "/pack.tar", "--out",
                             "/out", "--rehearse", *arguments, DRIVER=DRIVER,
                             UNISONO_CUBLAS_LIBRARY=CUBLAS, **environment)

    def parts(self, call=1):
        os.makedirs(os.path.join(self.folder, "out"), exist_ok=True)
        name = f"raw-{call}.tar.gz"
        shutil.copy(os.path.join(self.root.folder, "out", name), os.path.join(self.folder, "out"))
        return outcomes(self.folder, call)

    def test_the_root_is_bare(self):
        shown = self.root.run("/bin/bash", "-c", "type python3; type xz; ls /lib* /usr/lib*/*")
        for name in ("fmt", "spdlog", "hwloc", "stdc++", "libcrypto"):
            self.assertNotIn(name, shown.stdout)
        self.assertIn("python3: not found", shown.stdout)
        self.assertIn("xz: not found", shown.stdout)

    def test_the_archive_says_what_it_needs_and_fits(self):
        self.assertEqual(self.packed.returncode, 0, self.packed.stdout)
        self.assertRegex(self.packed.stdout, r"packed: \d+ programs in \d+ MB.* need glibc 2\.\d+")
        self.assertRegex(self.packed.stdout, r"(?m)^kernels: sm_\d+.*, toolkit 1\d\.\d+: driver \d")
        self.assertLess(os.path.getsize(self.archive), 60_000_000)

    def test_an_archive_that_is_too_large_is_refused(self):
        archive = os.path.join(self.folder, "large.tar")
        packed = run(self.folder, "--programs", BUILD, "--pack", archive, PACK_TESTS="none",
                     PACK_BYTES_MAX="1000")
        self.assertEqual(packed.returncode, 1, packed.stdout)
        self.assertIn("at most 1000", packed.stdout)
        self.assertFalse(os.path.exists(archive))

    def test_the_compilers_reports_come_along(self):
        result = self.root.run(
            "/bin/bash", "-c", "mkdir /unpacked && cd /unpacked && tar -xf /pack.tar && "
            "LD_LIBRARY_PATH=. ./xz -dc programs.tar.xz | tar -xf - && "
            "programs/cuda_kernels_test --gtest_filter=KernelImages.*")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(result.stdout.count("[       OK ]"), 2, result.stdout)

    def test_both_calls_run_from_it(self):
        temporary = os.path.join(self.root.folder, "tmp")  # the build may lie below it
        before = os.listdir(temporary)
        first = self.from_archive("--only", "probe kernels brief correctness graph waits")
        self.assertEqual(first.returncode, 0, first.stdout)
        told = self.parts()
        self.assertEqual(set(told.values()), {"pass"}, first.stdout)
        self.assertIn("no python3 here", first.stdout)
        self.assertIn("goals: not judged (no python3)", first.stdout)
        second = self.from_archive("--call", "2", "--only", "conformance train peers")
        self.assertEqual(second.returncode, 0, second.stdout)
        self.assertEqual(self.parts(2),
                         {"conformance": "pass", "train": "pass", "peers": "missing"},
                         second.stdout)
        self.assertEqual(os.listdir(temporary), before)
        if os.path.isdir("/usr/share/datasets/fashion-mnist"):
            self.assertRegex(second.stdout, r"train .*test accuracy [0-9.]+ %")

    def test_a_part_that_fails_is_told_without_python_too(self):
        result = self.from_archive("--only", "correctness", PROGRAM_DRIVER="idle")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("parts failed: correctness;", result.stdout)

    def test_what_had_no_time_is_told_without_python_too(self):
        result = self.from_archive("--only", "probe graph", "--seconds", "1")
        self.assertEqual(result.returncode, 75, result.stdout)
        self.assertIn("had no time: probe, graph;", result.stdout)

    def test_without_an_archive_there_are_no_sources(self):
        result = self.root.run("/bin/bash", "/tree/bench/gpu/run.sh", "--out", "/out")
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("no sources here: --from ARCHIVE", result.stdout)

    def test_what_is_no_archive_is_refused(self):
        with open(os.path.join(self.root.folder, "other.tar"), "w") as file:
            file.write("nothing")
        result = self.root.run("/bin/bash", "/tree/bench/gpu/run.sh", "--from", "/other.tar",
                               "--out", "/out", "--rehearse", DRIVER=DRIVER)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("/other.tar is no archive of --pack", result.stdout)

    def test_a_c_library_that_is_too_old_is_named(self):
        for file, told in (("programs/unisono", "unisono needs glibc 9.0, and here is 2."),
                           ("programs/lib/libz.so.1", "the system's own is taken")):
            with tempfile.TemporaryDirectory() as folder:
                with tarfile.open(self.archive) as archive:
                    archive.extractall(folder)
                with open(os.path.join(folder, "glibc"), "w") as table:
                    table.write(f"9.0 {file}\n")
                with tarfile.open(os.path.join(self.root.folder, "new.tar"), "w") as archive:
                    archive.add(folder, ".")
            result = self.root.run("/bin/bash", "/tree/bench/gpu/run.sh", "--from", "/new.tar",
                                   "--out", "/out", "--rehearse", "--only", "probe", DRIVER=DRIVER)
            self.assertIn(told, result.stdout)
            self.assertEqual(result.returncode, 2 if "lib/" not in file else result.returncode)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
