"""The agent's answers are right, its charts are pictures that the model saw, and its session lasts."""

from __future__ import annotations


from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


from langchain_openai import ChatOpenAI
from pandastack import Sandbox
from pandastack.integrations import Figure
from scripted_model import Script, ScriptedModel
from scripted_model.picture import decode_png

HERE = Path(__file__).resolve().parent
spec = spec_from_file_location("langgraph_example", HERE / "main.py")
assert spec and spec.loader
example: Any = module_from_spec(spec)
spec.loader.exec_module(example)


def primes_below(limit: int) -> "list[int]":
    sieve = bytearray([1]) * limit
    sieve[:2] = b"\0\0"
    for i in range(2, int(limit**0.5) + 1):
        if sieve[i]:
            sieve[i * i :: i] = bytes(len(range(i * i, limit, i)))
    return [i for i, prime in enumerate(sieve) if prime]


def test_the_program_answers_follows_up_and_leaves_the_chart(run: Any, tmp_path: Path) -> None:
    said = run(HERE / "main.py", "--scripted", "--out", tmp_path, example.TASK, "And the largest of them?")
    primes = primes_below(10**6)
    assert f"There are {len(primes)} primes below one million." in said
    assert "1.084 times n / ln n" in said
    assert f"It is {primes[-1]}." in said, "the second question used the first one's variables"
    picture = decode_png((tmp_path / "chart.png").read_bytes())
    assert picture.width >= 400 and picture.height >= 300
    blue, orange = bytes((31, 119, 180)), bytes((255, 127, 14))
    seen = {row[i : i + 3] for row in picture.rows() for i in range(0, len(row), picture.channels)}
    assert blue in seen and orange in seen, "both lines are there"


def test_the_model_sees_the_chart_and_the_traceback() -> None:
    with ScriptedModel(Script.load(HERE / "script.json")) as served, Sandbox.create("code-interpreter") as sandbox:
        charts: "list[Figure]" = []
        model = ChatOpenAI(model="scripted", base_url=served.base_url, api_key="scripted", use_responses_api=False)
        agent = example.make_agent(model, sandbox.create_code_context(), charts)
        example.ask(agent, example.TASK)
        assert example.ask(agent, "Now fail, please.") == "Dividing by zero does not work."
        assert [decode_png(chart.data).has_colours(3) for chart in charts] == [True]
    assert served.refused == []
    last = served.requests[2]["messages"][-1]
    assert last["role"] == "user" and last["content"][1]["type"] == "image_url"


