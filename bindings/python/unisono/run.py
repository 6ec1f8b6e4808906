"""``python -m unisono.run -n 4 script.py``: the command ``unisono run`` of this package.

It takes the same flags; a command that ends in .py is run by this interpreter.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import List, NoReturn

#: Flags that have no value of their own; all others of ``unisono run`` take one. Each may be
#: written with underscores, as in torchrun.
_SWITCHES = {
    "-h",
    "--help",
    "--no-python",
    "--standalone",
    "--prefix",
    "--tag-output",
    "--no-prefix",
    "--keep-going",
}


def command() -> Path:
    """The packaged command ``unisono``."""
    return Path(__file__).with_name("bin") / "unisono"


def with_interpreter(arguments: List[str]) -> List[str]:
    """The arguments, with the interpreter before a script of Python."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        flag = arguments[at]
        is_switch = flag.replace("_", "-") in _SWITCHES
        has_own_value = not is_switch and "=" not in flag and not _is_short_joined(flag)
        at += 2 if has_own_value else 1
    if at < len(arguments) and arguments[at] == "--":
        at += 1
    if at < len(arguments) and arguments[at].endswith(".py"):
        return [*arguments[:at], sys.executable, *arguments[at:]]
    return arguments


def _is_short_joined(flag: str) -> bool:
    return len(flag) > 2 and not flag.startswith("--")  # -n4


def execute(*arguments: str) -> NoReturn:
    """Becomes the packaged command."""
    program = command()
    if not program.exists():
        sys.exit(f"unisono: the package has no command {program}; install it again")
    os.execv(program, [str(program), *arguments])


def main() -> NoReturn:
    """``python -m unisono.run``"""
    execute("run", *with_interpreter(sys.argv[1:]))


def script() -> NoReturn:
    """The command ``unisono`` as the package installs it."""
    execute(*sys.argv[1:])


if __name__ == "__main__":
    main()
