"""Agents: what is sent, what is heard, and a stream that breaks."""

from __future__ import annotations

import base64
import json
from typing import Any, Dict, List

import pytest

from fake_server import KEY, answer

RUN: Dict[str, Any] = {
    "id": "ag-1", "workspace": "me", "task": "add", "model": "openai:x", "dialect": "text", "prompt": "v1", "status": "running",
    "turns": 0, "cells": 0, "rewinds": 0, "usage": {"input_tokens": 0}, "created_at": "2026-03-01T10:00:00Z",
}
ENDED = {**RUN, "status": "ended", "reason": "answer", "answer": "42", "turns": 2, "sandbox_id": "sb_1", "ended_at": "2026-03-01T10:01:00Z"}
EVENTS: List[Dict[str, Any]] = [
    {"seq": 1, "type": "started", "run": RUN},
    {"type": "delta", "turn": 1, "text": "I add"},
    {"seq": 2, "type": "reply", "turn": 1, "reply": {"text": "FINAL ANSWER: 42"}},
    {"seq": 3, "type": "ended", "run": ENDED},
]


def stream(events: List[Dict[str, Any]]) -> bytes:
    lines = []
    for event in events:
        if event.get("seq"):
            lines.append(f"id: {event['seq']}")
        lines += [f"event: {event['type']}", f"data: {json.dumps(event)}", ""]
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture
def agent(surface: Any) -> Any:
    surface.server.routes += [
        ("POST", r"/v1/agents$", lambda call: answer(201, RUN)),
        ("GET", r"/v1/agents/ag-1/events$", lambda call: (200, {"content-type": "text/event-stream"}, stream(EVENTS))),
        ("GET", r"/v1/agents/ag-1$", lambda call: answer(200, ENDED)),
        ("GET", r"/v1/agents$", lambda call: answer(200, {"runs": [ENDED, RUN]})),
        ("POST", r"/v1/agents/ag-1/cancel$", lambda call: answer(200, {**ENDED, "reason": "cancelled", "answer": None})),
        ("DELETE", r"/v1/agents/ag-1$", lambda call: answer(204)),
        ("GET", r"/v1/agents/ag-1/figures/1-1-1.png$", lambda call: (200, {"content-type": "image/png"}, b"PNG")),
    ]
    return lambda *args, **options: surface.Agent(*args, api_url=surface.server.url, api_key=KEY, **options)


def test_a_task_is_done(agent: Any, surface: Any) -> None:
    heard: List[Any] = []
    run = agent("openai:x", model_key="its-own-key", limits={"max_turns": 3}).run("add", files={"a.csv": "1,2"}, on_event=heard.append)
    assert (run.answer, run.reason, run.sandbox_id, run.info.turns) == ("42", "answer", "sb_1", 2)
    assert [event.type for event in heard] == ["started", "delta", "reply", "ended"] and heard[1].text == "I add" and heard[2].seq == 2
    call = next(c for c in surface.server.calls if c.method == "POST")
    assert call.headers["x-model-key"] == "its-own-key" and "its-own-key" not in call.body.decode()
    assert call.json["task"] == "add" and call.json["limits"] == {"max_turns": 3}
    assert call.json["files"] == [{"path": "a.csv", "content": base64.b64encode(b"1,2").decode()}]


def test_a_run_is_replayed(agent: Any, surface: Any) -> None:
    seen: list[Any] = []
    again = agent().get("ag-1").replay(secrets={"a.example": {"header": "A", "ref": "k"}}, on_event=seen.append)
    assert [event.type for event in seen][-1] == "ended"
    assert again.answer == "42"
    body = next(c for c in surface.server.calls if c.method == "POST").json
    assert body == {"replay_of": "ag-1", "secrets": {"a.example": {"header": "A", "ref": "k"}}}
    agent().get("ag-1").replay(keep="keep", sandbox_id="sb-1", follows="ag-0")
    body = [c for c in surface.server.calls if c.method == "POST"][-1].json
    assert body == {"replay_of": "ag-1", "keep": "keep", "sandbox_id": "sb-1", "follows": "ag-0"}


def test_a_run_is_forked(agent: Any, surface: Any) -> None:
    heard: List[Any] = []
    other = agent().get("ag-1").fork(2, task="use medians", model="openai:y", model_key="its-own-key", limits={"max_turns": 9}, on_event=heard.append)
    assert other.answer == "42" and heard[-1].type == "ended"
    call = next(c for c in surface.server.calls if c.method == "POST")
    assert call.headers["x-model-key"] == "its-own-key"
    assert call.json == {"fork": {"of": "ag-1", "at": 2, "task": "use medians"}, "model": "openai:y", "keep": "kill", "limits": {"max_turns": 9}}
    with pytest.raises(TypeError, match="at must be the number of a turn"):
        agent().get("ag-1").fork("2")


def test_what_is_done_again_needs_the_functions_that_its_code_calls(agent: Any, surface: Any) -> None:
    surface.server.routes.insert(0, ("GET", r"/v1/agents/ag-1$", lambda call: answer(200, {**ENDED, "functions": ["pay", "shop.find"]})))

    def pay() -> None: ...

    has_one = agent(tools=[pay]).get("ag-1")
    assert has_one.info.functions == ["pay", "shop.find"]
    for again in (has_one.replay, lambda: has_one.fork(1)):
        with pytest.raises(ValueError, match=r"ag-1 calls functions of a program that are not here: shop\.find\. Give them: Agent\(tools="):
            again()
    with pytest.raises(ValueError, match="not here: pay, shop.find"):
        agent().start("more", follows="ag-1")
    assert not [c for c in surface.server.calls if c.method == "POST"]


def test_what_its_sandbox_is_given(agent: Any, surface: Any) -> None:
    network, secrets = {"allow": ["a.example"]}, {"a.example": {"header": "Authorization", "ref": "k"}}
    a = agent(from_snapshot="sn-1", cpu=0.5, memory_mb=512, disk_mb=100, pids=64, envs={"A": "1"}, network=network, secrets=secrets)
    a.start("add")
    a.start("add", sandbox_id="sb_1")
    new, given = (c.json for c in surface.server.calls if c.method == "POST")
    sandbox = {"from_snapshot": "sn-1", "cpu": 0.5, "memory_mb": 512, "disk_mb": 100, "pids": 64, "envs": {"A": "1"}, "network": network, "secrets": secrets}
    assert {k: new[k] for k in sandbox} == sandbox and "template" not in new
    assert not set(sandbox) & set(given)
    with pytest.raises(TypeError, match="network"):
        agent(network=["a.example"])


def test_in_a_sandbox_that_is_there(agent: Any, surface: Any, tmp_path: Any) -> None:
    data = tmp_path / "b.csv"
    data.write_bytes(b"3")
    agent().start("add", files=[str(data)], sandbox_id="sb_1")
    body = next(c for c in surface.server.calls if c.method == "POST").json
    assert body["sandbox_id"] == "sb_1" and "keep" not in body and "template" not in body and body["files"][0]["path"] == "b.csv"


def test_runs_are_found_again(agent: Any) -> None:
    a = agent()
    assert [run.id for run in a.runs()] == ["ag-1", "ag-1"]
    run = a.get("ag-1")
    assert run.wait() == "42" and run.figure("1-1-1.png") == b"PNG" and run.refresh().reason == "answer"
    run.cancel()
    assert run.reason == "cancelled" and run.answer is None
    run.delete()


def test_mistakes_are_named(agent: Any) -> None:
    with pytest.raises(TypeError, match="files must be a list"):
        agent().run("add", files="a.csv")
    with pytest.raises((TypeError, ValueError), match="task"):
        agent().run("")
