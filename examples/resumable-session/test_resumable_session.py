"""A second process answers from the first one's variables, and knows only an id."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Iterator

import openai
import pytest
from pandastack import Client, NotFoundError, Sandbox
from scripted_model import Script, ScriptedModel
from scripted_model.picture import decode_png

HERE = Path(__file__).resolve().parent
SALES = HERE.parent / "data-analyst" / "sales.csv"
sys.path.insert(0, str(HERE))

from session import Session, end  # noqa: E402

spec = spec_from_file_location("resumable_session_example", HERE / "main.py")
assert spec and spec.loader
program: Any = module_from_spec(spec)
spec.loader.exec_module(program)

FIRST, SECOND = "Load the sales, please.", "Which month was the best?"


def months() -> "Counter[str]":
    found: "Counter[str]" = Counter()
    with open(SALES, newline="") as file:
        for row in csv.DictReader(file):
            found[row["date"][:7]] += float(row["revenue"])
    return found


def answer() -> str:
    found = months()
    (best, most), mean = found.most_common(1)[0], sum(found.values()) / len(found)
    return f"{best} with {most:.2f}, {most / mean - 1:.1%} above the average."


@pytest.fixture
def model() -> Iterator[openai.OpenAI]:
    with ScriptedModel(Script.load(HERE / "script.json")) as served:
        client = openai.OpenAI(base_url=served.base_url, api_key="scripted", max_retries=0)
        client.served = served  # type: ignore[attr-defined]
        yield client
        assert served.refused == []


@pytest.mark.parametrize("keep", ["hibernate", "snapshot"])
def test_two_processes_and_an_id_between_them(run: Any, monkeypatch: Any, tmp_path: Path, keep: str) -> None:
    id_file = tmp_path / "id"
    common = ("--scripted", "--id-file", id_file)
    said = run(HERE / "main.py", "start", "--keep", keep, *common)
    assert "495 sales in 12 months" in said
    picture = decode_png((tmp_path / "start-1.png").read_bytes())
    assert picture.width >= 400 and picture.has_colours(2)
    left = id_file.read_text()
    assert left.startswith("sn-" if keep == "snapshot" else "sb-")
    if keep == "hibernate":
        assert Sandbox.get(left).status == "hibernated"

    said = run(HERE / "main.py", "resume", *common)
    assert f"= {answer()}" in said
    assert "is there again, with 2 cells behind it" in said
    if keep == "snapshot":
        with pytest.raises(NotFoundError):
            Client().snapshots.get(left)
    else:
        assert id_file.read_text() == left, "it is the same sandbox"

    left = id_file.read_text()
    monkeypatch.setattr(sys, "argv", ["main.py", "end", "--id-file", str(id_file)])
    program.main()
    assert not id_file.exists()
    assert left not in [s.id for s in Client().snapshots.list()] + [s.id for s in Sandbox.list()]


def test_a_snapshot_goes_on_more_than_once(model: Any) -> None:
    first = Session.start(SALES)
    first.ask(model, "scripted", FIRST)
    id = first.snapshot()
    try:
        sessions = [Session.resume(id), Session.resume(id)]
        try:
            assert {s.context.id for s in sessions} == {first.context.id}
            assert len({s.sandbox.id for s in [first, *sessions]}) == 3
            assert sessions[0].ask(model, "scripted", SECOND) == answer()
            seen = model.served.requests[-1]["messages"]
            assert [m["content"] for m in seen if m["role"] == "user"] == [FIRST, SECOND], "the model has the whole conversation"
            code = [call["function"]["arguments"] for m in seen for call in m.get("tool_calls", [])]
            assert len(code) == 3 and "'/workspace/sales.csv'" not in code[-1], "the table was not read again"
            untouched = sessions[1].context.run_code("'best' in dir(), len(monthly)")
            assert untouched.text == "(False, 12)", "the other continuation knows nothing of it"
        finally:
            for session in sessions:
                session.sandbox.kill()
    finally:
        end(id)


def test_it_says_what_to_do_when_there_is_no_conversation_or_one_already(monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    for step, there, hint in (("resume", False, "start one"), ("end", False, "start one"), ("start", True, "resume or end it")):
        if there:
            (tmp_path / "id").write_text("sb-x")
        monkeypatch.setattr(sys, "argv", ["main.py", step, "--id-file", str(tmp_path / "id")])
        with pytest.raises(SystemExit):
            program.main()
        assert hint in capsys.readouterr().err
