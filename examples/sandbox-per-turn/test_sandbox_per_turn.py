"""State goes from turn to turn though no sandbox does, and a turn can fail or be taken back."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Iterator

import openai
import pytest
from pandastack import Client, Sandbox
from scripted_model import Script, ScriptedModel

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from agent import Agent  # noqa: E402

START, ADD, LINES = "Start a notebook.", "Add 17.", "Now how many lines?"


@pytest.fixture
def model() -> Iterator[openai.OpenAI]:
    with ScriptedModel(Script.load(HERE / "script.json")) as served:
        yield openai.OpenAI(base_url=served.base_url, api_key="scripted", max_retries=0)


def running() -> "set[str]":
    return {s.id for s in Sandbox.list()}


def kept() -> "set[str]":
    return {str(s) for s in Client().snapshots.list()}


def test_the_program_answers_each_question_in_another_sandbox(run: Any) -> None:
    sandboxes, snapshots = running(), kept()
    said = run(HERE / "main.py", "--scripted")
    assert re.findall("= (.*)", said) == ["The notebook has 3 measurements.", "With 17 the mean is 8.0.", "It has 4 lines."]
    assert len(set(re.findall(r"sb-\w+", said))) == 3
    assert len(set(re.findall(r"sn-\w+", said))) == 3
    assert running() == sandboxes and kept() == snapshots, "nothing is left"


def test_a_turn_that_fails_has_never_been_and_one_can_be_taken_back(model: Any) -> None:
    sandboxes, snapshots = running(), kept()
    with Agent(model, "scripted", keep=1) as agent:
        agent.ask(START)
        agent.ask(ADD)
        assert running() == sandboxes, "no sandbox lives between turns"
        with pytest.raises(openai.BadRequestError):
            agent.ask("Please break off: delete the file, and then the model goes away.")
        assert running() == sandboxes, "nor after one that failed"
        agent.take_back()
        assert agent.ask(LINES) == "It has 3 lines.", "neither the deletion nor the 17 has been"
        agent.ask(ADD)
        assert len(kept() - snapshots) == 2, "the last turn's, and one to go back to"
        agent.take_back()
        with pytest.raises(ValueError, match="no earlier turn"):
            agent.take_back()
    assert kept() == snapshots
