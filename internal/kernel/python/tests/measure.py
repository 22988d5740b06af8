"""Prints how long a kernel takes: forks, cells, charts. Run it in a sandbox through in_sandbox.py --command.

    … --command /opt/venv/bin/python /kernel/tests/measure.py
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import agent  # noqa: E402


def timed(action: Callable[[], object], times: int) -> list[float]:
    """Milliseconds of each of ``times`` calls."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        found.append((time.perf_counter() - began) * 1000)
    return found


def show(name: str, times: list[float]) -> None:
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"{name:<58} p50 {statistics.median(times):8.2f}  p99 {p99:8.2f}  min {ordered[0]:8.2f} ms  n={len(times)}")


def main() -> None:
    began = time.perf_counter()
    zygote = agent.Zygote()
    print(f"{'zygote until ready':<58} {time.perf_counter() - began:.2f} s, imports {zygote.ready['imports']}")
    contexts: list[agent.Context] = []

    def fork_to_first_cell() -> None:
        context = zygote.context()
        assert context.run("1+1").text == "2"
        contexts.append(context)

    show("fork -> init -> first cell", timed(fork_to_first_cell, 15))
    first, spares = [], [zygote.fork() for _ in range(15)]
    time.sleep(3)  # until they have rehearsed

    def spare_to_first_cell() -> None:
        context = spares.pop()
        context.init(reseed=True, entropy=b"e" * 48)
        assert context.run("1+1").text == "2"
        contexts.append(context)

    show("spare -> init -> first cell", timed(spare_to_first_cell, 15))
    context = contexts.pop()
    show("run_cell 1+1", timed(lambda: context.run("1+1"), 500))
    show("run_cell x = 1 (no result)", timed(lambda: context.run("x = 1"), 300))
    show("run_cell 1/0", timed(lambda: context.run("1/0"), 100))
    limited = zygote.context(memory_limit=2 << 30)
    show("run_cell 1+1 under a memory limit", timed(lambda: limited.run("1+1"), 300))
    frame = "import pandas as pd\npd.DataFrame({'a': range(5)})"
    show("first DataFrame of a context", [timed(lambda: c.run(frame), 1)[0] for c in contexts[:8]])
    show("DataFrame again", timed(lambda: context.run(frame), 50))
    chart = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]); plt.title('t'); plt.show()"
    for c in contexts[8:16]:
        first.append(timed(lambda c=c: c.run(chart), 1)[0])
    show("first chart of a context", first)
    show("chart again", timed(lambda: context.run(chart), 20))
    show("!true", timed(lambda: context.run("!true"), 20))
    show("print of 100,000 lines", timed(lambda: context.run("for i in range(100_000): print(i)"), 3))
    if "--plotly" in sys.argv:
        plotly = "import plotly.graph_objects as go\ngo.Figure(go.Bar(y=[1, 2]))"
        show("first plotly figure, browser started", timed(lambda: context.run(plotly), 1))
        show("plotly figure again", timed(lambda: context.run(plotly), 10))
    for context in [*contexts, context, limited]:
        context.close()
    zygote.close()


if __name__ == "__main__":
    main()
