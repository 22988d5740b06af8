"""A PandaStack server in this process: it speaks the wire, keeps what it is told in memory, and breaks when asked to."""

from __future__ import annotations

import json
import re
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple
from urllib.parse import parse_qsl, unquote, urlsplit

KEY = "pds_" + "0" * 32
SANDBOX = {
    "id": "sb_1",
    "template": "code-interpreter",
    "status": "running",
    "cpu": 2,
    "memory_mb": 2048,
    "disk_mb": 4096,
    "metadata": {"who": "me"},
    "persistent": False,
    "ttl_seconds": 3600,
    "created_at": "2026-03-01T10:00:00.123456789Z",
    "expires_at": "2026-03-01T11:00:00Z",
    "driver": "fake",
    "boot_ms": 4.2,
    "boot_mode": "pool",
    "generation": 1,
}


@dataclass
class Call:
    """A request as it arrived."""

    method: str
    target: str
    path: str
    query: Dict[str, str]
    headers: Dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Cell:
    """An execution: numbered events, all of them known from the start."""

    code: str
    events: List[Dict[str, Any]]
    runs: int = 1


Answer = Tuple[int, Dict[str, str], bytes]


def answer(status: int, body: Any = None, **headers: str) -> Answer:
    data = b"" if body is None else json.dumps(body).encode()
    return status, {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}, data


@dataclass
class FakeServer:
    """Answers in `routes` (method and pattern) come before the built-in ones."""

    calls: List[Call] = field(default_factory=list)
    routes: List[Tuple[str, str, Callable[..., Any]]] = field(default_factory=list)
    cells: Dict[str, Cell] = field(default_factory=dict)
    scripts: Dict[str, List[Dict[str, Any]]] = field(default_factory=dict)
    files: Dict[str, bytes] = field(default_factory=dict)
    cut_after: List[Optional[int]] = field(default_factory=list)  # a stream each: break it after so many events
    cut_before_answer: int = 0  # so many runs are done, but their answer never comes

    def start(self, port: int = 0) -> "FakeServer":
        fake = self

        class Handler(_Handler):
            server_of_tests = fake

        self._open: List[socket.socket] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Refuses new connections and breaks the ones there are, as a killed daemon does."""
        self._http.shutdown()
        self._http.server_close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def restart(self) -> None:
        self.start(self.port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def on(self, method: str, pattern: str, do: Any) -> None:
        """Answers this route with `do`: an answer, or a function of the call and the pattern's groups."""
        self.routes.insert(0, (method, pattern, do if callable(do) else lambda *_: do))

    def sent(self, method: str, ending: str) -> List[Call]:
        return [c for c in self.calls if c.method == method and c.path.endswith(ending)]

    # What it does by itself

    def handle(self, call: Call) -> Any:
        for method, pattern, do in self.routes:
            match = re.fullmatch(pattern, call.path)
            if method == call.method and match:
                return do(call, *match.groups())
        if call.headers.get("authorization") != f"Bearer {KEY}":
            return answer(401, {"error": "the key is not known", "code": "unauthenticated"})
        for method, pattern, do in _BUILT_IN:
            match = re.fullmatch(pattern, call.path)
            if method == call.method and match:
                return do(self, call, *match.groups())
        return answer(404, {"error": f"no route {call.method} {call.path}", "code": "not_found"})

    def run(self, call: Call, context: str) -> Any:
        body = call.json
        known = self.cells.get(body["execution_id"])
        if known is None:
            known = Cell(body["code"], self._events(body["execution_id"], body["code"]))
            self.cells[body["execution_id"]] = known
        elif known.code != body["code"]:
            return answer(409, {"error": "this execution id ran other code", "code": "conflict"})
        if call.path.endswith("/stream"):
            return known.events
        if self.cut_before_answer > 0:
            self.cut_before_answer -= 1
            return None
        return answer(200, _whole(known.events))

    def attach(self, call: Call, context: str, execution: str) -> Any:
        known = self.cells.get(execution)
        if known is None:
            return answer(404, {"error": "no such execution", "code": "not_found"})
        return [e for e in known.events if e["seq"] > int(call.query.get("after", "0"))]

    def _events(self, execution: str, code: str) -> List[Dict[str, Any]]:
        script = self.scripts.get(code)
        if script is None:
            text = repr(eval(code)) if code else ""  # tests give arithmetic only
            script = [{"type": "result", "data": {"text/plain": text}, "is_last_expression": True}] if text else []
        ending: Dict[str, Any] = {"end": "ok", "state_survived": True, "exit": 0, "exit_code": 0, "duration_ms": 1.5}
        script = list(script)
        if script and script[-1]["type"] == "end":
            ending = {**ending, **script.pop()["execution"]}
        ending.update(execution_id=execution, execution_count=1)
        all_events = [{"type": "started", "execution_id": execution, "execution_count": 1}, *script]
        all_events.append({"type": "end", "execution": ending})
        return [{**event, "seq": index} for index, event in enumerate(all_events, 1)]


def _whole(events: List[Dict[str, Any]]) -> Dict[str, Any]:
    results = sorted((e for e in events if e["type"] == "result"), key=lambda e: not e.get("is_last_expression"))
    return {
        **events[-1]["execution"],
        "stdout": "".join(e["text"] for e in events if e["type"] == "stdout"),
        "stderr": "".join(e["text"] for e in events if e["type"] == "stderr"),
        "results": [e["data"] for e in results],
        "results_meta": [{"is_last_expression": bool(e.get("is_last_expression"))} for e in results],
    }


def _create(fake: FakeServer, call: Call) -> Answer:
    body = call.json
    if body.get("template") == "nonsense":
        words = {"error": "no template nonsense", "code": "not_found", "hint": "there are: base, code-interpreter"}
        return answer(404, words)
    return answer(201, {**SANDBOX, "template": body.get("template", "base"), "metadata": body.get("metadata") or {}})


def _read(fake: FakeServer, call: Call, _: str) -> Answer:
    path = call.query["path"]
    if path not in fake.files:
        return answer(404, {"error": f"no file {path}", "code": "not_found"})
    return 200, {"content-type": "application/octet-stream"}, fake.files[path]


def _write(fake: FakeServer, call: Call, _: str) -> Answer:
    fake.files[call.query["path"]] = call.body
    return answer(200, {"path": call.query["path"], "bytes": len(call.body)})


def _stat(fake: FakeServer, call: Call, _: str) -> Answer:
    path = call.query["path"]
    if path not in fake.files:
        return answer(404, {"error": f"nothing at {path}", "code": "not_found"})
    return answer(200, {"name": path.rsplit("/", 1)[-1], "is_dir": False, "size": len(fake.files[path]), "mode": "f"})


def _exec(fake: FakeServer, call: Call, _: str) -> Answer:
    cmd = call.json["cmd"]
    if cmd == "sleep 60":
        return answer(200, {"stdout": "so far\n", "stderr": "", "exit_code": 137, "timed_out": True})
    if cmd == "false":
        return answer(200, {"stdout": "", "stderr": "it went wrong\n", "exit_code": 1})
    return answer(200, {"stdout": json.dumps(call.json, sort_keys=True), "stderr": "", "exit_code": 0})


_S = r"/v1/sandboxes/([^/]+)"
_C = _S + r"/repl/sessions/([^/]+)"
_BUILT_IN: List[Tuple[str, str, Callable[..., Any]]] = [
    ("POST", "/v1/sandboxes", _create),
    ("GET", "/v1/sandboxes", lambda f, c: answer(200, [SANDBOX, {**SANDBOX, "id": "sb_2", "status": "paused"}])),
    ("GET", r"/v1/sandboxes/sb_1", lambda f, c: answer(200, SANDBOX)),
    ("DELETE", r"/v1/sandboxes/sb_1", lambda f, c: answer(204)),
    ("POST", _S + "/repl/sessions", lambda f, c, s: answer(201, {"id": "ctx_1", "language": c.json["language"]})),
    ("DELETE", _C, lambda f, c, s, x: answer(204)),
    ("POST", _C + "/run(?:/stream)?", lambda f, c, s, x: f.run(c, x)),
    ("GET", _C + "/executions/([^/]+)", lambda f, c, s, x, e: f.attach(c, x, e)),
    ("POST", _S + "/exec", _exec),
    ("GET", _S + "/fs", _read),
    ("PUT", _S + "/fs", _write),
    ("GET", _S + "/fs/stat", _stat),
]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of_tests: FakeServer

    def setup(self) -> None:
        super().setup()
        self.server_of_tests._open.append(self.connection)

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        fake = self.server_of_tests
        parts = urlsplit(self.path)
        call = Call(
            self.command,
            self.path,
            unquote(parts.path),
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            {k.lower(): v for k, v in self.headers.items()},
            self._body(),
        )
        fake.calls.append(call)
        made = fake.handle(call)
        if made is None:
            self._break()
        elif isinstance(made, (list, Iterator)):
            self._stream(made, fake.cut_after.pop(0) if fake.cut_after else None)
        else:
            status, headers, body = made
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            pieces = []
            while True:
                size = int(self.rfile.readline(), 16)
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
                if size == 0:
                    return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _stream(self, events: Iterable[Dict[str, Any]], cut: Optional[int]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk(b": hello\n\n")
        for index, event in enumerate(events):
            if index == cut:
                return self._break()
            text = f"id: {event['seq']}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            self._chunk(text[:7])  # cut anywhere
            self._chunk(text[7:])
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _break(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
