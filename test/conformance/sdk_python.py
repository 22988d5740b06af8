"""The Python SDK behind the conformance programme's operations: a line of JSON in, a line of JSON out.

An operation is ``{"op": name, "args": {…}}``; the answer is ``{"value": …}`` or ``{"error": {…}}``, in the names of the
API. The other SDKs have the same beside this.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import json
import os
import sys
import tempfile
import threading
import time
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, List

import pandastack as p

client = p.Client(reconnect_seconds=20)


def plain(value: Any) -> Any:
    """What the SDK gave, as JSON in the names of the API."""
    if isinstance(value, p.Execution):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name != "results"}
        metas = [{"is_last_expression": r.is_last_expression, "metadata": r.metadata} for r in value.results]
        return plain({**fields, "results": [r.data for r in value.results], "results_meta": metas})
    if isinstance(value, p.Event):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name not in ("result", "data")}
        if value.result is not None:
            fields.update(data=value.result.data, is_last_expression=value.result.is_last_expression, metadata=value.result.metadata)
        return plain({**fields, **value.data})
    if isinstance(value, p.FileEvent):
        return {**{n: v for n, v in vars(value).items() if n != "from_path"}, "from": value.from_path}
    if isinstance(value, p.FileInfo):
        return plain({**dataclasses.asdict(value), "modified_at": value.mtime, "mtime": None})
    if isinstance(value, p.ProcessInfo):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name not in ("exit_code", "reason")}
        return plain({**fields, "pty": value.pty and dict(zip(("rows", "cols"), value.pty))})
    if isinstance(value, p.Sandbox):
        return plain(value.info)
    if isinstance(value, p.SnapshotID):
        return plain({"id": value.id, **vars(value)})
    if isinstance(value, p.Port):
        return {"port": int(value), **vars(value)}
    if isinstance(value, p.CodeContext):
        return {"id": value.id, "language": value.language, "warnings": value.warnings}
    if isinstance(value, p.AgentRun):
        return plain(value.info)
    if isinstance(value, p.AgentEvent):
        return value.data
    if isinstance(value, p.Process):
        return {"pid": value.pid}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name != "raw"}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if name != "raw"}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


KINDS = {
    p.AuthError: "auth", p.NotFoundError: "not_found", p.ConflictError: "conflict", p.RateLimitError: "rate_limited",
    p.BadRequestError: "bad_request", p.CapacityError: "capacity", p.ServerError: "server", p.SandboxTimeout: "timeout",
    p.CommandError: "command", p.APIConnectionError: "connection", p.ExploreError: "explore",
}


def failure(error: p.PandastackError) -> Dict[str, Any]:
    names = ("status_code", "code", "hint", "field", "request_id", "retry_after", "stdout", "stderr", "exit_code")
    return {"kind": KINDS[type(error)], "message": str(error), **{n: getattr(error, n, None) for n in names}}


def sandbox(args: Dict[str, Any]) -> p.Sandbox:
    return p.Sandbox(client, p.SandboxInfo(id=args.pop("sandbox")))


def context(args: Dict[str, Any]) -> p.CodeContext:
    return p.CodeContext(client, args.pop("sandbox"), args.pop("context"))


def process(args: Dict[str, Any]) -> p.Process:
    return sandbox(args).commands.connect(args.pop("pid"))


def data(args: Dict[str, Any]) -> bytes:
    return base64.b64decode(args.pop("data"))


def followed(run: Callable[..., Any], args: Dict[str, Any]) -> Any:
    """A call with callbacks, and what they heard."""
    heard: list[Any] = []
    names = args.pop("hear")
    value = run(**args, **{f"on_{n}": lambda x, n=n: heard.append([n, x if isinstance(x, str) else x.data]) for n in names})
    return {"value": plain(value), "heard": heard}


def explored(found: p.Exploration) -> Any:
    names = {"stdout": "stdout_tail", "stderr": "stderr_tail"}
    outcomes = [{names.get(k, k): v for k, v in plain(o).items()} for o in found.outcomes]
    return {"winner": found.winner.id, "index": found.winner_outcome.index, "tree_id": found.tree_id, "outcomes": outcomes,
            "reaped": found.reaped, "reap_failures": found.reap_failures, "errors": found.errors}


def upto(events: Callable[..., Any], args: Dict[str, Any], **more: Any) -> Any:
    """So many of an endless stream."""
    count = args.pop("count")
    return list(islice(events(**args, **more), count))


def copied_snapshot(args: Dict[str, Any]) -> Any:
    """Out into a file here, and in again."""
    with tempfile.TemporaryDirectory() as here:
        archive = Path(here, "archive")
        size = client.snapshots.export_archive(args.pop("id"), archive)
        assert size == archive.stat().st_size
        return client.snapshots.import_archive(archive, **args)


def watched(args: Dict[str, Any]) -> Any:
    """So many changes, the first of which may be one that is made here."""
    files, write, count = sandbox(args).filesystem, args.pop("write", None), args.pop("count")
    with files.watch(**args) as watch:
        if write:
            files.write(write, b"x")
        return list(islice(watch, count))


def create_token(a: Dict[str, Any]) -> Any:
    if "expires_at" in a:
        a["expires_at"] = datetime.fromisoformat(a["expires_at"].replace("Z", "+00:00"))
    return client.tokens.create(**a)


def with_tools(a: Dict[str, Any]) -> Dict[str, Any]:
    """Tools as they travel become those that the SDK takes."""
    if "tools" not in a:
        return a
    wire = a.pop("tools")
    for service in (s for kind in ("http", "mcp") for s in wire.get(kind, {}).values() if "headers" in s):
        service["headers"] = {name: header.get("value", header) for name, header in service["headers"].items()}
    http = [p.OpenAPI(name, s.pop("openapi", None), **s) for name, s in wire.get("http", {}).items()]
    mcp = [p.MCPServer(name, **s) for name, s in wire.get("mcp", {}).items()]
    return {**a, "tools": [*http, *mcp, *wire.get("use", [])], "tool_policy": wire.get("policy")}


def set_tools(a: Dict[str, Any]) -> Any:
    a = with_tools(a)
    return sandbox(a).tools.set(a["tools"], policy=a["tool_policy"])


served: Dict[str, p.Sandbox] = {}  # whose functions are here


def serve_tools(a: Dict[str, Any]) -> Any:
    """Gives a sandbox functions of this program."""

    @p.tool(risky=True)
    def add(a: float, b: float) -> Any:
        """Add."""
        return {"sum": a + b}

    def fail(why: str) -> None:
        raise Unfit(why)

    at = sandbox(a)
    served[at.id] = at
    return [{"name": t.name, "source": t.source, "risky": t.risky} for t in at.tools.set([add, {"ns": [fail]}], policy=a["policy"])]


class Unfit(Exception):
    kind = "unfit"

    def __str__(self) -> str:
        return "it does not fit"


def decided(a: Dict[str, Any]) -> Any:
    """Runs a cell that makes a call about which somebody is asked, and is that somebody."""
    at, done = sandbox(a), []
    cell = threading.Thread(target=lambda: done.append(at.run_code(a["code"])))
    cell.start()
    while not (waiting := at.tools.approvals()):
        time.sleep(0.05)
    approval = client.approvals.decide(waiting[0].id, a["approve"], a["reason"])
    cell.join()
    return {"waiting": plain(waiting[0]), "approval": plain(approval), "stdout": done[0].stdout}


def start_agent(a: Dict[str, Any]) -> Any:
    options, run = with_tools(a.pop("options")), ("task", "files", "sandbox_id", "data", "follows", "metadata")
    if "data_files" in a:  # "data" is bytes elsewhere
        a["data"] = a.pop("data_files")
    return p.Agent(**options).start(**{n: v for n, v in a.items() if n in run})


def functions_of_agents(a: Dict[str, Any]) -> Any:
    """A run whose code calls a function of this program, its fork, and the fork for which the function is missing."""
    calls: List[Any] = []

    def add(a: float, b: float) -> Any:
        calls.append([a, b])
        return {"sum": a + b}

    agent = p.Agent(**a["options"], tools=[add])
    run = agent.run(a["task"])
    again = agent.get(run.id).fork(2, **a["options"])
    differ = [e.data["forked"].get("differ", []) for e in again.transcript() if e.type == "forked"]
    try:
        p.Agent().get(run.id).fork(2, **a["options"])
        lacking = False
    except ValueError as error:
        lacking = ": add" in str(error)
    return {"answer": run.answer, "again": again.answer, "differ": differ[0], "calls": calls, "lacking": lacking}


def agent_run(a: Dict[str, Any]) -> p.AgentRun:
    return p.Agent().get(a.pop("id"))


def ended(run: p.AgentRun) -> Any:
    answer = run.wait()
    return {"answer": answer, "reason": run.reason}


def copied_dir(a: Dict[str, Any]) -> Any:
    """A folder is made here, goes in, and comes out into another."""
    files = sandbox(a).filesystem
    with tempfile.TemporaryDirectory() as here:
        make_tree(Path(here, "in"), a["tree"])
        sent = files.upload_dir(Path(here, "in"), a["path"])
        got = files.download_dir(a["path"], Path(here, "out"))
        return {"sent": plain(sent), "got": plain(got), "tree": seen_tree(Path(here, "out"))}


def make_tree(folder: Path, tree: Dict[str, Dict[str, Any]]) -> None:
    for name, entry in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if "link" in entry:
            path.symlink_to(entry["link"])
            continue
        path.write_text(entry["text"])
        path.chmod(int(entry.get("mode", "644"), 8))
        os.utime(path, (entry.get("mtime", 0), entry.get("mtime", 0)))


def seen_tree(folder: Path) -> Dict[str, Any]:
    tree: Dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            tree[name] = {"link": os.readlink(path)}
        elif path.is_file():
            tree[name] = {"text": path.read_text(), "mode": oct(path.stat().st_mode & 0o777)[2:], "mtime": int(path.stat().st_mtime)}
    return tree


OPS: Dict[str, Callable[[Dict[str, Any]], Any]] = {
    "version": lambda a: client.version(),
    "me": lambda a: client.me(),
    "events": lambda a: list(client.events(**a)),
    "tokens.list": lambda a: client.tokens.list(**a),
    "tokens.create": create_token,
    "tokens.revoke": lambda a: client.tokens.revoke(**a),
    "templates.list": lambda a: client.templates.list(),
    "templates.get": lambda a: client.templates.get(**a),
    "snapshots.list": lambda a: client.snapshots.list(**a),
    "snapshots.get": lambda a: client.snapshots.get(**a),
    "snapshots.update": lambda a: client.snapshots.update(**a),
    "snapshots.copied": copied_snapshot,
    "snapshots.delete": lambda a: client.snapshots.delete(**a),
    "sandboxes.create": lambda a: client.sandboxes.create(**with_tools(a)),
    "sandboxes.get": lambda a: client.sandboxes.get(**a),
    "sandboxes.list": lambda a: client.sandboxes.list(**a),
    "sandbox.kill": lambda a: sandbox(a).kill(),
    "sandbox.lifecycle": lambda a: sandbox(a).lifecycle(),
    "sandbox.set_lifecycle": lambda a: sandbox(a).set_lifecycle(**a),
    "sandbox.metrics": lambda a: sandbox(a).metrics(),
    "sandbox.pause": lambda a: sandbox(a).pause(),
    "sandbox.resume": lambda a: sandbox(a).resume(),
    "sandbox.hibernate": lambda a: sandbox(a).hibernate(**a),
    "sandbox.wake": lambda a: sandbox(a).wake(),
    "sandbox.snapshot": lambda a: sandbox(a).snapshot(**a),
    "sandbox.fork": lambda a: sandbox(a).fork(**a),
    "sandbox.fork_tree": lambda a: sandbox(a).fork_tree(**a),
    "sandbox.promote": lambda a: sandbox(a).promote(**a),
    "sandbox.explore": lambda a: explored(sandbox(a).explore([p.Candidate(**c) for c in a.pop("candidates")], **a)),
    "sandbox.events": lambda a: list(sandbox(a).events(**a)),
    "sandbox.follow_events": lambda a: upto(sandbox(a).events, a, follow=True),
    "sandbox.logs": lambda a: sandbox(a).logs(**a).splitlines(),
    "sandbox.follow_logs": lambda a: upto(sandbox(a).follow_logs, a),
    "sandbox.languages": lambda a: sandbox(a).languages(),
    "network.get": lambda a: sandbox(a).network.get(),
    "network.set": lambda a: sandbox(a).network.set(**a),
    "network.log": lambda a: sandbox(a).network.log(**a),
    "network.follow": lambda a: upto(sandbox(a).network.follow, a),
    "secrets.list": lambda a: client.secrets.list(),
    "secrets.set": lambda a: client.secrets.set(**a),
    "secrets.delete": lambda a: client.secrets.delete(**a),
    "tools.list": lambda a: sandbox(a).tools.list(),
    "tools.set": set_tools,
    "tools.serve": serve_tools,
    "tools.calls": lambda a: sandbox(a).tools.calls(**a),
    "tools.close": lambda a: served.pop(a["sandbox"]).tools.close(),
    "tools.decided": decided,
    "approvals.list": lambda a: client.approvals.list(**{**a, "status": a.get("status")}),
    "approvals.get": lambda a: client.approvals.get(**a),
    "approvals.decide": lambda a: client.approvals.decide(**a),
    "sandbox.ports": lambda a: sandbox(a).ports(),
    "sandbox.name_port": lambda a: sandbox(a).name_port(**a),
    "sandbox.forget_port": lambda a: sandbox(a).forget_port(**a),
    "sandbox.signed_preview_url": lambda a: sandbox(a).signed_preview_url(**a),
    "sandbox.run_code": lambda a: sandbox(a).run_code(**a),
    "sandbox.create_code_context": lambda a: sandbox(a).create_code_context(**a),
    "sandbox.contexts": lambda a: [c.id for c in sandbox(a).contexts()],
    "sandbox.exec": lambda a: sandbox(a).exec(**a),
    "context.run_code": lambda a: followed(context(a).run_code, a) if "hear" in a else context(a).run_code(**a),
    "context.stream": lambda a: list(context(a).stream(**a)),
    "context.attach": lambda a: list(context(a).attach(**a)),
    "context.interrupt": lambda a: context(a).interrupt(),
    "context.restart": lambda a: context(a).restart(),
    "context.fork": lambda a: context(a).fork(**a),
    "context.info": lambda a: context(a).info(),
    "context.close": lambda a: context(a).close(),
    "commands.run": lambda a: followed(sandbox(a).commands.run, a),
    "commands.start": lambda a: sandbox(a).commands.run(**a, background=True),
    "pty.create": lambda a: sandbox(a).pty.create(**a),
    "pty.resize": lambda a: sandbox(a).pty.connect(a.pop("pid")).resize(**a),
    "commands.list": lambda a: sandbox(a).commands.list(),
    "commands.kill": lambda a: sandbox(a).commands.kill(**a),
    "process.info": lambda a: process(a).info(),
    "process.wait": lambda a: process(a).wait(**a),
    "process.stream": lambda a: list(process(a).stream(**a)),
    "process.send_stdin": lambda a: process(a).send_stdin(data(a), **a),
    "process.close_stdin": lambda a: process(a).close_stdin(),
    "process.signal": lambda a: process(a).signal(**a),
    "process.kill": lambda a: process(a).kill(),
    "filesystem.read": lambda a: sandbox(a).filesystem.read(**a),
    "filesystem.write": lambda a: sandbox(a).filesystem.write(data=data(a), **a),
    "filesystem.list": lambda a: sandbox(a).filesystem.list(**a),
    "filesystem.stat": lambda a: sandbox(a).filesystem.stat(**a),
    "filesystem.exists": lambda a: sandbox(a).filesystem.exists(**a),
    "filesystem.mkdir": lambda a: sandbox(a).filesystem.mkdir(**a),
    "filesystem.move": lambda a: sandbox(a).filesystem.move(**a),
    "filesystem.remove": lambda a: sandbox(a).filesystem.remove(**a),
    "filesystem.copied_dir": copied_dir,
    "agents.start": start_agent,
    "agents.functions": functions_of_agents,
    "agents.get": agent_run,
    "agents.runs": lambda a: p.Agent().runs(**a),
    "agent.wait": lambda a: ended(agent_run(a)),
    "agent.events": lambda a: list(agent_run(a).events(**a)),
    "agent.transcript": lambda a: agent_run(a).transcript(),
    "agent.figure": lambda a: agent_run(a).figure(**a),
    "agent.notebook": lambda a: agent_run(a).notebook(),
    "agent.report": lambda a: agent_run(a).report(),
    "agent.refresh": lambda a: agent_run(a).refresh(),
    "agent.cancel": lambda a: agent_run(a).cancel(),
    "agent.delete": lambda a: agent_run(a).delete(),
    "filesystem.watch": watched,
    "filesystem.download_url": lambda a: sandbox(a).filesystem.download_url(**a),
    "filesystem.upload_url": lambda a: sandbox(a).filesystem.upload_url(**a),
}


def surface() -> Dict[str, Any]:
    """The public verbs of each noun, the errors, and the names of all arguments."""
    bare = p.Client(api_url="http://127.0.0.1:1")
    owners = [bare, p.Sandbox(bare, p.SandboxInfo(id="x"))]
    nouns = {type(value) for owner in owners for name, value in vars(owner).items() if not name.startswith("_")}
    errors = []
    for value in (getattr(p, name) for name in p.__all__):
        if not inspect.isclass(value) or value.__name__.startswith("Async"):
            continue
        if issubclass(value, Exception):
            errors.append(value.__name__)
        elif not dataclasses.is_dataclass(value):
            nouns.add(value)
    verbs = {c.__name__: [n for n in dir(c) if not n.startswith("_") and callable(getattr(c, n))] for c in nouns if c.__module__.startswith("pandastack._sync")}
    own = [getattr(c, verb) for c in nouns if c.__name__ in verbs for verb in ("__init__", *verbs[c.__name__])]
    options = {name for verb in own for name in inspect.signature(verb).parameters} - {"self"}
    return {"nouns": verbs, "errors": sorted(errors), "options": sorted(options)}


def main() -> None:
    if sys.argv[1:] == ["--ops"]:
        print(json.dumps(sorted(OPS)))
        return
    if sys.argv[1:] == ["--surface"]:
        print(json.dumps(surface()))
        return
    for line in sys.stdin:
        step = json.loads(line)
        try:
            answer: Dict[str, Any] = {"value": plain(OPS[step["op"]](step.get("args", {})))}
        except p.PandastackError as error:
            answer = {"error": failure(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
