"""Running cells: the outcome, the callbacks, and broken connections."""

from __future__ import annotations

import threading
from typing import Any, List

import pytest
from fake_server import answer
from surfaces import Surface

from pandastack import (
    APIConnectionError,
    ConflictError,
    NotFoundError,
    SandboxTimeout,
    ServerError,
)

CELL = [
    {"type": "stdout", "text": "one\n"},
    {"type": "result", "data": {"image/png": "aGk="}},
    {"type": "stderr", "text": "warned\n"},
    {"type": "stdout", "text": "zwei ü 🎉\n"},
    {"type": "result", "data": {"text/plain": "'x'", "text/html": "<b>x</b>"}, "is_last_expression": True},
]


@pytest.fixture
def ctx(surface: Surface) -> Any:
    surface.server.scripts["cell"] = CELL
    return surface.sandbox().create_code_context()


def runs(surface: Surface) -> List[Any]:
    return surface.server.sent("POST", "/run") + surface.server.sent("POST", "/run/stream")


def test_the_outcome_of_a_cell(ctx: Any, surface: Surface) -> None:
    ex = ctx.run_code("cell", timeout_seconds=2.5)
    assert (ex.stdout, ex.stderr, ex.error, ex.end, ex.exit_code) == ("one\nzwei ü 🎉\n", "warned\n", None, "ok", 0)
    assert (ex.text, ex.html, ex.png) == ("'x'", "<b>x</b>", "aGk=")
    assert [r.is_last_expression for r in ex.results] == [True, False]
    (call,) = runs(surface)
    assert call.path == "/v1/sandboxes/sb_1/repl/sessions/ctx_1/run"
    assert call.json["timeout_ms"] == 2500
    assert len(call.json["execution_id"]) == 32 and ex.execution_id == call.json["execution_id"]


def test_each_call_has_an_id_of_its_own(ctx: Any, surface: Surface) -> None:
    first, second = ctx.run_code("1+1"), ctx.run_code("1+1")
    assert first.text == second.text == "2"
    assert first.execution_id != second.execution_id


def test_callbacks_come_in_order_and_the_outcome_is_the_same(ctx: Any, surface: Surface) -> None:
    seen: List[Any] = []
    ex = ctx.run_code(
        "cell",
        on_stdout=lambda t: seen.append(("out", t)),
        on_stderr=lambda t: seen.append(("err", t)),
        on_result=lambda r: seen.append(("result", r.text or "figure")),
    )
    assert seen == [("out", "one\n"), ("result", "figure"), ("err", "warned\n"), ("out", "zwei ü 🎉\n"), ("result", "'x'")]
    waited = ctx.run_code("cell")
    assert {**ex.__dict__, "execution_id": 0} == {**waited.__dict__, "execution_id": 0}


def test_a_stream_gives_numbered_events(ctx: Any) -> None:
    stream = ctx.stream("cell")
    events = list(stream)
    assert [e.type for e in events] == ["started", "stdout", "result", "stderr", "stdout", "result", "end"]
    assert [e.seq for e in events] == list(range(1, 8))
    assert stream.wait().text == "'x'"


def test_attach_goes_on_behind_a_number(ctx: Any) -> None:
    done = ctx.run_code("cell")
    assert [e.seq for e in ctx.attach(done.execution_id, after=5)] == [6, 7]
    assert ctx.attach(done.execution_id).wait().stdout == done.stdout
    with pytest.raises(NotFoundError):
        list(ctx.attach("nobody"))


# Broken connections


def test_an_answer_that_never_comes_is_fetched_and_the_cell_runs_once(ctx: Any, surface: Surface) -> None:
    surface.server.cut_before_answer = 1
    ex = ctx.run_code("cell")
    assert (ex.stdout, ex.text) == ("one\nzwei ü 🎉\n", "'x'")
    assert len(runs(surface)) == 1, "the code was sent once"
    assert len(surface.server.sent("GET", ex.execution_id)) == 1


@pytest.mark.parametrize("cut", range(7))
def test_a_stream_that_breaks_anywhere_goes_on_without_a_gap(ctx: Any, surface: Surface, cut: int) -> None:
    surface.server.cut_after[:] = [cut, 1, None]
    seen: List[str] = []
    ex = ctx.run_code("cell", on_stdout=seen.append)
    assert seen == ["one\n", "zwei ü 🎉\n"]
    assert ex.stdout == "one\nzwei ü 🎉\n"
    assert len(runs(surface)) == 1
    assert [c.query["after"] for c in surface.server.sent("GET", ex.execution_id)][0] == str(cut)


def test_a_server_that_restarts_is_waited_for(ctx: Any, surface: Surface) -> None:
    """The run is in flight when the server dies; it comes back later; the caller gets the result."""
    server = surface.server
    arrived = threading.Event()

    def die(call: Any, *_: Any) -> None:
        server.run(call, "ctx_1")
        arrived.set()
        return None

    server.on("POST", ".*/run", die)

    def restart() -> None:
        arrived.wait()
        server.stop()
        server.restart()

    helper = threading.Thread(target=restart)
    helper.start()
    ex = ctx.run_code("cell")
    helper.join()
    assert ex.text == "'x'"
    assert len(runs(surface)) == 1


def test_code_that_never_arrived_is_sent_again_under_the_same_id(ctx: Any, surface: Surface) -> None:
    surface.server.on("POST", ".*/run", lambda *_: None)  # swallowed before anything ran
    ex = ctx.run_code("1+1")
    assert ex.text == "2"
    first, second = runs(surface)
    assert first.json == second.json, "same id, same code: the server attaches if it did run"


def test_an_execution_that_is_lost_after_it_began_is_not_run_again(ctx: Any, surface: Surface) -> None:
    surface.server.cut_after[:] = [2]
    surface.server.on("GET", ".*/executions/.*", answer(404, {"error": "no such execution", "code": "not_found"}))
    with pytest.raises(NotFoundError):
        ctx.run_code("cell", on_stdout=lambda _: None)
    assert len(runs(surface)) == 1


def test_a_server_that_is_not_ready_yet_is_asked_again(ctx: Any, surface: Surface) -> None:
    server = surface.server
    server.cut_before_answer = 1
    asked: List[int] = []

    def attach(call: Any, sandbox: str, context: str, execution: str) -> Any:
        asked.append(1)
        if len(asked) < 3:
            return answer(503, {"error": "starting", "code": "no_capacity"})
        return server.attach(call, context, execution)

    server.on("GET", r"/v1/sandboxes/([^/]+)/repl/sessions/([^/]+)/executions/([^/]+)", attach)
    assert ctx.run_code("cell").text == "'x'"


def test_a_server_that_stays_away_is_given_up(surface: Surface) -> None:
    ctx = surface.sandbox(reconnect_seconds=0.2).create_code_context()
    surface.server.stop()
    with pytest.raises(APIConnectionError) as caught:
        ctx.run_code("1+1")
    assert str(surface.server.port) in str(caught.value)


def test_no_server_is_said_at_once_and_with_what_to_do(surface: Surface) -> None:
    surface.server.stop()
    with pytest.raises(APIConnectionError, match="pandastack serve"):
        surface.client(reconnect_seconds=600).sandboxes.create("base")


# What the server refuses


def test_an_id_used_for_other_code_is_a_conflict(ctx: Any) -> None:
    ctx.run_code("1+1", execution_id="mine")
    assert ctx.run_code("1+1", execution_id="mine").text == "2"
    with pytest.raises(ConflictError):
        ctx.run_code("2+2", execution_id="mine")


def test_a_deadline_returns(ctx: Any, surface: Surface) -> None:
    ended = {"end": "timeout", "error": "the cell did not end within 1 s", "exit_code": 1, "step": "interrupt"}
    surface.server.scripts["loop"] = [{"type": "stdout", "text": "so far"}, {"type": "end", "execution": ended}]
    for ex in (ctx.run_code("loop", timeout_seconds=1), ctx.run_code("loop", on_stdout=lambda _: None)):
        assert (ex.end, ex.stdout, ex.exit_code, ex.step) == ("timeout", "so far", 1, "interrupt")
        assert "1 s" in ex.error and ex.state_survived is True


def test_an_older_server_says_timeout_with_a_status(ctx: Any, surface: Surface) -> None:
    surface.server.on("POST", ".*/run", answer(500, {"error": "cell timeout after 30s"}))
    with pytest.raises(SandboxTimeout):
        ctx.run_code("loop")
    surface.server.on("POST", ".*/run", answer(500, {"error": "dial: i/o timeout"}))
    with pytest.raises(ServerError):
        ctx.run_code("loop")


def test_an_older_answer_is_understood(ctx: Any, surface: Surface) -> None:
    old = {"stdout": "", "stderr": "Traceback", "exit": 1, "results": [{"type": "image/png", "data": "aGk="}]}
    surface.server.on("POST", ".*/run", answer(200, old))
    ex = ctx.run_code("x")
    assert (ex.end, ex.exit_code, ex.png, ex.error, ex.duration_ms) == ("error", 1, "aGk=", None, None)


def test_events_that_are_none_are_said_to_be(ctx: Any, surface: Surface) -> None:
    surface.server.on("POST", ".*/run/stream", (200, {"content-type": "text/event-stream"}, b"data: nonsense\n\n"))
    with pytest.raises(ServerError, match="can't be read"):
        list(ctx.stream("1+1"))


def test_a_callback_that_raises_stops_the_call(ctx: Any) -> None:
    def on_stdout(_: str) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ctx.run_code("cell", on_stdout=on_stdout)


@pytest.mark.parametrize(
    "code, options, error",
    [
        (None, {}, TypeError),
        (b"1", {}, TypeError),
        ("1", {"timeout_seconds": 0}, ValueError),
        ("1", {"timeout_seconds": -1}, ValueError),
        ("1", {"timeout_seconds": float("inf")}, ValueError),
        ("1", {"timeout_seconds": "5"}, TypeError),
        ("1", {"timeout_seconds": True}, TypeError),
        ("1", {"execution_id": ""}, ValueError),
        ("1", {"detach": 1}, TypeError),
        ("1", {"on_stdout": 3}, TypeError),
    ],
)
def test_bad_arguments_raise_before_anything_is_sent(
    ctx: Any, surface: Surface, code: Any, options: Any, error: Any
) -> None:
    with pytest.raises(error) as caught:
        ctx.run_code(code, **options)
    assert not runs(surface)
    name = next(iter(options), "code")
    assert name in str(caught.value)


# Contexts and one-shot code


def test_run_code_of_a_sandbox_uses_the_default_context(surface: Surface) -> None:
    sandbox = surface.sandbox()
    assert sandbox.run_code("6*7", language="python3").text == "42"
    assert runs(surface)[0].path.endswith("/sessions/default/run")


def test_other_languages_run_once(surface: Surface) -> None:
    surface.server.on("POST", ".*/repl", answer(200, {"language": "bash", "stdout": "hi\n", "stderr": "", "exit_code": 0}))
    assert surface.sandbox().run_code("echo hi", language="bash").stdout == "hi\n"
    assert surface.server.calls[-1].json == {"language": "bash", "code": "echo hi", "timeout_ms": 30000}


def test_a_context_closes_itself_and_closing_twice_is_fine(surface: Surface) -> None:
    sandbox = surface.sandbox()
    with sandbox.create_code_context(cwd="/tmp", envs={"A": "b"}) as ctx:
        assert ctx.id == "ctx_1" and ctx.language == "python"
    assert surface.server.sent("POST", "/repl/sessions")[0].json == {"language": "python", "cwd": "/tmp", "envs": {"A": "b"}}
    assert len(surface.server.sent("DELETE", "/ctx_1")) == 1
    surface.server.on("DELETE", ".*/sessions/.*", answer(404, {"error": "gone", "code": "not_found"}))
    ctx.close()


def test_contexts_are_listed_found_and_steered(surface: Surface) -> None:
    info = {"id": "c2", "language": "python", "state": "busy", "execution_count": 3, "queued": 1, "running_id": "e"}
    surface.server.on("GET", ".*/sessions", answer(200, [info]))
    surface.server.on("GET", ".*/sessions/c2", answer(200, info))
    surface.server.on("POST", ".*/(interrupt|restart)", answer(204))
    surface.server.on("POST", ".*/fork", answer(201, {"children": [{"id": "c3"}, {"id": "c4"}], "warnings": ["threads do not run"]}))
    sandbox = surface.sandbox()
    assert [c.id for c in sandbox.contexts()] == ["c2"]
    ctx = sandbox.context("c2")
    assert (ctx.info().state, ctx.info().queued, ctx.info().running_id) == ("busy", 1, "e")
    ctx.interrupt()
    ctx.restart()
    assert [c.id for c in ctx.fork(2)] == ["c3", "c4"]
    assert ctx.fork().id == "c3" and ctx.fork().warnings == ["threads do not run"]
    assert sandbox.context().id == "default"
    with pytest.raises(NotFoundError):
        sandbox.context("nobody")
