"""Every route, field and error code of the API is in every SDK.

A small server plays the daemon's part of exchanges.json: it holds each request against what the exchange says, and answers
with a value that has every field that api/openapi.yaml gives the answer. What an SDK makes of it must be the same again.
The exchanges are held against api/openapi.yaml too, so that a route, a parameter, a field of a body or a code that is new
there fails here until all SDKs have it, or it stands below with a reason.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from contract import OPERATIONS, SCHEMAS, STATUS_OF, Operation, sample
from sdks import HERE, Sdk, operations, present

SDKS = ["python", "typescript", "go"]
EXCHANGES: list[dict[str, Any]] = json.loads((HERE / "exchanges.json").read_text())
KEY = "pds_" + "0" * 32

# Routes that no SDK calls.
NOT_CALLED = {
    "health": "for load balancers", "healthV1": "for load balancers", "ready": "for operators", "readyV1": "for operators",
    "version": "the SDKs call the one under /v1", "metrics": "for Prometheus", "openapi": "a document", "docs": "a page",
    "listBuilds": "always empty: for published clients", "stopSandbox": "an older name", "startSandbox": "an older name",
    **dict.fromkeys(("readTar", "writeTar"), "folders of this machine as streams: filesystem.copied_dir in programme.json"),
    "execPTY": "a terminal that ends with its connection: sandbox.pty's do not",
    "attachProcess": "for programs that are at a terminal themselves, like the command line; sandbox.pty has the same as events",
    "connectPort": "a WebSocket: Dial of Go and dial of TypeScript, see test_previews.py and test_pages.py",
    **{f"{of}{method}": "for any HTTP client" for of in ("proxy", "link") for method in ("Get", "Post", "Put", "Patch", "Delete", "Options")},
    **dict.fromkeys(("downloadByLink", "uploadByLink", "postByLink", "linkPreflight"), "for whoever has the link, with any HTTP client"),
    **dict.fromkeys((f"mcp{what}{where}" for what in ("", "Listen", "End") for where in ("", "V1", "OfSandbox")), "for clients of the Model Context Protocol: test_mcp.py"),
    **dict.fromkeys((name for name in OPERATIONS if name.startswith("jupyter")), "for front ends of Jupyter: test_jupyter.py"),
    "getSecret": "the list has the same",
    **dict.fromkeys(("connectTools", "connectAgent"), "WebSockets: tools.serve in programme.json, and test_tools.py"),
    "execWebSocket": "commands over processes and events need no second protocol",
}
# Operations that an SDK lacks.
LACKING = {
    ("python", "sandbox.exec_stream"): "commands.run with callbacks is the same and survives a broken connection",
    ("go", "commands.run"): "Start and Process.Wait write to io.Writers",
    ("go", "commands.kill"): "Connect and Process.Kill",
}
# Parameters and fields of requests that no exchange shows.
NOT_SENT = {
    "Last-Event-ID": "sent when a connection broke: the SDKs' own tests",
    "ExecRequest.attach": "sent when a connection broke: the SDKs' own tests",
    "Tools.functions": "functions differ by language: tools.serve in programme.json",
    "AgentRequest.replay_of": "AgentRun.replay: test_agent.py",
    "AgentRequest.fork": "AgentRun.fork: test_agent.py",
    "listApprovals.limit": "the SDKs take as many as one answer has, a thousand",
    "listDir.limit": "the SDKs list all there is, in the server's pages",
    "watchFiles.after": "sent as Last-Event-ID when a connection broke: the SDKs' own tests",
}
# Fields of answers that an SDK gives otherwise.
OTHERWISE = {
    **dict.fromkeys(
        ("NetworkLine.sandbox_id", "NetworkLine.workspace", "NetworkLine.ech", "NetworkLine.suppressed"),
        "in the raw line of the Python SDK",
    ),
    "FileInfo.raw_name": "the name itself, in bytes: the SDKs' own tests",
    "FileEvent.raw_path": "the path itself, in bytes: the SDKs' own tests",
    "FileEvent.raw_from": "the same",
    **dict.fromkeys(("FileEvent.seq", "FileEvent.watch_id"), "for going on after a broken connection, which the SDKs do themselves"),
    "OutputEvent.raw": "the bytes, when there are such: programme.json",
    "FileInfo.mtime": "the same moment as modified_at, for published clients",
    "ExecResult.timed_out": "an error: programme.json",
    "Execution.exit": "an older name of exit_code",
    "OneShotResult.exit": "an older name of exit_code",
    "EndEvent.exit": "an older name of exit_code",
    "OneShotResult.language": "what was asked for",
}
KINDS = {
    "invalid": "bad_request", "unauthenticated": "auth", "denied": "auth", "not_found": "not_found", "conflict": "conflict",
    "too_large": "bad_request", "rate_limited": "rate_limited", "internal": "server", "unsupported": "server",
    "unreachable": "server", "no_capacity": "capacity", "timeout": "timeout", "no_space": "capacity",
}
OF_PROCESSES = {"StartedEvent.execution_id", "StartedEvent.execution_count"}  # what their events lack
OF_CELLS = {"StartedEvent.pid"}
IN_PATHS = {"id": "sb-1", "cid": "c-1", "pid": "7"}


class Server(ThreadingHTTPServer):
    """Plays one exchange after the other."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls: list[dict[str, Any]] = []
        self.wrong: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def play(self, calls: list[dict[str, Any]]) -> None:
        self.calls, self.wrong = list(calls), []

    def over(self) -> list[str]:
        """What was wrong with the requests."""
        missing = [f"{c['operation']} was not called" for c in self.calls if "maybe" not in c]
        return self.wrong + missing


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        body = self._body()
        if not self.server.calls:
            self.server.wrong.append(f"{self.command} {self.path} was not expected")
            return self._answer(500, b"{}", "application/json")
        call = self.server.calls.pop(0)
        self.server.wrong += self._differences(call, OPERATIONS[call["operation"]], body)
        answer = answer_of(call)
        if isinstance(answer, str):
            return self._answer(200, answer.encode(), "text/event-stream; charset=utf-8")
        if isinstance(answer, bytes):
            return self._answer(call.get("status", OPERATIONS[call["operation"]].status), answer, "application/octet-stream", call.get("answers", {}))
        status = call.get("status", OPERATIONS[call["operation"]].status)
        self._answer(status, b"" if answer is None else json.dumps(answer).encode(), "application/json", call.get("answers", {}))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _differences(self, call: dict[str, Any], operation: Operation, body: bytes) -> Iterator[str]:
        path = operation.path.format(**{**IN_PATHS, **call.get("path", {})})
        parts = urlsplit(self.path)
        if (self.command, parts.path) != (operation.method, path):
            yield f"{self.command} {parts.path} instead of {operation.method} {path}"
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        wanted = {n: v for n, v in call.get("query", {}).items() if v != "0?" or n in query}  # "0?": may be left out
        wanted = {n: query.get(n, v) if v == "*" else v for n, v in wanted.items()}
        if query != {n: v.removesuffix("?") for n, v in wanted.items()}:
            yield f"{operation.id}: the query is {query}, not {wanted}"
        for name, value in call.get("headers", {}).items():
            if self.headers.get(name) != value:
                yield f"{operation.id}: the header {name} is {self.headers.get(name)!r}, not {value!r}"
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            yield f"{operation.id}: the key is {self.headers.get('Authorization')!r}"
        if "bytes" in call and base64.b64encode(body).decode() != call["bytes"]:
            yield f"{operation.id}: the body is {body!r}"
        if "body" in call:
            sent = json.loads(body)
            known = {n: sent.get(n) if v == "*" else v for n, v in call["body"].items()}
            if present_times(sent) != known:
                yield f"{operation.id}: the body is {sent}, not {call['body']}"

    def _answer(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if status != 204 else b"")


def present_times(sent: dict[str, Any]) -> dict[str, Any]:
    """Each SDK writes a moment in a form of its own."""
    return {n: v.replace("+00:00", "Z").replace(".000Z", "Z") if isinstance(v, str) and n.endswith("_at") else v for n, v in sent.items()}


def answer_of(call: dict[str, Any], without: frozenset[str] = frozenset(OTHERWISE)) -> Any:
    """What the server answers: JSON, or bytes, or a stream of events as a str."""
    operation = OPERATIONS[call["operation"]]
    if "error" in call:
        return {**sample({"$ref": "#/components/schemas/Error"}), "code": call["error"]}
    if "content" in call:
        return base64.b64decode(call["content"])
    if "text" in call:
        return call["text"].encode()
    if call.get("stream"):
        events = events_of(call, without)
        return "".join(f"id: {i}\nevent: {name}\ndata: {json.dumps(data)}\n\n" for i, (name, data) in enumerate(events, 1))
    if operation.answer is None:
        return None
    made = sample(operation.answer, "value", without)
    if call.get("last"):
        del made["truncated"]
    for name in call.get("lacks", []):
        del made[name]
    return made


def events_of(call: dict[str, Any], without: frozenset[str]) -> list[tuple[str, dict[str, Any]]]:
    without |= OF_PROCESSES if call["operation"] == "streamProcess" else OF_CELLS
    events = [("event", {"type": "started", "watch_id": "w"})] if call["operation"] == "watchFiles" else []
    events += [
        (name, sample(schema, "value", without))
        for name, schema in OPERATIONS[call["operation"]].events.items()
        if name != "error"
    ]
    if call["operation"] == "agentEvents":  # they say their types themselves, and one of them is the last
        events = [(name, {**data, "type": name}) for name, data in events]
        events.sort(key=lambda event: event[0] == "ended")
    return events


def expected(exchange: dict[str, Any]) -> Any:
    """What an SDK makes of the answer."""
    last = [c for c in exchange["calls"] if "maybe" not in c][-1]
    given = exchange.get("value", "whole") if "value" in exchange else "whole"
    match given:
        case "whole":
            value = answer_of(last)
        case "page":
            value = [item for call in exchange["calls"] for item in answer_of(call)]
        case "entries":
            value = [item for call in exchange["calls"] for item in answer_of(call)["entries"]]
        case "cell" | "process":
            value = [{"type": name, "seq": i, **data} for i, (name, data) in enumerate(events_of(last, frozenset(OTHERWISE)), 1)]
        case "life":
            began = last["operation"] == "watchFiles"  # the first event of a watch is for the SDK itself
            value = [data for _, data in events_of(last, frozenset(OTHERWISE))[began:]]
        case "exec":
            events = events_of(last, frozenset(OTHERWISE))
            heard = [[name, data["chunk"]] for name, data in events if name in ("stdout", "stderr")]
            value = {"value": dict(events)["exit"]["exit_code"], "heard": heard}
        case "copies":
            made = answer_of(last)
            value = [{"id": c["id"], "language": c["language"], "warnings": made["warnings"]} for c in made["children"]]
        case str() if isinstance(answer := answer_of(last), dict):
            value = answer[given]
        case _:
            value = given
    if "pick" in exchange:
        value = {name: value[name] for name in exchange["pick"]}
    return value


def without(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [without(item, names) for item in value]
    return {n: v for n, v in value.items() if n not in names} if isinstance(value, dict) else value


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="module", params=SDKS)
def sdk(request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sdk]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PANDASTACK_")}
    env.update(HOME=str(tmp_path_factory.mktemp("home")), PANDASTACK_API_URL=server.url, PANDASTACK_API_KEY=KEY)
    with Sdk(request.param, env) as made:
        yield made


@pytest.mark.parametrize("exchange", EXCHANGES, ids=[f"{e['op']}-{i}" for i, e in enumerate(EXCHANGES)])
def test_exchange(exchange: dict[str, Any], sdk: Sdk, server: Server) -> None:
    if (sdk.name, exchange["op"]) in LACKING:
        pytest.skip(LACKING[sdk.name, exchange["op"]])
    server.play(exchange["calls"])
    outcome = sdk.do(exchange["op"], exchange.get("args", {}))
    assert server.over() == [], outcome
    assert "error" not in outcome, outcome
    names = exchange.get("without", [])
    assert present(without(outcome["value"], names)) == present(without(expected(exchange), names))


@pytest.mark.parametrize("code", SCHEMAS["Code"]["enum"])
def test_error(code: str, sdk: Sdk, server: Server) -> None:
    """An error of each code is of its class, and has all that the server said."""
    status = int(STATUS_OF[code])
    server.play([{"operation": "getTemplate", "path": {"name": "t"}, "error": code, "status": status, "answers": {"Retry-After": "77"}}])
    error = sdk.do("templates.get", {"name": "t"})["error"]
    said = sample({"$ref": "#/components/schemas/Error"})
    assert (error["kind"], error["status_code"], error["code"], error["retry_after"]) == (KINDS[code], status, code, 77)
    assert {n: error[n] for n in ("hint", "field", "request_id")} == {n: said[n] for n in ("hint", "field", "request_id")}
    assert said["error"] in error["message"] and said["hint"] in error["message"]


# The exchanges against the contract


def test_every_route_is_exchanged() -> None:
    called = {call["operation"] for exchange in EXCHANGES for call in exchange["calls"]}
    assert called & set(NOT_CALLED) == set(), "called after all: take it off NOT_CALLED"
    assert called | set(NOT_CALLED) == set(OPERATIONS)


def test_every_operation_is_in_every_sdk() -> None:
    every = {exchange["op"] for exchange in EXCHANGES}.union(*map(operations, SDKS))
    lacking = {(name, op) for name in SDKS for op in every - operations(name)}
    assert lacking == set(LACKING)


@pytest.mark.parametrize("name", [n for n in OPERATIONS if n not in NOT_CALLED])
def test_all_of_a_request_is_exchanged(name: str) -> None:
    operation = OPERATIONS[name]
    calls = [call for exchange in EXCHANGES for call in exchange["calls"] if call["operation"] == name]
    queries = {n.split(".")[0] + ".KEY" if n.startswith("metadata.") else n for call in calls for n in call.get("query", {})}
    headers = {n for call in calls for n in call.get("headers", {})}
    assert {n for n in operation.named("query") if f"{name}.{n}" not in NOT_SENT} <= queries
    assert operation.named("header") - set(NOT_SENT) <= headers


@pytest.mark.parametrize("schema", sorted({o.body for n, o in OPERATIONS.items() if o.body and n not in NOT_CALLED}))
def test_all_of_a_body_is_exchanged(schema: str) -> None:
    of_it = {name for name, operation in OPERATIONS.items() if operation.body == schema}
    sent = {n for exchange in EXCHANGES for call in exchange["calls"] if call["operation"] in of_it for n in call.get("body", {})}
    assert {f for f in SCHEMAS[schema].get("properties", {}) if f"{schema}.{f}" not in NOT_SENT} <= sent


def test_every_kind_is_named() -> None:
    assert set(KINDS) == set(SCHEMAS["Code"]["enum"]) == set(STATUS_OF)
