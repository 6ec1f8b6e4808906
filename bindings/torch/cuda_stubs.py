#!/usr/bin/env python3
"""Makes stand-ins for the CUDA libraries that a torch wheel wants, so that it can be imported where
no GPU will be used: PyPI has no torch without CUDA for this platform, and what it depends on is
two gigabytes more.

    python cuda_stubs.py <site-packages> <folder>
    LD_LIBRARY_PATH=<folder> python -c 'import torch'

Each library that torch's own libraries need, and that neither the system nor the wheel has, becomes
a library of that name in <folder>. Its functions say that there is no device (functions of the CUDA
runtime) or end the process with a message (all others, which are not called without a device).
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

NO_DEVICE = 100  # cudaErrorNoDevice
SYSTEM = re.compile(r"^(ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp)[.-])")

Symbol = collections.namedtuple("Symbol", "name version")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_by(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", library))


def path_in_system(library):
    """Where the system has it, or None."""
    path = pathlib.Path(run("cc", f"-print-file-name={library}").strip())
    return path if path.is_absolute() else None


def symbols_of(library, *options):
    """Functions that the dynamic symbol table has; of those that are undefined the strong ones."""
    found = set()
    for line in run("nm", "-D", "--with-symbol-versions", *options, library).splitlines():
        kind, name = line.split()[-2:]
        if kind in "wv":
            continue
        base, _, version = name.partition("@")
        found.add(Symbol(base, version.strip("@")))
    return found


def version_owners(library):
    """Which library each version of an undefined symbol is of."""
    owners, file = {}, None
    for line in run("readelf", "-VW", library).splitlines():
        if match := re.search(r"File: (\S+)", line):
            file = match[1]
        elif (match := re.search(r"Name: (\S+)\s+Flags", line)) and file:
            owners[match[1]] = file
        elif "Version definition" in line or "Version symbols" in line:
            file = None
    return owners


def body_of(name):
    if name.startswith("__cuda"):
        return "return 0;"  # what libraries register while they are loaded
    if name in ("cudaGetErrorString", "cudaGetErrorName"):
        return 'return "a stand-in for the CUDA runtime";'
    if name.startswith("cuda"):
        return f"return (void*){NO_DEVICE};"
    return f'stop("{name}");'


PROLOGUE = """\
#include <stdio.h>
#include <stdlib.h>
static void stop(const char* name) __attribute__((noreturn, unused));
static void stop(const char* name) {
  fprintf(stderr, "%s: this process has stand-ins for the CUDA libraries, and no GPU\\n", name);
  abort();
}
"""


def write_stub(folder, library, symbols):
    source = folder / f"{library}.c"
    versions = collections.defaultdict(list)
    for symbol in sorted(symbols):
        versions[symbol.version].append(symbol.name)
    with source.open("w") as out:
        out.write(PROLOGUE)
        for name in sorted({symbol.name for symbol in symbols}):
            out.write(f"void* {name}(void) {{ {body_of(name)} }}\n")
    script = folder / f"{library}.map"
    named = {version: names for version, names in versions.items() if version}
    script.write_text(
        "".join(f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in named.items())
    )
    command = ["cc", "-shared", "-fPIC", "-O0", "-w", f"-Wl,-soname,{library}"]
    if named:
        command.append(f"-Wl,--version-script={script}")
    subprocess.run([*command, str(source), "-o", str(folder / library)], check=True)
    source.unlink()
    script.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site_packages", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    own = sorted((arguments.site_packages / "torch" / "lib").glob("*.so*"))
    if not own:
        sys.exit(f"{arguments.site_packages} has no torch/lib")
    names = {path.name for path in own}
    in_system = set()
    missing, defined, undefined, owners = set(), set(), set(), {}
    for path in own:
        # The driver is looked for by name at run time, and must not be found here.
        needed = {n for n in needed_by(path) if not n.startswith("libcuda.so")}
        for name in needed - names:
            if SYSTEM.match(name):
                continue
            if path_of_it := path_in_system(name):
                in_system.add(path_of_it)
            else:
                missing.add(name)
        defined |= {symbol.name for symbol in symbols_of(path, "--defined-only")}
        undefined |= symbols_of(path, "--undefined-only")
        owners |= version_owners(path)
    for path in in_system:
        defined |= {symbol.name for symbol in symbols_of(path, "--defined-only")}
    if not missing:
        return
    stubs = {library: set() for library in missing}
    for symbol in undefined:
        owner = owners.get(symbol.version)
        if symbol.version and owner in stubs:
            stubs[owner].add(symbol)
        elif not symbol.version and symbol.name not in defined:
            # No library says whose it is, and any that is loaded will do.
            stubs[min(missing)].add(symbol)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for library, symbols in sorted(stubs.items()):
        write_stub(arguments.folder, library, symbols)
        print(f"{library}: {len(symbols)} functions")


if __name__ == "__main__":
    main()
