"""Times ten analyses of one CSV, done in four ways that take turns in one run, through the Python client.

    python bench/branches.py [--quick] [--mb N] [--runs N] [--sandboxes N] [--results DIR]

Each way ends with ten tables and ten charts of the same rows: from the file again for each of them, which is the baseline;
from one parse, one after the other; from one parse in ten forks of the context at once; and in forks of the sandbox,
as many at a time as the server has memory for. Every way's time has its parse in it. Prints a table and writes
bench/results/*.json, as run.py does.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "test")]

from daemon import Daemon  # noqa: E402
from figures import Figure, Line, save, show, timed  # noqa: E402
from pandastack import CapacityError, Client, CodeContext, Sandbox  # noqa: E402

COLUMNS = ("region", "product", "channel", "store", "weekday", "hour", "age", "size", "rating", "month")
FILE = "/workspace/big.csv"
PARSE = f"import matplotlib.pyplot as plt\nimport pandas as pd\ndf = pd.read_csv({FILE!r})\nlen(df)"
ANALYSE = """
t = df.groupby({column!r})['amount'].agg(['sum', 'mean', 'count'])
t['sum'].plot.bar(figsize=(9, 4), title={column!r})
plt.show()
print(int(t['count'].sum()))
"""
SECONDS = 600.0  # of a cell, on a slow machine


def write_csv(path: Path, mb: int) -> int:
    """Made-up sales, the same in every run; a block of 20,000 rows again and again. Gives the number of rows."""
    r = random.Random(1)
    regions, products, channels = ("north", "south", "east", "west"), [f"product-{n}" for n in range(20)], ("shop", "web", "phone")
    rows = 20_000
    block = "".join(
        f"{r.choice(regions)},{r.choice(products)},{r.choice(channels)},{r.randrange(50)},{r.randrange(7)},{r.randrange(24)},"
        f"{r.randrange(18, 90)},{r.randrange(5)},{r.randrange(1, 6)},{r.randrange(1, 13)},{r.uniform(1, 999):.2f}\n"
        for _ in range(rows)
    )
    times = max(1, mb * 1_000_000 // len(block))
    with open(path, "w") as file:
        file.write(",".join(COLUMNS) + ",amount\n")
        for _ in range(times):
            file.write(block)
    return rows * times


class Bench:
    def __init__(self, client: Client, mb: int, most: int) -> None:
        self.mb = mb
        self.most = most  # sandbox forks at a time
        self.extra: dict[str, list[float]] = {"contexts": [], "sandboxes": []}  # MB that the branches took
        self.sandbox: Sandbox = client.sandboxes.create("code-interpreter", ttl_seconds=3600, memory_mb=2048 if mb < 100 else 6144)
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            path = Path(folder) / "big.csv"
            self.rows = write_csv(path, mb)
            self.sandbox.filesystem.upload(path, FILE)

    def analyse(self, context: CodeContext, column: str, again: bool = False) -> None:
        ex = context.run_code((PARSE + "\n" if again else "") + ANALYSE.format(column=column), timeout_seconds=SECONDS)
        assert ex.error is None, ex.error
        assert ex.png and ex.stdout.strip() == str(self.rows), ex.stdout

    def parsed(self) -> CodeContext:
        context = self.sandbox.create_code_context()
        ex = context.run_code(PARSE, timeout_seconds=SECONDS)
        assert ex.text == str(self.rows), ex.error
        return context

    def in_use(self, sandbox: Sandbox) -> float:
        return sandbox.metrics().usage.memory_bytes / 1e6

    def from_the_file(self) -> None:
        with self.sandbox.create_code_context() as context:
            for column in COLUMNS:
                self.analyse(context, column, again=True)

    def in_a_row(self) -> None:
        with self.parsed() as context:
            for column in COLUMNS:
                self.analyse(context, column)

    def in_contexts(self) -> None:
        with self.parsed() as context, ThreadPoolExecutor(len(COLUMNS)) as pool:
            before = self.in_use(self.sandbox)
            branches = context.fork(count=len(COLUMNS))
            list(pool.map(self.analyse, branches, COLUMNS))
            self.extra["contexts"].append(self.in_use(self.sandbox) - before)
            for branch in branches:
                branch.close()

    def in_sandboxes(self) -> None:
        extra = 0.0
        with self.parsed() as context, ThreadPoolExecutor(self.most) as pool:
            for start in range(0, len(COLUMNS), self.most):
                columns = COLUMNS[start : start + self.most]
                branches = self.sandbox.fork(len(columns))
                try:
                    list(pool.map(self.analyse, [b.context(context.id) for b in branches], columns))
                    extra = max(extra, sum(map(self.in_use, branches)))
                finally:
                    list(pool.map(Sandbox.kill, branches))
        self.extra["sandboxes"].append(extra)

    def fit(self) -> None:
        """Finds how many sandbox forks there is memory for at a time, at most as many as were asked for."""
        with self.parsed():
            while True:
                try:
                    branches = self.sandbox.fork(self.most)
                except CapacityError:
                    if self.most == 1:
                        raise
                    self.most -= 1
                else:
                    for branch in branches:
                        branch.kill()
                    return

    def run(self, times: int) -> list[Line]:
        self.fit()
        ways: dict[str, Callable[[], None]] = {
            "file": self.from_the_file, "row": self.in_a_row, "contexts": self.in_contexts, "sandboxes": self.in_sandboxes}
        samples: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(times):
            for way, work in ways.items():
                samples[way].append(timed(work) / 1000)
            print(f"run {number + 1}: " + ", ".join(f"{way} {taken[-1]:.1f} s" for way, taken in samples.items()), flush=True)
        figures = {way: Figure(taken, "s") for way, taken in samples.items()}
        base = ("each reads the file again, one context", figures["file"])
        what = f"{self.mb} MB CSV ({self.rows:,} rows), parsed once, ten groupings and charts"
        return [
            Line(f"{what}: in a row in one context", figures["row"], *base),
            Line("… in ten forks of the context at once", figures["contexts"], *base),
            Line(f"… in ten forks of the sandbox, {self.most} at a time", figures["sandboxes"], *base),
            Line("memory of the ten context forks", Figure(self.extra["contexts"], "MB"), f"of {self.most} sandbox forks", Figure(self.extra["sandboxes"], "MB")),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the same as --mb 20 --runs 3")
    parser.add_argument("--mb", type=int, metavar="N", help="size of the file; default: 200")
    parser.add_argument("--runs", type=int, metavar="N", help="of each way; default: 5")
    parser.add_argument("--sandboxes", type=int, default=len(COLUMNS), choices=range(1, len(COLUMNS) + 1), metavar="N",
                        help="sandbox forks at a time, at most; default: as many as there is memory for, up to ten")
    parser.add_argument("--results", type=Path, metavar="DIR", default=Path(__file__).parent / "results", help="where the JSON is written; default: bench/results")
    args = parser.parse_args()
    d = Daemon(pool_ready=1, pool_prepared=1).start()
    try:
        bench = Bench(Client(d.url, d.key), args.mb or (20 if args.quick else 200), args.sandboxes)
        lines = bench.run(args.runs or (3 if args.quick else 5))
        bench.sandbox.kill()
    finally:
        d.stop()
        d.remove()
    print()
    print(show(lines))
    print(f"\nwritten to {save(lines, args.results)}")


if __name__ == "__main__":
    main()
