"""Executions, results and events as values: no server."""

from __future__ import annotations

import pytest

from pandastack import Execution, Result, _routes
from pandastack._retry import Backoff
from pandastack.events import Capture, Event, EventDecoder, ExecutionAssembly

WIRE = {
    "execution_id": "e1",
    "execution_count": 4,
    "end": "error",
    "state_survived": True,
    "stdout": "hi\n",
    "stderr": "",
    "results": [
        {"text/plain": "t", "text/html": "<table><tr></table>", "application/json": '{"a": [1]}'},
        {"image/svg+xml": "<svg/>"},
        {"image/jpeg": "anBn", "image/png": "cG5n", "application/vnd.plotly.v1+json": "{}"},
    ],
    "results_meta": [{"is_last_expression": True, "metadata": {"image/png": {"width": 3}}}],
    "error": "Traceback (most recent call last)\nKeyError: 'x'",
    "error_name": "KeyError",
    "error_value": "'x'",
    "exit": 1,
    "exit_code": 1,
    "duration_ms": 12.5,
    "truncated": True,
    "stdout_dropped": 9,
    "output_path": "/var/log/pandastack/e1",
}


def test_every_accessor() -> None:
    ex = Execution.from_wire(WIRE)
    table, drawing, figure = ex.results
    assert (table.text, table.html, table.json) == ("t", "<table><tr></table>", {"a": [1]})
    assert (table.is_last_expression, table.metadata) == (True, {"image/png": {"width": 3}})
    assert (drawing.svg, drawing.chart, drawing.text, drawing.is_last_expression) == ("<svg/>", "<svg/>", None, False)
    assert (figure.png, figure.jpeg, figure.chart) == ("cG5n", "anBn", "cG5n")
    assert figure.extra == {"application/vnd.plotly.v1+json": "{}"}
    for name in ("png", "jpeg", "svg", "markdown", "latex", "pdf", "javascript", "chart"):
        assert getattr(table, name) is None, name
    assert (ex.text, ex.html, ex.png) == ("t", "<table><tr></table>", "cG5n")
    assert (ex.error_name, ex.error_value, ex.execution_count) == ("KeyError", "'x'", 4)
    assert (ex.truncated, ex.stdout_dropped, ex.output_path) == (True, 9, "/var/log/pandastack/e1")


def test_missing_is_none_and_output_is_always_str() -> None:
    ex = Execution.from_wire({"end": "ok"})
    assert (ex.stdout, ex.stderr, ex.results) == ("", "", [])
    assert (ex.text, ex.png, ex.html, ex.error, ex.error_name, ex.output_path) == (None,) * 6
    assert ex.exit_code == 0 and ex.state_survived is True


def test_empty_text_is_text() -> None:
    assert Execution.from_wire({"results": [{"image/png": "x"}, {"text/plain": ""}]}).text == ""


def test_json_that_is_none_comes_as_it_is() -> None:
    assert Result.from_wire({"application/json": "not json"}).json == "not json"
    assert Result.from_wire({"application/json": {"a": 1}}).json == {"a": 1}


def test_repr_says_what_matters_in_short() -> None:
    assert repr(Execution.from_wire({"stdout": "x" * 100, "results": [{"text/plain": "4"}]})) == (
        f"Execution(end='ok', text='4', stdout='{'x' * 59}…', results=[text])"
    )
    text = repr(Execution.from_wire(WIRE))
    assert "KeyError" in text and "png" in text and "truncated=True" in text
    assert repr(Result.from_wire({"text/plain": "4"}, {"is_last_expression": True})) == (
        "Result(text/plain, text='4', is_last_expression=True)"
    )


def test_a_notebook_shows_output_results_and_error_in_order() -> None:
    shown = Execution.from_wire(WIRE)._repr_mimebundle_()["text/html"]
    places = [shown.index(part) for part in ("hi\n", "&lt;table&gt;", "svg", "data:image/png;base64,cG5n", "KeyError")]
    assert places == sorted(places)
    bundle = Result.from_wire({"image/png": "cG5n"})._repr_mimebundle_()
    assert bundle["image/png"] == "cG5n" and "text/html" not in bundle


def test_html_of_a_sandbox_cannot_reach_into_the_notebook() -> None:
    evil = '<script>parent.alert(1)</script>"><img src=x onerror=alert(1)>'
    for shown in (
        Result.from_wire({"text/html": evil})._repr_mimebundle_()["text/html"],
        Execution.from_wire({"results": [{"text/html": evil}], "stdout": evil, "error": evil})._repr_html_(),
        Execution.from_wire({"results": [{"image/png": '"><script>1</script>'}]})._repr_html_(),
        Execution.from_wire({"results": [{"image/svg+xml": "<svg><script>1</script></svg>"}]})._repr_html_(),
    ):
        assert "<script" not in shown and "onerror=alert(1)>" not in shown
    framed = Result.from_wire({"text/html": evil})._repr_html_()
    assert framed.startswith('<iframe sandbox="allow-scripts"') and "allow-same-origin" not in framed


# Events


def test_events_are_read_from_pieces_cut_anywhere() -> None:
    wire = (
        b': hello\r\n\r\nid: 1\nevent: stdout\ndata: {"text": "\xc3\xbc"}\n\n'
        b'event: end\ndata: {"execution": {"end": "ok"},\ndata: "seq": 2}\n\nevent: never dispatched\n\n'
    )
    for size in range(1, 30):
        decoder = EventDecoder()
        events = [e for i in range(0, len(wire), size) for e in decoder.feed(wire[i : i + size])]
        assert [(e.type, e.seq, e.text) for e in events] == [("stdout", 1, "ü"), ("end", 2, None)]
        assert events[1].data == {"end": "ok"}


@pytest.mark.parametrize("data", [b"[]", b"3", b"{", b"\xff"])
def test_data_that_is_no_object(data: bytes) -> None:
    with pytest.raises(ValueError):
        list(EventDecoder().feed(b"data: " + data + b"\n\n"))


def test_an_end_event_with_its_fields_flat_is_understood_too() -> None:
    event = Event.from_wire("end", {"end": "oom", "state_survived": False, "exit_code": 1})
    assembly = ExecutionAssembly("e9")
    assembly.add(event)
    assert assembly.execution is not None
    assert (assembly.execution.end, assembly.execution.execution_id) == ("oom", "e9")


def test_output_is_kept_head_and_tail_and_what_is_dropped_is_counted() -> None:
    kept = Capture(head=4, tail=4)
    for piece in ("ab", "cdef", "gh" * 50, "ü", "xyz"):
        kept.add(piece)
    assert kept.text() == "abcd\n[… 102 bytes dropped …]\nüxyz"
    assert kept.dropped == 102, "bytes between the first and the last four characters"


def test_a_short_output_is_whole() -> None:
    kept = Capture(head=4, tail=4)
    for piece in "abcdefgh":
        kept.add(piece)
    assert (kept.text(), kept.dropped) == ("abcdefgh", 0)


def test_a_gap_is_marked_where_it_was() -> None:
    kept = Capture()
    kept.add("before")
    kept.gap(7)
    kept.add("after")
    assert kept.text() == "before\n[… 7 bytes dropped …]\nafter"


def test_backoff_grows_to_a_second_and_gives_up() -> None:
    now = [0.0]
    backoff = Backoff(10, clock=lambda: now[0])
    pauses = []
    while True:
        pause = backoff.pause()
        if pause is None:
            break
        pauses.append(pause)
        now[0] += pause
    assert pauses[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert 10 <= now[0] <= 11
    backoff.reset()
    assert backoff.pause() == 0.05


def test_an_answer_is_waited_for_longer_than_the_deadline() -> None:
    """An interrupt, a kill and a new interpreter come after the deadline, so the answer may too."""
    run = {"timeout_seconds": 300, "execution_id": "e", "detach": False}
    command = {"timeout_seconds": 300, "cwd": "/", "envs": None, "user": None, "stdin": None, "execution_id": "e", "attach": False}
    for request in (
        _routes.run("s", "c", "1", stream=False, **run),
        _routes.exec_command("s", "true", **command),
        _routes.run_once("s", "bash", "true", 300),
    ):
        assert request.read_seconds >= 310
    assert _routes.run("s", "c", "1", stream=True, **run).read_seconds > 2 * 15, "a comment comes every 15 s"
