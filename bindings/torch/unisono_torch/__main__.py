"""python -m unisono_torch [--prebuild]: says what is there; compiles the adapter beforehand."""

import argparse
import sys

from unisono_torch import _build


def main():
    parser = argparse.ArgumentParser(prog="python -m unisono_torch", description=__doc__)
    parser.add_argument("--prebuild", action="store_true", help="compile the adapter now")
    arguments = parser.parse_args()
    import torch

    try:
        include, library = _build.find_unisono()
        print(f"torch {torch.__version__}, unisono in {library} (header in {include})")
        if arguments.prebuild:
            print(f"adapter: {_build.build()}, unisono {_build.load().version()}")
    except _build.BuildError as error:
        sys.exit(f"torch {torch.__version__}: {error}")


if __name__ == "__main__":
    main()
