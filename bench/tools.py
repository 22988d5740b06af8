"""Times calls of tools from inside a sandbox, beside a bare round trip of the guest link, in one run.

    python bench/tools.py [--quick]

Prints a table and writes bench/results/*.json, as run.py does. The bare round trip is a message that the daemon refuses at once: it goes the
same way, from the program over the agent's socket and the link to the daemon and back, and nothing is looked up, checked, carried out or written down.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "test")]

from daemon import Daemon  # noqa: E402
from figures import Figure, Line, save, show  # noqa: E402
from pandastack import Sandbox  # noqa: E402

INSIDE = r"""
import asyncio, json, time
from pandastack_kernel import toolbox
from tools import aio, here, server
def bare(): toolbox._lines.ask(toolbox._encode({"op": "nothing"}))
def function(): server.echo(value=1)
def program(): here(value=1)
def each(what, n):
    out = []
    for _ in range(n):
        began = time.perf_counter()
        what()
        out.append((time.perf_counter() - began) * 1000)
    return out
async def together(n):
    began = time.perf_counter()
    assert await asyncio.gather(*(aio.server.echo(value=i) for i in range(n))) == list(range(n))
    return [(time.perf_counter() - began) * 1000]
for what in (bare, function, program): each(what, 50)
"""


def here(value: Any) -> Any:
    """A function of this program."""
    return value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    lines: list[Line] = []
    daemon = Daemon().start()
    try:
        with Sandbox.create("code-interpreter", ttl_seconds=1800, tools=["server", here], api_url=daemon.url, api_key=daemon.key) as sb:

            def inside(code: str) -> list[float]:
                ex = sb.run_code(f"print(json.dumps({code}))", timeout_seconds=600)
                assert ex.error is None, ex.error
                return list(json.loads(ex.stdout))

            assert sb.run_code(INSIDE, timeout_seconds=60).error is None
            samples: dict[str, list[float]] = {"bare": [], "function": [], "program": []}
            for _ in range(2 if quick else 8):  # in turns
                for what, into in samples.items():
                    into += inside(f"each({what}, {200 if quick else 500})")
            bare = Figure(samples["bare"])
            for what, name, most in (("function", "a call of a function of the daemon", 1.0), ("program", "a call of a function of a Python program", None)):
                line = Line(name, Figure(samples[what]), "a bare round trip of the link", bare, "≤ 1 ms" if most else "")
                line.met = line.ours.median <= most if most else None
                lines.append(line)
            hundred = [x for _ in range(3 if quick else 20) for x in inside("await together(100)")]
            lines.append(Line("100 calls at once, all of them", Figure(hundred)))
    finally:
        daemon.stop()
        daemon.remove()
    print(show(lines))
    print(f"\nwritten to {save(lines, Path(__file__).parent / 'results')}")
    return 0 if all(line.met is not False for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
