"""``%%bash`` and its family, run on the cell's own descriptors.

IPython's version reads the output in a thread of its own, which would then live in the kernel for ever.
"""

from __future__ import annotations

import shlex
import subprocess
from subprocess import CalledProcessError
from typing import Any

_COMMANDS = ("bash", "sh", "perl", "ruby", "python", "python3", "node")


def install(shell: Any) -> None:
    """Replace ``%%script``, and the magics made from it, by :func:`script`."""
    for name in ("script", *_COMMANDS):

        def magic(line: str, cell: str, _name: str = name) -> None:
            script(shell, line if _name == "script" else f"{_name} {line}", cell)

        if name == "script" or name in shell.magics_manager.magics["cell"]:
            magic.__doc__ = f"Run the cell with {'the program given' if name == 'script' else name}."
            shell.register_magic_function(magic, "cell", name)


def script(shell: Any, line: str, cell: str) -> None:
    """Run ``cell`` as the standard input of a program.

    ``--out NAME`` and ``--err NAME`` keep its output in variables; ``--no-raise-error`` accepts any exit status.

    Raises:
        CalledProcessError: the program ended with another status than 0.
        FileNotFoundError: there is no such program.
    """
    from .shell import run_program

    words = shlex.split(line)
    keep: dict[str, str] = {}
    check = True
    while words and (words[0].startswith("--") or (len(words) > 1 and words[1].startswith("--"))):
        # Options may stand before or after the program's name, as `%%bash --out x` puts them after.
        at = 0 if words[0].startswith("--") else 1
        option, _, value = words.pop(at).partition("=")
        if option in ("--out", "--err"):
            keep[option[2:]] = value or (words.pop(at) if len(words) > at else "")
        elif option == "--no-raise-error":
            check = False
        elif option == "--raise-error":
            check = True
        else:
            raise ValueError(f"%%{words[0] if words else 'script'}: {option} is not supported here")
    if not words:
        raise ValueError("%%script: name the program to run")
    if not keep:
        status = run_program(words, stdin=cell.encode())
    else:
        done = subprocess.run(
            words,
            input=cell.encode(),
            stdout=subprocess.PIPE if "out" in keep else None,
            stderr=subprocess.PIPE if "err" in keep else None,
            check=False,
        )
        for stream, name in keep.items():
            shell.user_ns[name] = (done.stdout if stream == "out" else done.stderr).decode(errors="replace")
        status = done.returncode
    if check and status:
        raise CalledProcessError(status, words)
