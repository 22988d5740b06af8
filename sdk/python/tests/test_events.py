"""What happened to a sandbox, and its logs: read, followed, and taken up again where a connection broke."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
from fake_server import answer
from surfaces import Surface

from pandastack import LifeEvent, NotFoundError


def life(number: int, kind: str, **payload: Any) -> Dict[str, Any]:
    body = {"id": number, "time": "2026-03-01T10:00:00Z", "sandbox_id": "sb_1", "type": kind, "payload": payload}
    return {"seq": number, **body}


EVENTS = [life(3, "created", template="base"), life(5, "gap", after=3, through=4), life(9, "ended", reason="killed")]


def test_events_of_a_sandbox_are_listed(surface: Surface) -> None:
    surface.server.on("GET", r"/v1/sandboxes/sb_1/events", answer(200, {"events": EVENTS[:1]}))
    (event,) = list(surface.sandbox().events(7))
    assert isinstance(event, LifeEvent) and event.payload == {"template": "base"} and event.time is not None
    assert (event.id, event.sandbox_id, event.type) == (3, "sb_1", "created")
    (call,) = surface.server.sent("GET", "/events")
    assert call.query == {"tail": "7"}
    list(surface.sandbox().events(after=3))
    assert surface.server.sent("GET", "/events")[-1].query == {"after": "3"}


def test_events_are_followed_over_a_broken_connection(surface: Surface) -> None:
    def send(call: Any, *_: Any) -> List[Any]:
        return [e for e in EVENTS if e["seq"] > int(call.headers.get("last-event-id", "0"))]

    surface.server.on("GET", r"/v1/events", send)
    surface.server.cut_after = [2]
    got = list(surface.client().events(follow=True))
    assert [e.id for e in got] == [3, 5, 9] and got[1].payload == {"after": 3, "through": 4}
    first, second = surface.server.sent("GET", "/v1/events")
    assert first.query == {"tail": "50", "follow": "1"} and second.headers["last-event-id"] == "5"


def test_logs_are_read_and_followed(surface: Surface) -> None:
    lines = [{"seq": n, "type": "line", "line": f"line {n}", "stream": "stdout"} for n in (1, 2, 3)]

    def send(call: Any, *_: Any) -> Any:
        if call.query["follow"] == "0":
            return 200, {"content-type": "text/plain"}, "a\nä\n".encode()
        return [e for e in lines if e["seq"] > int(call.headers.get("last-event-id", "0"))]

    surface.server.on("GET", r"/v1/sandboxes/sb_1/logs", send)
    sandbox = surface.sandbox()
    assert sandbox.logs("stdout") == "a\nä\n"
    surface.server.cut_after = [1]
    assert list(sandbox.follow_logs()) == ["line 1", "line 2", "line 3"]
    calls = surface.server.sent("GET", "/logs")
    assert [c.query["stream"] for c in calls] == ["stdout", "both", "both"] and calls[2].headers["last-event-id"] == "1"


def test_wrong_arguments_and_no_sandbox(surface: Surface) -> None:
    sandbox = surface.sandbox()
    with pytest.raises(ValueError):
        list(sandbox.events(-1))
    with pytest.raises(TypeError):
        list(sandbox.events(follow="yes"))
    with pytest.raises(ValueError):
        sandbox.logs("out")
    surface.server.on("GET", r"/v1/sandboxes/sb_1/events", answer(404, {"error": "there is none", "code": "not_found"}))
    with pytest.raises(NotFoundError):
        list(sandbox.events(follow=True))
