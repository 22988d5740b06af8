"""Times what the agent loop adds to the cells of a model, each turn beside a bare run_code of the same cell.

    python bench/agent.py [--quick]

Prints a table and writes bench/results/*.json, as run.py does. The model is a scripted one on loopback, which answers at once, or after
a time, as models do. A turn counts from one request to the model to the next; what is left of it without the model's own time and without
the cell is the loop's: writing the request, HTTP, reading the reply, the copies of the state, what the model is told, and the transcript,
through to the disk. Copies are made every few turns only, so the mean is what counts, and not the median.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import mean

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "test")]

from daemon import BIN, Daemon  # noqa: E402
from figures import Figure, Line, save, show, timed  # noqa: E402
from pandastack import Agent, AgentEvent, Sandbox  # noqa: E402

DATA = "region,sales\n" + "North,14200\nEast,31000\n" * 500


def cell(n: int) -> str:
    """Ordinary work, and never the same twice: a loop that repeats itself is told so."""
    return f"total = sum(int(line.split(',')[1]) for line in open('data.csv').readlines()[1:])\nprint('turn {n}:', total + {n})"


def at(e: AgentEvent) -> float:
    """When it was written, in ms."""
    return datetime.fromisoformat(e.data["time"][:26].rstrip("Z") + "+00:00").timestamp() * 1000


def each_turn(step: str) -> bool:
    """Whether a step comes in every turn, and not only once a run."""
    return not any(once in step for once in ("started", "sandbox", "prompt", "ended"))


class Bench:
    def __init__(self, quick: bool) -> None:
        self.n, self.rounds = 20, 1 if quick else 5  # turns of a run, as many as it has unless more are asked for
        self.lines: list[Line] = []

    def add(self, line: Line) -> None:
        self.lines.append(line)
        print(show([line]).splitlines()[-1], flush=True)

    def turns(self, d: Daemon, pause_ms: int) -> tuple[list[float], int]:
        """What each turn took without the model's own time, in ms, and how many copies of the state were made."""
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
        self.parts(events, pause_ms)
        asked = [at(e) for e in events if e.type == "asked"]
        return [after - before - pause_ms for before, after in zip(asked, asked[1:])], sum(e.type == "checkpoint" for e in events)

    def parts(self, events: list, pause_ms: int) -> None:
        """Where the time of a turn goes, on average."""
        sums: dict[str, float] = {}
        for before, after in zip(events, events[1:]):
            step, took = f"{before.type} → {after.type}", at(after) - at(before)
            sums[step] = sums.get(step, 0) + took - (pause_ms if after.type == "reply" else 0)
        most = sorted(((took / self.n, step) for step, took in sums.items() if each_turn(step)), reverse=True)[:6]
        print(f"  model thinks for {pause_ms} ms; mean ms a turn: " + ", ".join(f"{step} {took:.1f}" for took, step in most), flush=True)

    def loop(self, d: Daemon) -> None:
        for pause_ms in (0, 150, 400):
            ours, bare, copies = Figure([]), Figure([]), 0
            for _ in range(self.rounds):  # in turns, for the machine has other work, too
                bare.samples += self.cells(d, pause_ms)
                samples, made = self.turns(d, pause_ms)
                ours.samples, copies = ours.samples + samples, copies + made
            over = mean(ours.samples) - mean(bare.samples)
            name = f"a turn without the model's {pause_ms} ms, {copies} copies in {len(ours.samples)}: mean {over:.1f} ms more than the cell, median {ours.median - bare.median:.1f}"
            self.add(Line(name, ours, "run_code of the same cell", bare, "mean ≤ 20 ms more", over <= 20))

    def cells(self, d: Daemon, pause_ms: int) -> list[float]:
        """What the same cells take without the loop, in ms, as far apart as in turns: what slept wakes slowly."""
        with Sandbox.create("code-interpreter", ttl_seconds=900, api_url=d.url, api_key=d.key) as sb:
            sb.filesystem.write("/workspace/data.csv", DATA)
            ctx, took = sb.create_code_context(), []
            for n in range(self.n):
                time.sleep(pause_ms / 1000)
                took.append(timed(lambda n=n: ctx.run_code(cell(n))))
            return took

    def states(self, d: Daemon) -> None:
        """What a copy of the state before a turn costs, in the two ways there are."""
        with Sandbox.create("code-interpreter", ttl_seconds=900, api_url=d.url, api_key=d.key) as sb:
            ctx = sb.create_code_context()
            ctx.run_code("import pandas as pd\ndf = pd.DataFrame({'a': range(100_000)})")
            forks: list[float] = []
            for _ in range(self.n * self.rounds):
                made: list = []
                forks.append(timed(lambda: made.append(ctx.fork())))
                made[0].close()
            snapshots = []
            for _ in range(3 * self.rounds):
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
