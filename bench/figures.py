"""Medians, p99s and how a line of the table is printed."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path


def quantile(values: list[float], q: float) -> float:
    """The q-quantile (0 to 1) by linear interpolation between the two nearest ranks."""
    s = sorted(values)
    at = q * (len(s) - 1)
    low = int(at)
    high = min(low + 1, len(s) - 1)
    return s[low] + (s[high] - s[low]) * (at - low)


@dataclass
class Figure:
    """What was measured of one thing: samples in one unit."""

    samples: list[float]
    unit: str = "ms"
    note: str = ""

    @property
    def median(self) -> float:
        return quantile(self.samples, 0.5)

    @property
    def p99(self) -> float:
        return quantile(self.samples, 0.99)


@dataclass
class Line:
    """A line of the table: ours, the baseline of the same run, and what we hold ourselves to."""

    name: str
    ours: Figure
    baseline_name: str = ""
    baseline: Figure | None = None
    target: str = ""
    met: bool | None = None
    ratio: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.baseline and self.ours.median:
            self.ratio = self.baseline.median / self.ours.median


def timed(work: Callable[[], object]) -> float:
    """Milliseconds that work took."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def mem_available_mb() -> float:
    """The host's MemAvailable, in MB."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable")


def settled_mb() -> float:
    """MemAvailable once it has stopped moving: what ended a moment ago is still being freed."""
    before = mem_available_mb()
    for _ in range(30):
        time.sleep(1)
        now = mem_available_mb()
        if abs(now - before) < 8:
            return now
        before = now
    return before


def show(lines: list[Line]) -> str:
    def fig(f: Figure | None) -> str:
        if f is None:
            return "–"
        many = f" (p99 {f.p99:,.1f})" if len(f.samples) > 1 else ""
        return f"{f.median:,.1f} {f.unit}{many}"

    rows = [("what", "PandaStack", "baseline", "baseline is", "× faster", "target")]
    for l in lines:
        mark = {True: " ✓", False: " ✗", None: ""}[l.met]
        rows.append((l.name, fig(l.ours), fig(l.baseline), l.baseline_name or "–", f"{l.ratio:.1f}" if l.ratio else "–", l.target + mark))
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    out = [" | ".join(c.ljust(w) for c, w in zip(r, widths)) for r in rows]
    out.insert(1, "-|-".join("-" * w for w in widths))
    return "\n".join("| " + o + " |" for o in out)


def save(lines: list[Line], folder: Path, more: "dict[str, object] | None" = None) -> Path:
    """Writes everything, samples and all, with what machine and commit it was, and what else there is to say."""
    folder.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=folder).stdout.strip()
    now = datetime.now(timezone.utc)
    path = folder / f"{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps({
        "at": now.isoformat(), "commit": commit, "machine": platform.platform(), "cpus": __import__("os").cpu_count(),
        "lines": [asdict(l) | {"median": l.ours.median, "p99": l.ours.p99} for l in lines],
        **(more or {}),
    }, indent=1))
    return path
