#!/usr/bin/env python3
"""Kernels compiled for a wider instruction set may share no symbol with the rest of the program.

Of symbols that several objects define (weak or unique) the linker keeps any one. Were it that of an
object compiled for AVX-512, a CPU without it would meet an illegal instruction far from any kernel.
So all that these objects define that way must be Eigen's, in the namespace renamed for them.

Usage: kernel_symbols_test.py NM ARCHIVE
"""
import re
import subprocess
import sys


def shared_symbols(nm, archive):
    """(variant, symbol) of every weak or unique definition in a kernel's object."""
    listing = subprocess.run([nm, "--demangle", "--defined-only", archive], check=True,
                             capture_output=True, text=True).stdout
    variant = None
    for line in listing.splitlines():
        if line.endswith(".o:"):
            match = re.fullmatch(r"gemm_(avx\w+)\.cc\.o:", line)
            variant = match and match.group(1)
            continue
        fields = line.split(maxsplit=2)
        if variant and len(fields) == 3 and fields[1] in "WwVvu":
            yield variant, fields[2]


def main():
    nm, archive = sys.argv[1:]
    symbols = list(shared_symbols(nm, archive))
    # A reference to the language's own exception routine is data, not code.
    stray = [(variant, name) for variant, name in symbols
             if f"Eigen_{variant}::" not in name and not name.startswith("DW.ref.")]
    for variant, name in stray:
        print(f"gemm_{variant}.cc shares a symbol with other objects: {name}")
    if not symbols:
        print(f"{archive} holds no kernel: wrong archive?")
    return 1 if stray or not symbols else 0


if __name__ == "__main__":
    sys.exit(main())
