"""The example finds what is in its file, and leaves a page, a notebook and a chart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def test_two_questions(run: Any, tmp_path: Path) -> None:
    said = run(HERE / "main.py", "--out", tmp_path, "--program", HERE.parent.parent / "bin" / "pandastack")
    assert "= March 2024, with 34,567.89 €" in said and "= München, with 30,000.39 €." in said
    assert "its total left out: Summe, 76.913,56 €" in said and "encoding cp1252" in said
    assert (tmp_path / "chart-1.png").read_bytes().startswith(b"\x89PNG")
    assert "And which branch" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "analysis.ipynb").read_text())["nbformat"] == 4
