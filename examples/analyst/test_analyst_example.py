"""The example finds what is in its file, and leaves a page, a notebook and a chart."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from pandastack import Agent

HERE = Path(__file__).resolve().parent
PROGRAM = HERE.parent.parent / "bin" / "pandastack"


def test_two_questions(run: Any, tmp_path: Path) -> None:
    said = run(HERE / "main.py", "--out", tmp_path, "--program", PROGRAM)
    assert "= March 2024, with 34,567.89 €" in said and "= München, with 30,000.39 €." in said
    assert "its total left out: Summe, 76.913,56 €" in said and "encoding cp1252" in said
    assert (tmp_path / "chart-1.png").read_bytes().startswith(b"\x89PNG")
    assert "And which branch" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "analysis.ipynb").read_text())["nbformat"] == 4


def test_it_is_done_again(run: Any, environment: "dict[str, str]", tmp_path: Path) -> None:
    """Both questions in a new sandbox: the same comes of each cell, times aside."""
    run(HERE / "main.py", "--out", tmp_path, "--program", PROGRAM)
    second = next(r for r in Agent().runs(10) if r.info.task.startswith("And which branch"))
    replay = [PROGRAM, "agent", "replay", second.id]
    again = subprocess.run([*replay, "--file", HERE / "umsatz.csv"], env=environment, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0 and "2 of 2 cells show the same" in again.stdout, again.stdout + again.stderr
    (tmp_path / "umsatz.csv").write_bytes((HERE / "umsatz.csv").read_bytes().replace(b"4.567,50", b"4.567,51"))
    other = subprocess.run([*replay, "--file", tmp_path / "umsatz.csv"], env=environment, capture_output=True, text=True, timeout=120)
    assert other.returncode == 1 and "2024-03 34567.9" in other.stdout, other.stdout + other.stderr
    without = subprocess.run(replay, env=environment, capture_output=True, text=True, timeout=120)
    assert without.returncode == 2 and "replay that one first" in without.stderr, without.stderr
