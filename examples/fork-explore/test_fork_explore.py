"""Every way of branching finds the same winner, the one that the file says, and leaves nothing else."""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
from pandastack import Sandbox
from scripted_model.picture import decode_png

HERE = Path(__file__).resolve().parent
SALES = HERE.parent / "data-analyst" / "sales.csv"
sys.path.insert(0, str(HERE))

from branching import PREPARE, Attempt, NothingWorked, by_contexts, by_tree  # noqa: E402


def off() -> Dict[str, float]:
    """How far each forecast is off, computed without pandas."""
    table: Dict[str, Dict[int, float]] = defaultdict(lambda: dict.fromkeys(range(1, 13), 0.0))
    with open(SALES, newline="") as file:
        for row in csv.DictReader(file):
            table[row["region"]][int(row["date"][5:7])] += float(row["revenue"])

    def error(months: range) -> float:
        return sum(abs(sum(r[m] for m in months) / len(months) - r[12]) for r in table.values()) / len(table)

    return {"the mean of all months": error(range(1, 12)), "the mean of the last three": error(range(9, 12))}


def running() -> "set[str]":
    return {s.id for s in Sandbox.list()}


def test_three_ways_and_one_winner(run: Any, tmp_path: Path) -> None:
    before = running()
    said = run(HERE / "main.py", "--scripted", "--out", tmp_path)
    expected = sorted(off().items(), key=lambda item: item[1])
    tables = said.split("By ")[1:]
    assert [t.split(",")[0] for t in tables] == ["contexts", "tree", "explore"]
    for shown in tables:
        rows = re.findall(r"^(the .+?) +([0-9.]+)$", shown, re.MULTILINE)
        assert [name for name, _ in rows] == [name for name, _ in expected]
        assert [float(value) for _, value in rows] == pytest.approx([value for _, value in expected], abs=0.01)
        assert "KeyError" in shown, "the attempt that failed is told, too"
    assert said.rstrip().endswith(f"Take {expected[0][0]}: it is off by {expected[0][1]:.2f} on average.")
    assert re.search(r"kept in sb-\w+:\n", tables[1]) and re.search(r"kept in sb-\w+:\n", tables[2])
    for way in ("contexts", "tree"):
        assert decode_png((tmp_path / f"{way}.png").read_bytes()).has_colours(3), "forecast and actual"
    assert running() == before, "nothing is left"


@pytest.fixture
def prepared() -> Iterator[Any]:
    with Sandbox.create("code-interpreter") as sandbox:
        sandbox.filesystem.upload(SALES, "/workspace/sales.csv")
        session = sandbox.create_code_context()
        assert not session.run_code(PREPARE).error
        yield sandbox, session


def test_only_the_winner_stays_and_when_all_fail_none(prepared: Any) -> None:
    sandbox, session = prepared
    others = running()
    good = [Attempt("far", "forecast = past.mean() * 9; mark = 'far'"), Attempt("near", "forecast = past.mean(); mark = 'near'")]
    bad = [Attempt("a", "1 / 0"), Attempt("b", "nonsense"), Attempt("c", "forecast = past.mean() * float('nan')")]

    _, kept = by_contexts(session, good)
    assert kept.run_code("mark").text == "'near'"
    assert {c.id for c in sandbox.contexts()} == {session.id, kept.id}
    assert session.run_code("'mark' in dir()").text == "False", "the original has not changed"
    kept.close()

    _, winner = by_tree(sandbox, session, good)
    assert running() == others | {winner.id}
    assert winner.context(session.id).run_code("mark").text == "'near'"
    winner.kill()

    with pytest.raises(NothingWorked, match="a: ZeroDivisionError.*b: NameError.*c: no number"):
        by_contexts(session, bad)
    assert {c.id for c in sandbox.contexts()} == {session.id}
    with pytest.raises(NothingWorked, match="a: ZeroDivisionError.*b: NameError.*c: no number"):
        by_tree(sandbox, session, bad)
    assert running() == others
