"""Compiles the adapter for the torch that is installed, and loads it.

An adapter fits one version of torch, since c10d's classes change their layout from version to
version: it is compiled when it is first needed and kept in the user's cache.
"""

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig

MODULE = "_unisono_torch"
SOURCES = pathlib.Path(__file__).parent / "csrc"
OLDEST_TORCH = (2, 4)


class BuildError(RuntimeError):
    """The adapter could not be made; the text says what is missing."""


def _torch_version():
    import torch

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise BuildError(f"unisono_torch needs torch {oldest} or newer, not {torch.__version__}")
    return torch.__version__


def _run(command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True)


def _from_root(root):
    root = pathlib.Path(root)
    for lib in ("lib", "lib64", f"lib/{sysconfig.get_config_var('MULTIARCH') or ''}"):
        if (root / lib / "libunisono.so").exists():
            return root / "include", root / lib
    raise BuildError(f"TORCH_UNISONO_ROOT is {root}, which has no lib/libunisono.so")


def find_unisono():
    """Folders of the header and of the library: TORCH_UNISONO_ROOT, else what pkg-config knows."""
    if root := os.environ.get("TORCH_UNISONO_ROOT"):
        return _from_root(root)
    if shutil.which("pkg-config"):
        folders = ("includedir", "libdir")
        asked = [_run(["pkg-config", f"--variable={folder}", "unisono"]) for folder in folders]
        if all(each.returncode == 0 for each in asked):
            return tuple(pathlib.Path(each.stdout.strip()) for each in asked)
    raise BuildError(
        "libunisono was not found: install it (cmake --install) and set TORCH_UNISONO_ROOT to its "
        "prefix, or PKG_CONFIG_PATH to the folder of unisono.pc"
    )


def _cache():
    base = os.environ.get("TORCH_UNISONO_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "unisono", "torch"
    )
    return pathlib.Path(base)


def _compiler():
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if shutil.which(compiler[0]) is None:
        raise BuildError(
            f"no C++ compiler: {compiler[0]} was not found; install g++, set CXX, or have a machine "
            "like this compile the adapter (python -m unisono_torch --prebuild) into a "
            "TORCH_UNISONO_CACHE that this one reads"
        )
    return compiler


def _command(output):
    import torch
    from torch.utils import cpp_extension

    include, library = find_unisono()
    torch_library = pathlib.Path(torch.__file__).parent / "lib"
    command = [*_compiler(), "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"]
    command += [f"-DTORCH_EXTENSION_NAME={MODULE}"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
        value = getattr(torch._C, f"_PYBIND11_{name}", None)
        if value is not None:
            command += [f'-DPYBIND11_{name}="{value}"']
    folders = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    command += [flag for folder in folders for flag in ("-isystem", str(folder))]
    command += ["-I", str(include), "-I", str(SOURCES.parent)]
    command += ["-x", "c++", "-", "-x", "none"]
    command += ["-L", str(torch_library), "-L", str(library)]
    command += [f"-Wl,-rpath,{torch_library}", f"-Wl,-rpath,{library}"]
    # Of a C++ library that the compiler links statically, libunisono would find parts here.
    command += ["-Wl,--exclude-libs,ALL"]
    command += ["-lc10", "-ltorch_cpu", "-ltorch_python", "-lunisono", "-o", str(output)]
    return command


def _sources():
    """All of them as one: most of the time goes into torch's headers."""
    return "".join(f'#include "csrc/{source.name}"\n' for source in sorted(SOURCES.glob("*.cpp")))


def _key():
    """What an adapter fits, beside the compiler."""
    include, library = find_unisono()
    digest = hashlib.sha256()
    for header in ("unisono.h", "c_values.h"):
        digest.update((include / "unisono" / header).read_bytes())
    made_for = (_torch_version(), sys.version, platform.machine())
    for part in (*made_for, str((library / "libunisono.so").resolve())):
        digest.update(part.encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _compiler_key():
    compiler = _compiler()
    said = _run([*compiler, "--version"]).stdout
    return hashlib.sha256(f"{compiler}{said}".encode()).hexdigest()[:8]


def _folder():
    """Where the adapter belongs: where there is no compiler, wherever one was made beforehand."""
    folder = _cache() / _key()
    try:
        return folder / _compiler_key()
    except BuildError:
        made = sorted(folder.glob(f"*/{MODULE}.so"))
        if not made:
            raise
        return made[0].parent


@contextlib.contextmanager
def _one_at_a_time(folder):
    """All ranks of a host come here at once. The lock ends with its holder, however that ends."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build():
    """The path of the adapter, which is compiled where it is not there yet."""
    folder = _folder()
    made = folder / f"{MODULE}.so"
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder):
        if made.exists():
            return made
        import torch

        said = f"unisono: compiling the adapter for torch {torch.__version__}, once"
        print(said, file=sys.stderr)
        part = folder / f"{MODULE}.{os.getpid()}.so"
        done = _run(_command(part), _sources())
        if done.returncode != 0:
            last = "\n".join(done.stderr.splitlines()[-30:])
            raise BuildError(f"compiling the adapter for torch {torch.__version__} failed:\n{last}")
        part.rename(made)
    return made


@functools.cache
def load():
    """The compiled module."""
    import torch  # noqa: F401  its libraries are needed by the module

    path = build()
    spec = importlib.util.spec_from_file_location(MODULE, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
