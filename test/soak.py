"""Sandboxes come and go for long, many at a time, while the daemon is killed again and again. Nothing may be left, and nothing may grow.

    .venv/bin/python test/soak.py --cycles 500 --parallel 8 --kill-every 50

A cycle creates a sandbox, runs a cell, every third one also a command in it, and ends it. Each `--kill-every` cycles the daemon gets
SIGKILL in the middle of what the others do, and is started again. Then `--steady` cycles in one life are measured, in batches:

- Descriptors, goroutines and child processes of the daemon after the last batch are at most those after the first, the warm-up.
  Descriptors of the store are left out: it has up to five connections, which it opens when it first needs them.
- Its memory (RSS) after the last batch is at most 15 % and 4 MB above that after the first: the heap breathes by that much.

At the end the daemon stops. Then there is no process, mount, cgroup and socket of it, and no file that was not there after a
daemon with one sandbox had been stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Callable, TypeVar

from daemon import Daemon
from hostview import view
from pandastack import APIConnectionError, NotFoundError, PandastackError, Sandbox

T = TypeVar("T")


@dataclass
class Sample:
    """What the daemon holds at a moment when it has nothing to do."""

    rss_mb: float
    descriptors: int
    children: int
    goroutines: int


@dataclass
class Report:
    cycles: int = 0
    kills: int = 0
    seconds: float = 0
    again: Counter = field(default_factory=Counter)  # what cycles met because of a kill, and why they began again
    orphans: int = 0  # made for a client that never heard of it, because the daemon died before it could answer
    samples: list[Sample] = field(default_factory=list)
    left: dict[str, list[str]] = field(default_factory=dict)
    database_kb: int = 0


class Soak:
    def __init__(self, parallel: int) -> None:
        self.daemon = Daemon(pool_ready=1, pool_prepared=1, memory_reserve_mb=256)
        self.parallel = parallel
        self.report = Report()
        self.done = 0
        self.progress = threading.Condition()
        self.up = threading.Event()

    def run(self, cycles: int, kill_every: int, steady: int, batches: int) -> Report:
        began = time.monotonic()
        try:
            self.start()
            self.cycle(0)
            self.daemon.stop()
            before = self.settled_view()
            self.start()
            self.with_kills(cycles, kill_every)
            self.collect_orphans()
            for _ in range(batches):
                with ThreadPoolExecutor(self.parallel) as pool:
                    list(pool.map(self.cycle, range(steady // batches)))
                self.report.cycles += steady // batches
                self.report.samples.append(self.sample())
            code = self.daemon.stop()
            assert code == 0, f"the daemon ended with {code}:\n{self.daemon.tail()}"
            after = self.settled_view()
            self.report.left = {kind: sorted(after[kind] - before[kind])[:20] for kind in after if after[kind] - before[kind]}
            self.report.database_kb = sum(f.stat().st_size for f in self.daemon.data.glob("pandastack.db*")) // 1024
        finally:
            self.daemon.stop()
            self.daemon.remove()
        self.report.seconds = round(time.monotonic() - began, 1)
        return self.report

    def start(self) -> None:
        self.daemon.start()
        self.up.set()

    # One cycle

    def cycle(self, n: int, kills: bool = False) -> None:
        at = {"api_url": self.daemon.url, "api_key": self.daemon.key}
        while True:
            self.up.wait()
            life = self.report.kills
            step = "create"
            try:
                sb = Sandbox.create(template="code-interpreter", ttl_seconds=600, metadata={"cycle": str(n)}, **at)
                step = "run"
                assert (got := sb.run_code(f"x = {n}\nx * 2")).text == str(n * 2), got
                if n % 3 == 0:
                    step = "exec"
                    assert sb.exec(f"echo {n}").stdout == f"{n}\n"
                step = "kill"
                try:
                    sb.kill()
                except NotFoundError:
                    if not kills:
                        raise  # else: the one before the kill did it
                break
            except PandastackError as e:
                if not kills or self.report.kills == life and self.up.is_set() and not isinstance(e, APIConnectionError):
                    raise
                with self.progress:
                    self.report.again[f"{step}: {type(e).__name__}"] += 1
        with self.progress:
            self.done += 1
            self.progress.notify_all()

    def with_kills(self, cycles: int, kill_every: int) -> None:
        self.done = 0
        failed = threading.Event()

        def one(n: int) -> None:
            try:
                self.cycle(n, kills=True)
            except BaseException:
                failed.set()
                with self.progress:
                    self.progress.notify_all()
                raise

        with ThreadPoolExecutor(self.parallel) as pool:
            running = [pool.submit(one, n) for n in range(1, cycles + 1)]
            for at in range(kill_every, cycles, kill_every):
                with self.progress:
                    assert self.progress.wait_for(lambda: self.done >= at or failed.is_set(), timeout=600), "cycles do not end"
                if failed.is_set():
                    for r in running:
                        r.cancel()
                    break
                self.up.clear()
                self.report.kills += 1
                self.daemon.kill9()
                self.start()
            for r in running:
                if not r.cancelled():
                    r.result()
        self.report.cycles += cycles

    def collect_orphans(self) -> None:
        """Ends what a client cannot know of. Its time to live would, too."""
        at = {"api_url": self.daemon.url, "api_key": self.daemon.key}
        for sb in Sandbox.list(**at):
            assert "cycle" in sb.metadata
            sb.kill()
            self.report.orphans += 1

    # What is looked at

    def sample(self) -> Sample:
        """When it has come to rest: its pools are full, and what is counted stays for a second, but for the connections of who counts."""
        readings: list[tuple[int, int, int]] = []
        deadline = time.monotonic() + 120  # pools wait for memory of the host that others use for a while
        while True:
            metrics = self.metrics()
            readings = [*readings, self.counts(metrics)][-10:] if pools_full(metrics) else []
            least = tuple(map(min, zip(*readings)))
            if len(readings) == 10 and all(most - low <= 2 for most, low in zip(map(max, zip(*readings)), least)):
                status = Path(f"/proc/{self.daemon.process.pid}/status").read_text()
                rss = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024
                return Sample(round(rss, 1), *least)
            assert time.monotonic() < deadline, f"the daemon does not come to rest: {readings}\n{metrics}"
            time.sleep(0.1)

    def metrics(self) -> str:
        asked = urllib.request.Request(f"{self.daemon.url}/metrics", headers={"Authorization": f"Bearer {self.daemon.key}"})
        return urllib.request.urlopen(asked, timeout=10).read().decode()

    def counts(self, metrics: str) -> tuple[int, int, int]:
        proc = Path(f"/proc/{self.daemon.process.pid}")
        children = sum(len(f.read_text().split()) for f in proc.glob("task/*/children"))
        return sum(map(counts, (proc / "fd").iterdir())), children, int(re.search(r"^go_goroutines (\d+)", metrics, re.M)[1])

    def settled_view(self) -> dict[str, set[str]]:
        """After the daemon has stopped; the kernel takes a moment to tidy."""
        def look() -> dict[str, set[str]]:
            now = view(self.daemon.data)
            # A copy of the store is kept of each of the last starts.
            now["files"] = {f for f in now["files"] if "/backups/" not in f}
            return now
        return eventually(look, lambda v: not any(v[k] for k in v if k != "files"))

    def problems(self) -> list[str]:
        first, last = self.report.samples[0], self.report.samples[-1]
        found = [f"left: {kind} {names}" for kind, names in self.report.left.items()]
        for what in ("descriptors", "children", "goroutines"):
            if getattr(last, what) > getattr(first, what) + (2 if what == "descriptors" else 0):  # connections of who counts
                found.append(f"{what} grow: {getattr(first, what)} after the warm-up, {getattr(last, what)} at the end")
        if last.rss_mb > first.rss_mb * 1.15 + 4:
            found.append(f"memory grows: {first.rss_mb} MB after the warm-up, {last.rss_mb} MB at the end")
        return found


def pools_full(metrics: str) -> bool:
    def series(name: str) -> dict[str, str]:
        return dict(re.findall(rf"^{name}({{.*}}) (\S+)$", metrics, re.M))

    return series("pandastack_pool_sandboxes") == series("pandastack_pool_wanted") != {}


def counts(fd: Path) -> bool:
    try:
        return "/pandastack.db" not in os.readlink(fd)
    except FileNotFoundError:  # closed meanwhile
        return False


def eventually(look: Callable[[], T], ok: Callable[[T], bool], seconds: float = 30) -> T:
    deadline = time.monotonic() + seconds
    while not ok(got := look()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return got


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cycles", type=int, default=500, help="with kills (500)")
    p.add_argument("--parallel", type=int, default=8, help="at a time (8)")
    p.add_argument("--kill-every", type=int, default=50, help="cycles (50)")
    p.add_argument("--steady", type=int, default=250, help="cycles after them, without kills (250)")
    p.add_argument("--batches", type=int, default=5, help="that these are measured in, at least 2 (5)")
    a = p.parse_args()
    soak = Soak(a.parallel)
    report = soak.run(a.cycles, a.kill_every, a.steady, a.batches)
    print(json.dumps(asdict(report), indent=2))
    problems = soak.problems()
    for line in problems:
        print("FAIL:", line)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
