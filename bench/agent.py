"""Times what the agent loop adds to the cells of a model, each turn beside a bare run_code of the same cell.

    python bench/agent.py [--quick]

Prints a table and writes bench/results/*.json, as run.py does. The model is a scripted one on loopback, which answers at once, or, where
it says so, after 150 ms, as fast models do. A turn counts from the model's reply to the next request: reading the reply, the copy of the
state before the turn, the cell, what the model is told, and the transcript, through to the disk.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "test")]

from daemon import BIN, Daemon  # noqa: E402
from figures import Figure, Line, save, show, timed  # noqa: E402
from pandastack import Agent, Sandbox  # noqa: E402

DATA = "region,sales\n" + "North,14200\nEast,31000\n" * 500


def cell(n: int) -> str:
    """Ordinary work, and never the same twice: a loop that repeats itself is told so."""
    return f"total = sum(int(line.split(',')[1]) for line in open('data.csv').readlines()[1:])\nprint('turn {n}:', total + {n})"


class Bench:
    def __init__(self, quick: bool) -> None:
        self.n = 20 if quick else 100
        self.lines: list[Line] = []

    def add(self, line: Line) -> None:
        self.lines.append(line)
        print(show([line]).splitlines()[-1], flush=True)

    def turns(self, d: Daemon, pause_ms: int) -> list[float]:
        """What each turn took, in ms, from the reply to the next request."""
        turns = [{"say": f"I add.\n\n```python\n{cell(n)}\n```", "pause_ms": pause_ms} for n in range(self.n)] + [{"say": "FINAL ANSWER: done"}]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as script:
            json.dump({"conversations": [{"task": "", "turns": turns}]}, script)
            script.flush()
            model = subprocess.Popen([BIN, "agent", "script", script.name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            assert model.stdout
            try:
                agent = Agent("openai:scripted", base_url=model.stdout.readline().strip(), api_url=d.url, api_key=d.key,
                              limits={"max_turns": self.n + 1, "max_cells": self.n + 1, "max_tokens": 100_000_000})
                run = agent.run("Add.", files={"data.csv": DATA})
                assert run.answer == "done", run.info
                events = list(run.events())
            finally:
                model.terminate()
                model.wait()
        samples, replied = [], None
        for e in events:
            at = datetime.fromisoformat(e.data["time"][:26].rstrip("Z") + "+00:00")
            if e.type == "asked" and replied:
                samples.append((at - replied).total_seconds() * 1000)
            replied = at if e.type == "reply" else replied
        return samples

    def loop(self, d: Daemon) -> None:
        with Sandbox.create("code-interpreter", ttl_seconds=900, api_url=d.url, api_key=d.key) as sb:
            sb.filesystem.write("/workspace/data.csv", DATA)
            ctx = sb.create_code_context()
            bare = Figure([timed(lambda n=n: ctx.run_code(cell(n))) for n in range(self.n)])
        for pause_ms, name in ((0, "a turn, model answers at once"), (150, "a turn, model thinks for 150 ms")):
            ours = Figure(self.turns(d, pause_ms))
            over = ours.median - bare.median
            self.add(Line(f"{name}: {over:.1f} ms more than the cell", ours, "run_code of the same cell", bare, "≤ 20 ms more", over <= 20))

    def states(self, d: Daemon) -> None:
        """What a copy of the state before a turn costs, in the two ways there are."""
        with Sandbox.create("code-interpreter", ttl_seconds=900, api_url=d.url, api_key=d.key) as sb:
            ctx = sb.create_code_context()
            ctx.run_code("import pandas as pd\ndf = pd.DataFrame({'a': range(100_000)})")
            forks: list[float] = []
            for _ in range(self.n):
                made: list = []
                forks.append(timed(lambda: made.append(ctx.fork())))
                made[0].close()
            snapshots = []
            for _ in range(max(self.n // 10, 3)):
                snapshots.append(timed(lambda: made.append(sb.snapshot())))
            size = made[-1].size_bytes / 1e6
            self.add(Line("state before a turn: copy of the context", Figure(forks), f"snapshot of the sandbox ({size:.0f} MB)", Figure(snapshots)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    bench = Bench(parser.parse_args().quick)
    d = Daemon(pool_ready=1, pool_prepared=0).start()
    try:
        bench.loop(d)
        bench.states(d)
    finally:
        d.stop()
        d.remove()
    print()
    print(show(bench.lines))
    print(f"\nwritten to {save(bench.lines, Path(__file__).parent / 'results')}")
    sys.exit(0 if all(line.met is not False for line in bench.lines) else 1)


if __name__ == "__main__":
    main()
