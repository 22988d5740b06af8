"""Each call of the API as a Request: paths, bodies and how long an answer may take. Nothing here does I/O."""

from __future__ import annotations

import base64
import uuid
from datetime import datetime
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import _checks as check
from ._request import ANSWER_SECONDS, LONG_SECONDS, QUIET_SECONDS, Request, Upload, segment

Command = Union[str, List[str]]

# A create may wait a minute for its turn, take a minute, and fail, and then what was made is undone, for a minute at most.
CREATE_SECONDS = 200.0
SNAPSHOT_SECONDS = 180.0
MARGIN_SECONDS = 20.0  # beyond a deadline: interrupt, terminate, kill, a new interpreter
EVENTS = "text/event-stream"


def _clean(body: Dict[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _sandbox(sandbox_id: str, rest: str = "") -> str:
    return f"/sandboxes/{segment(check.text('sandbox id', sandbox_id))}{rest}"


def _context(sandbox_id: str, context_id: str, rest: str = "") -> str:
    return _sandbox(sandbox_id, f"/repl/sessions/{segment(check.text('context id', context_id))}{rest}")


# Sandboxes


def create_sandbox(
    *,
    template: str,
    from_snapshot: Optional[str],
    ttl_seconds: Optional[int],
    idle_timeout_seconds: Optional[int],
    persistent: bool,
    metadata: Optional[Dict[str, str]],
    envs: Optional[Dict[str, str]],
    cpu: Optional[float],
    memory_mb: Optional[int],
    disk_mb: Optional[int],
    pids: Optional[int],
    network: Any,
    secrets: Any,
    tools: Any,
    volumes: Any,
    reseed: bool,
    idempotency_key: Optional[str],
) -> Request:
    body: Dict[str, Any] = {"volumes": volumes}
    if tools is not None:
        body["tools"] = check.mapping("tools", tools)
    if from_snapshot is not None:
        body["from_snapshot"] = check.text("from_snapshot", from_snapshot)
    else:
        body["template"] = check.text("template", template)
    for name, value in (("ttl_seconds", ttl_seconds), ("idle_timeout_seconds", idle_timeout_seconds)):
        if value is not None:
            body[name] = check.whole(name, value)
    body.update(_of_new(cpu, memory_mb, disk_mb, pids, envs, network, secrets))
    if check.flag("persistent", persistent):
        body["persistent"] = True
    if not check.flag("reseed", reseed):
        body["reseed"] = False
    if metadata is not None:
        body["metadata"] = check.strings("metadata", metadata)
    request = Request("POST", "/sandboxes", body=_clean(body), read_seconds=CREATE_SECONDS, repeatable=True)
    key = str(uuid.uuid4()) if idempotency_key is None else check.text("idempotency_key", idempotency_key)
    request.headers["Idempotency-Key"] = key
    return request


def _of_new(
    cpu: Optional[float],
    memory_mb: Optional[int],
    disk_mb: Optional[int],
    pids: Optional[int],
    envs: Optional[Dict[str, str]],
    network: Any,
    secrets: Any,
) -> Dict[str, Any]:
    """What only a new sandbox is given."""
    body: Dict[str, Any] = {}
    for name, value in (("memory_mb", memory_mb), ("disk_mb", disk_mb), ("pids", pids)):
        if value is not None:
            body[name] = check.whole(name, value)
    if cpu is not None:
        body["cpu"] = check.number("cpu", cpu)
    if envs is not None:
        body["envs"] = check.strings("envs", envs)
    if network is not None:
        body["network"] = check.mapping("network", network)
    if secrets is not None:
        body["secrets"] = check.mapping("secrets", secrets)
    return body


def get_sandbox(sandbox_id: str) -> Request:
    return Request("GET", _sandbox(sandbox_id), repeatable=True)


def list_sandboxes(
    metadata: Optional[Dict[str, str]], status: Optional[str], template: Optional[str], limit: int, cursor: Optional[str]
) -> Request:
    request = Request("GET", "/sandboxes", repeatable=True)
    for key, value in check.strings("metadata", metadata or {}).items():
        request.query.append((f"metadata.{key}", value))
    if status is not None:
        request.query.append(("status", check.text("status", status)))
    if template is not None:
        request.query.append(("template", check.text("template", template)))
    request.query.append(("limit", str(limit)))
    request.query.append(("cursor", cursor))
    return request


def kill_sandbox(sandbox_id: str) -> Request:
    return Request("DELETE", _sandbox(sandbox_id), read_seconds=60.0, repeatable=True)


def get_lifecycle(sandbox_id: str) -> Request:
    return Request("GET", _sandbox(sandbox_id, "/lifecycle"), repeatable=True)


def get_metrics(sandbox_id: str) -> Request:
    return Request("GET", _sandbox(sandbox_id, "/metrics"), repeatable=True)


def set_lifecycle(
    sandbox_id: str,
    ttl_seconds: Optional[int] = None,
    idle_timeout_seconds: Optional[int] = None,
    persistent: Optional[bool] = None,
) -> Request:
    body: Dict[str, Any] = {}
    if ttl_seconds is not None:
        body["ttl_seconds"] = check.whole("ttl_seconds", ttl_seconds)
    if idle_timeout_seconds is not None:
        body["idle_timeout_seconds"] = check.whole("idle_timeout_seconds", idle_timeout_seconds, least=0)
    if persistent is not None:
        body["persistent"] = check.flag("persistent", persistent)
    return Request("PATCH", _sandbox(sandbox_id, "/lifecycle"), body=body, repeatable=True)


def change_state(sandbox_id: str, verb: str) -> Request:
    """`verb` is pause, resume or wake; saying one twice changes nothing."""
    return Request("POST", _sandbox(sandbox_id, f"/{verb}"), read_seconds=SNAPSHOT_SECONDS)


def hibernate(sandbox_id: str, carry_running: bool) -> Request:
    body = {"carry_running": True} if check.flag("carry_running", carry_running) else None
    return Request("POST", _sandbox(sandbox_id, "/hibernate"), body=body, read_seconds=SNAPSHOT_SECONDS)


def snapshot(
    sandbox_id: str,
    name: Optional[str],
    metadata: Optional[Dict[str, str]],
    carry_running: bool = False,
    ttl_seconds: Optional[int] = None,
) -> Request:
    body: Dict[str, Any] = {}
    if ttl_seconds is not None:
        body["ttl_seconds"] = check.whole("ttl_seconds", ttl_seconds, least=0)
    if check.flag("carry_running", carry_running):
        body["carry_running"] = True
    if name is not None:
        body["name"] = check.text("name", name)
    if metadata is not None:
        body["metadata"] = check.strings("metadata", metadata)
    return Request("POST", _sandbox(sandbox_id, "/snapshots"), body=body or None, read_seconds=SNAPSHOT_SECONDS)


def fork(
    sandbox_id: str,
    verb: str,
    count: Optional[int],
    metadata: Optional[Dict[str, str]],
    envs: Optional[Dict[str, str]],
    ttl_seconds: Optional[int],
    reseed: bool,
    carry_running: bool,
) -> Request:
    """`verb` is fork or fork-tree."""
    body: Dict[str, Any] = {}
    if check.flag("carry_running", carry_running):
        body["carry_running"] = True
    if not check.flag("reseed", reseed):
        body["reseed"] = False
    if count is not None:
        body["count"] = check.whole("count", count)
    if ttl_seconds is not None:
        body["ttl_seconds"] = check.whole("ttl_seconds", ttl_seconds)
    if metadata is not None:
        body["metadata"] = check.strings("metadata", metadata)
    if envs is not None:
        body["envs"] = check.strings("envs", envs)
    return Request("POST", _sandbox(sandbox_id, f"/{verb}"), body=body or None, read_seconds=SNAPSHOT_SECONDS)


def promote(sandbox_id: str, cleanup_siblings: bool, tree_id: Optional[str]) -> Request:
    body: Dict[str, Any] = {"cleanup_siblings": check.flag("cleanup_siblings", cleanup_siblings)}
    if tree_id is not None:
        body["tree_id"] = check.text("tree_id", tree_id)
    return Request("POST", _sandbox(sandbox_id, "/promote"), body=body, read_seconds=SNAPSHOT_SECONDS)


def signed_preview(sandbox_id: str, port: int, ttl_seconds: int, paths: Optional[Sequence[str]]) -> Request:
    body: Dict[str, Any] = {"port": check.port(port), "ttl_seconds": check.whole("ttl_seconds", ttl_seconds)}
    if paths is not None:
        body["paths"] = check.texts("paths", paths)
    return Request("POST", _sandbox(sandbox_id, "/preview-token"), body=body)


def ports(sandbox_id: str) -> Request:
    return Request("GET", _sandbox(sandbox_id, "/ports"), repeatable=True)


def get_network(sandbox_id: str) -> Request:
    return Request("GET", _sandbox(sandbox_id, "/network"), repeatable=True)


def set_network(sandbox_id: str, policy: Any, secrets: Any) -> Request:
    body: Dict[str, Any] = {}
    if policy is not None:
        body["policy"] = check.mapping("policy", policy)
    if secrets is not None:
        body["secrets"] = check.mapping("secrets", secrets)
    return Request("PATCH", _sandbox(sandbox_id, "/network"), body=body, repeatable=True)


def network_log(sandbox_id: str, tail: int, follow: bool) -> Request:
    query = [("tail", str(check.whole("tail", tail, least=0))), ("follow", "1" if follow else None)]
    seconds = QUIET_SECONDS if follow else ANSWER_SECONDS
    return Request(
        "GET",
        _sandbox(sandbox_id, "/network/log"),
        query=query,
        accept=EVENTS if follow else "application/json",
        read_seconds=seconds,
        repeatable=True,
    )


def list_tools(sandbox_id: str) -> Request:
    return Request("GET", _sandbox(sandbox_id, "/tools"), repeatable=True)


def put_tools(sandbox_id: str, tools: Dict[str, Any]) -> Request:
    return Request("PUT", _sandbox(sandbox_id, "/tools"), body=tools, read_seconds=CREATE_SECONDS, repeatable=True)


def tool_calls(sandbox_id: str, limit: int) -> Request:
    query: List[Tuple[str, Optional[str]]] = [("limit", str(check.whole("limit", limit, least=0)))]
    return Request("GET", _sandbox(sandbox_id, "/tools/calls"), query=query, repeatable=True)


def connect_tools(sandbox_id: str) -> str:
    return _sandbox(sandbox_id, "/tools/connect")


def connect_agent(run_id: str) -> str:
    return f"/agents/{segment(check.text('id', run_id))}/connect"


def list_approvals(sandbox_id: Optional[str], agent_id: Optional[str], status: Optional[str]) -> Request:
    given = (("sandbox_id", sandbox_id), ("agent_id", agent_id), ("status", status))
    query: List[Tuple[str, Optional[str]]] = [(name, check.text(name, value)) for name, value in given if value is not None]
    return Request("GET", "/approvals", query=query, repeatable=True)


def get_approval(id: str) -> Request:
    return Request("GET", f"/approvals/{segment(check.text('id', id))}", repeatable=True)


def decide_approval(id: str, approve: bool, reason: str) -> Request:
    body = {"approve": check.flag("approve", approve), "reason": check.text("reason", reason, empty=True)}
    return Request("POST", f"/approvals/{segment(check.text('id', id))}", body=body)


def list_secrets() -> Request:
    return Request("GET", "/secrets", repeatable=True)


def put_secret(name: str, value: str) -> Request:
    return Request("PUT", f"/secrets/{segment(check.text('name', name))}", body={"value": check.text("value", value)}, repeatable=True)


def delete_secret(name: str) -> Request:
    return Request("DELETE", f"/secrets/{segment(check.text('name', name))}")


def name_port(sandbox_id: str, port: int, label: str, public: bool) -> Request:
    body = {"port": check.port(port), "label": check.text("label", label, empty=True), "public": check.flag("public", public)}
    return Request("POST", _sandbox(sandbox_id, "/ports"), body=body, repeatable=True)


def forget_port(sandbox_id: str, port: int) -> Request:
    return Request("DELETE", _sandbox(sandbox_id, f"/ports/{check.port(port)}"))


def logs(sandbox_id: str, stream: str, follow: bool) -> Request:
    if stream not in ("stdout", "stderr", "both"):
        raise ValueError(f"stream must be 'stdout', 'stderr' or 'both', not {stream!r}")
    query: List[Any] = [("stream", stream), ("follow", "1" if follow else "0")]
    request = Request("GET", _sandbox(sandbox_id, "/logs"), query, repeatable=True, accept="text/plain")
    if follow:
        request.read_seconds, request.accept = QUIET_SECONDS, EVENTS
    return request


def events(sandbox_id: Optional[str], tail: int, after: Optional[int], follow: bool) -> Request:
    path = "/events" if sandbox_id is None else _sandbox(sandbox_id, "/events")
    request = Request("GET", path, [("tail", str(check.whole("tail", tail, least=0)))], repeatable=True)
    if after is not None:
        request.query = [("after", str(check.whole("after", after, least=0)))]
    if check.flag("follow", follow):
        request.query.append(("follow", "1"))
        request.read_seconds, request.accept = QUIET_SECONDS, EVENTS
    return request


# Commands and processes


def exec_command(
    sandbox_id: str,
    cmd: Command,
    *,
    timeout_seconds: float,
    cwd: str,
    envs: Optional[Dict[str, str]],
    user: Union[None, str, int],
    stdin: Optional[str],
    execution_id: str,
    attach: bool,
) -> Request:
    """With `attach` it follows the command when it was started already; only then may it be sent again."""
    body = _command(cmd, cwd, envs, user)
    body["timeout_seconds"] = check.seconds("timeout_seconds", timeout_seconds)
    body["stdin"] = check.stdin(stdin)
    body["execution_id"] = execution_id
    body["attach"] = True if attach else None
    return Request(
        "POST",
        _sandbox(sandbox_id, "/exec"),
        body=_clean(body),
        read_seconds=timeout_seconds + MARGIN_SECONDS,
        repeatable=attach,
        runs_code=True,
    )


def start_process(
    sandbox_id: str,
    cmd: Command,
    *,
    timeout_seconds: Optional[float],
    cwd: str,
    envs: Optional[Dict[str, str]],
    user: Union[None, str, int],
    stdin: bool,
    tag: Optional[str],
    pty: Optional[Tuple[int, int]] = None,
) -> Request:
    body = _command(cmd, cwd, envs, user)
    if pty is not None:
        body["pty"] = _size(*pty)
    if timeout_seconds is not None:
        body["timeout_ms"] = _milliseconds(timeout_seconds)
    if stdin:
        body["stdin"] = True
    if tag is not None:
        body["tag"] = check.text("tag", tag)
    return Request("POST", _sandbox(sandbox_id, "/processes"), body=_clean(body))


def _command(
    cmd: Command, cwd: str, envs: Optional[Dict[str, str]], user: Union[None, str, int]
) -> Dict[str, Any]:
    body: Dict[str, Any] = {"cmd": check.command(cmd), "cwd": check.text("cwd", cwd)}
    if envs is not None:
        body["envs"] = check.strings("envs", envs)
    if user is not None:
        body["user"] = str(check.whole("user", user, least=0)) if isinstance(user, int) else check.text("user", user)
    return body


def _process(sandbox_id: str, pid: int, rest: str = "") -> str:
    return _sandbox(sandbox_id, f"/processes/{check.whole('pid', pid)}{rest}")


def list_processes(sandbox_id: str) -> Request:
    return Request("GET", _sandbox(sandbox_id, "/processes"), repeatable=True)


def get_process(sandbox_id: str, pid: int) -> Request:
    return Request("GET", _process(sandbox_id, pid), repeatable=True)


def kill_process(sandbox_id: str, pid: int) -> Request:
    return Request("DELETE", _process(sandbox_id, pid), repeatable=True)


def signal_process(sandbox_id: str, pid: int, signal: Union[str, int]) -> Request:
    word = str(check.whole("signal", signal)) if isinstance(signal, int) else check.text("signal", signal)
    return Request("POST", _process(sandbox_id, pid, "/signal"), body={"signal": word})


def _size(rows: int, cols: int) -> Dict[str, Any]:
    return {"rows": check.whole("rows", rows), "cols": check.whole("cols", cols)}


def resize_process(sandbox_id: str, pid: int, rows: int, cols: int) -> Request:
    return Request("POST", _process(sandbox_id, pid, "/resize"), body=_size(rows, cols), repeatable=True)


def write_stdin(sandbox_id: str, pid: int, data: Union[str, bytes, bytearray, memoryview, Upload]) -> Request:
    return Request("POST", _process(sandbox_id, pid, "/stdin"), body=_content(data), read_seconds=LONG_SECONDS)


def close_stdin(sandbox_id: str, pid: int) -> Request:
    return Request("DELETE", _process(sandbox_id, pid, "/stdin"), repeatable=True)


def stream_process(sandbox_id: str, pid: int, after: int) -> Request:
    return Request(
        "GET",
        _process(sandbox_id, pid, "/stream"),
        [("after", str(after))],
        read_seconds=QUIET_SECONDS,
        repeatable=True,
        accept=EVENTS,
    )


# Code contexts


def create_context(
    sandbox_id: str, language: str, cwd: str, envs: Optional[Dict[str, str]], id: Optional[str]
) -> Request:
    body: Dict[str, Any] = {"language": check.language(language), "cwd": check.text("cwd", cwd)}
    if id is not None:
        body["id"] = check.text("id", id)
    if envs is not None:
        body["envs"] = check.strings("envs", envs)
    return Request("POST", _sandbox(sandbox_id, "/repl/sessions"), body=body, read_seconds=60.0)


def list_contexts(sandbox_id: str) -> Request:
    return Request("GET", _sandbox(sandbox_id, "/repl/sessions"), repeatable=True)


def get_context(sandbox_id: str, context_id: str) -> Request:
    return Request("GET", _context(sandbox_id, context_id), repeatable=True)


def close_context(sandbox_id: str, context_id: str) -> Request:
    return Request("DELETE", _context(sandbox_id, context_id), repeatable=True)


def interrupt_context(sandbox_id: str, context_id: str) -> Request:
    return Request("POST", _context(sandbox_id, context_id, "/interrupt"))


def restart_context(sandbox_id: str, context_id: str) -> Request:
    return Request("POST", _context(sandbox_id, context_id, "/restart"), read_seconds=60.0)


def fork_context(sandbox_id: str, context_id: str, count: Optional[int]) -> Request:
    body = {"count": 1 if count is None else check.whole("count", count)}
    return Request("POST", _context(sandbox_id, context_id, "/fork"), body=body, read_seconds=60.0)


def run(
    sandbox_id: str,
    context_id: str,
    code: str,
    *,
    timeout_seconds: float,
    execution_id: str,
    detach: bool,
    stream: bool,
) -> Request:
    body: Dict[str, Any] = {
        "code": check.text("code", code, empty=True),
        "timeout_ms": _milliseconds(timeout_seconds),
        "execution_id": check.text("execution_id", execution_id),
    }
    if check.flag("detach", detach):
        body["detach"] = True
    return Request(
        "POST",
        _context(sandbox_id, context_id, "/run/stream" if stream else "/run"),
        body=body,
        read_seconds=QUIET_SECONDS if stream else timeout_seconds + MARGIN_SECONDS,
        runs_code=True,
        accept=EVENTS if stream else "application/json",
    )


def attach(sandbox_id: str, context_id: str, execution_id: str, after: int) -> Request:
    execution = segment(check.text("execution_id", execution_id))
    return Request(
        "GET",
        _context(sandbox_id, context_id, f"/executions/{execution}"),
        [("after", str(check.whole("after", after, least=0)))],
        read_seconds=QUIET_SECONDS,
        repeatable=True,
        runs_code=True,
        accept=EVENTS,
    )


def list_languages(sandbox_id: str) -> Request:
    return Request("GET", _sandbox(sandbox_id, "/repl/languages"), repeatable=True)


def run_once(sandbox_id: str, language: str, code: str, timeout_seconds: float) -> Request:
    body = {
        "language": language,
        "code": check.text("code", code, empty=True),
        "timeout_ms": _milliseconds(timeout_seconds),
    }
    return Request(
        "POST",
        _sandbox(sandbox_id, "/repl"),
        body=body,
        read_seconds=timeout_seconds + MARGIN_SECONDS,
        runs_code=True,
    )


def _milliseconds(timeout_seconds: float) -> int:
    return max(1, round(check.seconds("timeout_seconds", timeout_seconds) * 1000))


# Files


def _fs(sandbox_id: str, method: str, rest: str, path: str, **more: Any) -> Request:
    return Request(method, _sandbox(sandbox_id, f"/fs{rest}"), [("path", check.text("path", path))], **more)


def read_file(sandbox_id: str, path: str, start: Optional[int] = None, end: Optional[int] = None) -> Request:
    request = _fs(sandbox_id, "GET", "", path, read_seconds=QUIET_SECONDS, repeatable=True, accept="*/*")
    if start is not None or end is not None:
        request.headers["Range"] = check.byte_range(start, end)
    return request


def _content(data: Union[str, bytes, bytearray, memoryview, Upload]) -> Union[bytes, Upload]:
    if isinstance(data, str):
        return data.encode("utf-8")
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if callable(getattr(data, "read", None)):
        return data
    raise TypeError(f"data must be str, bytes or an open file, not {type(data).__name__}")


def write_file(
    sandbox_id: str,
    path: str,
    data: Union[str, bytes, bytearray, memoryview, Upload],
    mode: Union[None, int, str],
    append: bool,
) -> Request:
    body = _content(data)
    # A file that was read to its end can't be read again, and what was appended is there: neither is sent twice.
    again = isinstance(body, bytes) and not check.flag("append", append)
    method = "POST" if append else "PUT"  # an HTTP client may send a PUT again by itself
    request = _fs(sandbox_id, method, "", path, body=body, read_seconds=QUIET_SECONDS, repeatable=again)
    if mode is not None:
        request.query.append(("mode", check.permissions("mode", mode)))
    return request


def remove_file(sandbox_id: str, path: str, recursive: bool) -> Request:
    request = _fs(sandbox_id, "DELETE", "", path, repeatable=True)
    if check.flag("recursive", recursive):
        request.query.append(("recursive", "1"))
    return request


def stat_file(sandbox_id: str, path: str) -> Request:
    return _fs(sandbox_id, "GET", "/stat", path, repeatable=True)


def list_dir(sandbox_id: str, path: str, after: str = "") -> Request:
    request = _fs(sandbox_id, "GET", "/dir", path, read_seconds=QUIET_SECONDS, repeatable=True)
    if after:
        request.query.append(("after", after))
    return request


def read_tar(sandbox_id: str, path: str) -> Request:
    return _fs(sandbox_id, "GET", "/tar", path, read_seconds=QUIET_SECONDS, repeatable=True, accept="*/*")


def write_tar(sandbox_id: str, path: str, stream: Upload) -> Request:
    return _fs(sandbox_id, "PUT", "/tar", path, body=stream, read_seconds=QUIET_SECONDS)


def make_dir(sandbox_id: str, path: str) -> Request:
    return Request("POST", _sandbox(sandbox_id, "/fs/dir"), body={"path": check.unicode("path", path)}, repeatable=True)


def move_file(sandbox_id: str, source: str, target: str, overwrite: bool) -> Request:
    body: Dict[str, Any] = {"from": check.unicode("source", source), "to": check.unicode("target", target)}
    if check.flag("overwrite", overwrite):
        body["overwrite"] = True
    return Request("POST", _sandbox(sandbox_id, "/fs/move"), body=body)


def watch_files(sandbox_id: str, path: str, recursive: bool, watch_id: str) -> Request:
    request = _fs(
        sandbox_id, "GET", "/watch", path, read_seconds=QUIET_SECONDS, repeatable=True, accept=EVENTS
    )
    if check.flag("recursive", recursive):
        request.query.append(("recursive", "1"))
    request.query.append(("watch_id", watch_id))
    return request


def file_link(sandbox_id: str, path: str, method: str, ttl_seconds: int, max_bytes: Optional[int] = None) -> Request:
    body: Dict[str, Any] = {"path": check.unicode("path", path), "method": method}
    body["ttl_seconds"] = check.whole("ttl_seconds", ttl_seconds)
    if max_bytes is not None:
        body["max_bytes"] = check.whole("max_bytes", max_bytes)
    return Request("POST", _sandbox(sandbox_id, "/fs/link"), body=body)


# The account and what it can use


def me() -> Request:
    return Request("GET", "/me", repeatable=True)


def version() -> Request:
    return Request("GET", "/version", repeatable=True)


def list_tokens(workspace: Optional[str]) -> Request:
    return Request("GET", "/me/tokens", [("workspace", workspace)], repeatable=True)


def create_token(
    label: str,
    expires_in_days: Optional[int],
    scopes: Optional[List[str]],
    expires_at: Optional[datetime],
    workspace: Optional[str],
) -> Request:
    body: Dict[str, Any] = {"label": check.text("label", label, empty=True)}
    if expires_in_days is not None:
        body["expires_in_days"] = check.whole("expires_in_days", expires_in_days)
    if scopes is not None:
        body["scopes"] = check.texts("scopes", scopes)
    if expires_at is not None:
        body["expires_at"] = check.moment("expires_at", expires_at)
    if workspace is not None:
        body["workspace"] = check.text("workspace", workspace)
    return Request("POST", "/me/tokens", body=body)


def delete_token(prefix: str) -> Request:
    return Request("DELETE", f"/me/tokens/{segment(check.text('prefix', prefix))}", repeatable=True)


def list_templates() -> Request:
    return Request("GET", "/templates", repeatable=True)


def get_template(name: str) -> Request:
    return Request("GET", f"/templates/{segment(check.text('name', name))}", repeatable=True)


def list_snapshots(sandbox_id: Optional[str]) -> Request:
    query: List[Any] = [("sandbox_id", sandbox_id)]
    return Request("GET", "/snapshots", query, repeatable=True)


def get_snapshot(snapshot_id: str) -> Request:
    return Request("GET", f"/snapshots/{segment(check.text('snapshot id', snapshot_id))}", repeatable=True)


def update_snapshot(
    snapshot_id: str, name: Optional[str], metadata: Optional[Dict[str, str]], ttl_seconds: Optional[int] = None
) -> Request:
    body: Dict[str, Any] = {}
    if ttl_seconds is not None:
        body["ttl_seconds"] = check.whole("ttl_seconds", ttl_seconds, least=0)
    if name is not None:
        body["name"] = check.text("name", name, empty=True)
    if metadata is not None:
        body["metadata"] = check.strings("metadata", metadata)
    path = f"/snapshots/{segment(check.text('snapshot id', snapshot_id))}"
    return Request("PATCH", path, body=body, repeatable=True)


def export_snapshot(snapshot_id: str) -> Request:
    path = f"/snapshots/{segment(check.text('snapshot id', snapshot_id))}/export"
    return Request("GET", path, read_seconds=SNAPSHOT_SECONDS, repeatable=True, accept="*/*")


def import_snapshot(archive: Union[bytes, Upload], name: Optional[str]) -> Request:
    query: List[Any] = [("name", None if name is None else check.text("name", name))]
    return Request("POST", "/snapshots", query, body=_content(archive), read_seconds=SNAPSHOT_SECONDS)


def delete_snapshot(snapshot_id: str) -> Request:
    request = Request("DELETE", f"/snapshots/{segment(check.text('snapshot id', snapshot_id))}", repeatable=True)
    request.read_seconds = max(ANSWER_SECONDS, 60.0)
    return request


# Agents


def agent_sandbox(
    template: Optional[str],
    from_snapshot: Optional[str],
    cpu: Optional[float],
    memory_mb: Optional[int],
    disk_mb: Optional[int],
    pids: Optional[int],
    envs: Optional[Dict[str, str]],
    network: Any,
    secrets: Any,
) -> Dict[str, Any]:
    """The part of an agent's options that is of its new sandbox."""
    body = _of_new(cpu, memory_mb, disk_mb, pids, envs, network, secrets)
    if template is not None:
        body["template"] = check.text("template", template)
    if from_snapshot is not None:
        body["from_snapshot"] = check.text("from_snapshot", from_snapshot)
    return body


def start_agent(
    task: str,
    files: Dict[str, bytes],
    metadata: Optional[Dict[str, str]],
    model_key: Optional[str],
    options: Dict[str, Any],
) -> Request:
    body = {**options, "task": check.text("task", task)}
    body["files"] = [{"path": name, "content": base64.b64encode(data).decode()} for name, data in files.items()] or None
    body["metadata"] = None if metadata is None else check.strings("metadata", metadata)
    request = Request("POST", "/agents", body=_clean(body))
    if model_key is not None:
        request.headers["X-Model-Key"] = check.text("model_key", model_key)
    return request


def replay_agent(run_id: str, keep: Optional[str], secrets: Any, sandbox_id: Optional[str], follows: Optional[str]) -> Request:
    body: Dict[str, Any] = {"replay_of": check.text("run id", run_id)}
    for name, value in {"keep": keep, "sandbox_id": sandbox_id, "follows": follows}.items():
        if value is not None:
            body[name] = check.text(name, value)
    if secrets is not None:
        body["secrets"] = check.mapping("secrets", secrets)
    return Request("POST", "/agents", body=body)


def fork_agent(
    run_id: str,
    at: int,
    task: Optional[str],
    metadata: Optional[Dict[str, str]],
    model_key: Optional[str],
    options: Dict[str, Any],
) -> Request:
    if isinstance(at, bool) or not isinstance(at, int):
        raise TypeError(f"at must be the number of a turn, not {at!r}")
    fork: Dict[str, Any] = {"of": check.text("run id", run_id), "at": at}
    if task is not None:
        fork["task"] = check.text("task", task)
    body = {**options, "fork": fork, "metadata": None if metadata is None else check.strings("metadata", metadata)}
    request = Request("POST", "/agents", body=_clean(body))
    if model_key is not None:
        request.headers["X-Model-Key"] = check.text("model_key", model_key)
    return request


def _agent(run_id: str, rest: str = "") -> str:
    return f"/agents/{segment(check.text('run id', run_id))}{rest}"


def get_agent(run_id: str) -> Request:
    return Request("GET", _agent(run_id), repeatable=True)


def list_agents(limit: int) -> Request:
    return Request("GET", "/agents", [("limit", str(check.whole("limit", limit)))], repeatable=True)


def agent_events(run_id: str, after: int) -> Request:
    query: List[Any] = [("after", str(check.whole("after", after, least=0)))]
    return Request("GET", _agent(run_id, "/events"), query, read_seconds=QUIET_SECONDS, repeatable=True, accept=EVENTS)


def agent_transcript(run_id: str) -> Request:
    return Request("GET", _agent(run_id, "/events"), repeatable=True)


def cancel_agent(run_id: str) -> Request:
    return Request("POST", _agent(run_id, "/cancel"), read_seconds=SNAPSHOT_SECONDS, repeatable=True)


def delete_agent(run_id: str) -> Request:
    return Request("DELETE", _agent(run_id), repeatable=True)


def agent_notebook(run_id: str) -> Request:
    return Request("GET", _agent(run_id, "/notebook"), repeatable=True, accept="application/x-ipynb+json")


def agent_report(run_id: str) -> Request:
    return Request("GET", _agent(run_id, "/report"), repeatable=True, accept="text/html")


def agent_figure(run_id: str, file: str) -> Request:
    return Request("GET", _agent(run_id, f"/figures/{segment(check.text('file', file))}"), repeatable=True, accept="image/*")
