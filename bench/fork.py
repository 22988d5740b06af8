"""Times snapshots, restores, wakes and forks through the Python client, each line beside a baseline of the same run.

    python bench/fork.py [--quick] [--only NAME]

Prints a table and writes bench/results/*.json, as run.py does. The baselines do with a process of the host what can be
done with one: its imports again, a copy of its array through a file, a copy of a file as large as the image.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "test")]

import baselines  # noqa: E402
from daemon import Daemon  # noqa: E402
from figures import Figure, Line, save, show, timed  # noqa: E402
from pandastack import Client, Sandbox  # noqa: E402

MODULES = ["IPython", "numpy", "pandas", "matplotlib.pyplot"]
MB = 500
ARRAY = f"import numpy as np\nbig = np.ones({MB << 17})"  # 8 bytes each

# The longest time between two looks at the clock, while the sandbox may stand still.
WATCH = """
import threading, time
gap, over = 0.0, threading.Event()
def look():
    global gap
    last = time.perf_counter()
    while not over.is_set():
        time.sleep(0.001)
        now = time.perf_counter()
        gap, last = max(gap, now - last), now
thread = threading.Thread(target=look); thread.start()
"""


class Bench:
    def __init__(self, quick: bool) -> None:
        self.n = 4 if quick else 12
        self.lines: list[Line] = []

    def add(self, line: Line, met: bool | None = None) -> None:
        line.met = met
        self.lines.append(line)
        print(show([line]).splitlines()[-1], flush=True)

    def create(self, d: Daemon, **options: object) -> Sandbox:
        return Client(d.url, d.key).sandboxes.create("code-interpreter", ttl_seconds=900, **options)

    def copied(self, mb: float) -> Figure:
        """A file of so many MB, copied."""
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            source = Path(folder) / "image"
            source.write_bytes(b"\1" * int(mb * 1e6))
            return Figure([baselines.copy(source, Path(folder) / "copy") for _ in range(self.n)])

    def snapshot(self, d: Daemon) -> None:
        sb = self.create(d)
        sb.run_code("1+1")
        still, whole, size = [], [], 0
        for _ in range(self.n):
            sb.run_code(WATCH)
            took = time.perf_counter()
            snapshot = sb.snapshot()
            whole.append((time.perf_counter() - took) * 1000)
            still.append(float(sb.run_code("over.set(); thread.join(); print(gap)").stdout) * 1000)
            size = snapshot.size_bytes
            sb._client.snapshots.delete(snapshot)
        sb.kill()
        base = self.copied(size / 1e6)
        line = Line(f"snapshot of a fresh session ({size / 1e6:.0f} MB): it stands still", Figure(still), "cp of such a file", base, "≤ 100 ms")
        self.add(line, line.ours.median <= 100)
        self.add(Line("… until the image is whole, summed and on the disk", Figure(whole), "cp of such a file", base))

    def restore(self) -> None:
        base = Figure(baselines.imports(MODULES, self.n))
        for name, mode, prepared, target in (("no pool", "cold", 0, 200), ("created sandboxes waiting", "prepared", 2, 130)):
            d = Daemon(pool_ready=0, pool_prepared=prepared).start()
            try:
                sb = self.create(d)
                sb.run_code("x = 1")
                snapshot = sb.snapshot()
                ours: list[float] = []
                for _ in range(10 * self.n):
                    if prepared:
                        time.sleep(1.5)  # the pool fills
                    start = time.perf_counter()
                    copy = self.create(d, from_snapshot=snapshot)
                    assert copy.run_code("x").text == "1"
                    ms = (time.perf_counter() - start) * 1000
                    if copy.info.boot_mode == mode:
                        ours.append(ms)
                    copy.kill()
                    if len(ours) == self.n:
                        break
                sb.kill()
                sb._client.snapshots.delete(snapshot)
            finally:
                d.stop()
                d.remove()
            line = Line(f"restore of a snapshot → first cell, {name}", Figure(ours), "python3 importing the same", base, f"≤ {target} ms")
            self.add(line, line.ours.median <= target)

    def wake(self, d: Daemon) -> None:
        sb = self.create(d)
        sb.run_code("x = 1")
        down, up = [], []
        for _ in range(self.n):
            down.append(timed(sb.hibernate))
            up.append(timed(lambda: sb.run_code("x")))
        pause, resume = [], []
        for _ in range(self.n):
            pause.append(timed(sb.pause))
            resume.append(timed(lambda: (sb.resume(), sb.run_code("x"))))
        sb.kill()
        base = Figure(baselines.imports(MODULES, self.n))
        self.add(Line("hibernate", Figure(down)))
        self.add(Line("wake by a cell", Figure(up), "python3 importing the same", base))
        self.add(Line("pause", Figure(pause)))
        self.add(Line("resume → cell", Figure(resume), "python3 importing the same", base))

    def fork(self, d: Daemon) -> None:
        sb = self.create(d, memory_mb=2048)
        sb.run_code(ARRAY)
        one: list[float] = []
        for _ in range(min(self.n, 4)):
            start = time.perf_counter()
            child = sb.fork()
            assert child.run_code("int(big.sum())").text == str(MB << 17)
            one.append((time.perf_counter() - start) * 1000)
            child.kill()
        sb.kill()
        self.add(Line(f"fork of a session that holds {MB} MB → its sum in the child", Figure(one), "python3: the array through a file to a new process", self.through_a_file()))

    def through_a_file(self) -> Figure:
        with tempfile.NamedTemporaryFile(dir="/var/tmp", suffix=".npy") as f:
            give = f"{ARRAY}\nimport time\nt = time.perf_counter()\nnp.save({f.name!r}, big)\nprint((time.perf_counter() - t) * 1000)"
            take = f"import {', '.join(MODULES)}\nimport numpy as np\nprint(int(np.load({f.name!r}).sum()))"
            samples = []
            for _ in range(min(self.n, 4)):
                written = float(subprocess.run([sys.executable, "-c", give], check=True, capture_output=True, text=True).stdout)
                samples.append(written + timed(lambda: subprocess.run([sys.executable, "-c", take], check=True, capture_output=True)))
            return Figure(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("snapshot", "restore", "wake", "fork")
    parser.add_argument("--only", choices=parts, action="append", help="one part; may be given again")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    args = parser.parse_args()
    bench = Bench(args.quick)
    chosen = args.only or parts
    if "restore" in chosen:
        bench.restore()
    shared = [p for p in chosen if p != "restore"]
    if shared:
        d = Daemon(pool_ready=1, pool_prepared=1).start()
        try:
            for part in shared:
                getattr(bench, part)(d)
        finally:
            d.stop()
            d.remove()
    print()
    print(show(bench.lines))
    print(f"\nwritten to {save(bench.lines, Path(__file__).parent / 'results')}")
    sys.exit(0 if all(l.met is not False for l in bench.lines) else 1)


if __name__ == "__main__":
    main()
