"""Sandboxes: making, finding, ending them; commands; what the server refuses."""

from __future__ import annotations

import asyncio
import io
import json
import os
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, List

import pytest
from fake_server import KEY, SANDBOX, FakeServer, answer
from surfaces import Surface

import pandastack
from pandastack import (
    APIConnectionError,
    AuthError,
    BadRequestError,
    CapacityError,
    CommandError,
    ConflictError,
    NotFoundError,
    PandastackError,
    RateLimitError,
    SandboxTimeout,
    ExploreError,
    ServerError,
)
from pandastack.records import preview_address


def test_create_sends_what_was_said_and_nothing_else(surface: Surface) -> None:
    sb = surface.Sandbox.create(
        template="code-interpreter",
        ttl_seconds=60,
        metadata={"a": "b"},
        envs={"X": "1"},
        cpu=0.5,
        memory_mb=512,
        disk_mb=100,
        pids=64,
        persistent=True,
        reseed=False,
        api_url=surface.server.url + "/",
        api_key=KEY,
    )
    (call,) = surface.server.calls
    assert call.json == {
        "template": "code-interpreter",
        "ttl_seconds": 60,
        "metadata": {"a": "b"},
        "envs": {"X": "1"},
        "cpu": 0.5,
        "memory_mb": 512,
        "disk_mb": 100,
        "pids": 64,
        "persistent": True,
        "reseed": False,
    }
    assert call.headers["authorization"] == f"Bearer {KEY}"
    assert call.headers["user-agent"].startswith("pandastack-python/")
    assert (sb.id, sb.template, sb.status, sb.metadata) == ("sb_1", "code-interpreter", "running", {"a": "b"})
    assert sb.created_at.microsecond == 123456 and sb.created_at.tzinfo == timezone.utc
    assert sb.expires_at.hour == 11 and sb.info.memory_mb == 2048


def test_the_default_template_and_a_snapshot_instead(surface: Surface) -> None:
    client = surface.client()
    client.sandboxes.create()
    client.sandboxes.create(from_snapshot="snap_1")
    assert [c.json for c in surface.server.calls] == [{"template": "ubuntu-24.04"}, {"from_snapshot": "snap_1"}]


@pytest.mark.parametrize(
    "options, error",
    [
        ({"template": 3}, TypeError),
        ({"template": ""}, ValueError),
        ({"ttl_seconds": 0}, ValueError),
        ({"ttl_seconds": -5}, ValueError),
        ({"ttl_seconds": 1.5}, TypeError),
        ({"ttl_seconds": True}, TypeError),
        ({"metadata": {"n": 1}}, TypeError),
        ({"metadata": [("a", "b")]}, TypeError),
        ({"envs": {1: "a"}}, TypeError),
        ({"cpu": 0}, ValueError),
        ({"memory_mb": "512"}, TypeError),
        ({"disk_mb": 0}, ValueError),
        ({"pids": 0}, ValueError),
        ({"pids": 64.0}, TypeError),
        ({"persistent": "yes"}, TypeError),
    ],
)
def test_bad_arguments_are_named_before_anything_is_sent(surface: Surface, options: Any, error: Any) -> None:
    with pytest.raises(error) as caught:
        surface.Sandbox.create(**options, api_url=surface.server.url, api_key=KEY)
    assert next(iter(options)) in str(caught.value)
    assert surface.server.calls == []


def test_a_context_manager_kills_and_killing_twice_is_fine(surface: Surface) -> None:
    with surface.sandbox() as sb:
        assert "sb_1" in repr(sb)
    assert len(surface.server.sent("DELETE", "/sb_1")) == 1
    surface.server.on("DELETE", ".*", answer(404, {"error": "gone", "code": "not_found"}))
    sb.kill()


def test_get_list_and_filters(surface: Surface) -> None:
    where = {"api_url": surface.server.url, "api_key": KEY}
    assert surface.Sandbox.get("sb_1", **where).status == "running"
    with pytest.raises(NotFoundError):
        surface.Sandbox.get("sb_9", **where)
    assert [s.id for s in surface.Sandbox.list(**where)] == ["sb_1", "sb_2"]
    assert [s.id for s in surface.Sandbox.list(status="paused", **where)] == ["sb_2"]
    assert [s.id for s in surface.Sandbox.list({"who": "me"}, limit=1, **where)] == ["sb_1"]
    assert surface.Sandbox.list({"who": "you"}, **where) == []
    assert surface.server.calls[-1].query == {"metadata.who": "you", "limit": "500"}
    with pytest.raises(ValueError, match="sandbox id"):
        surface.Sandbox.get("", **where)


def test_a_wrapped_list_is_understood(surface: Surface) -> None:
    surface.server.on("GET", "/v1/sandboxes", answer(200, {"items": [{"id": "x"}]}))
    assert [s.id for s in surface.client().sandboxes.list()] == ["x"]


def test_ids_cannot_leave_their_place_in_the_path(surface: Surface) -> None:
    with pytest.raises(NotFoundError):
        surface.client().sandboxes.get("../me?x=#y")
    assert surface.server.calls[-1].target == "/v1/sandboxes/..%2Fme%3Fx%3D%23y"


def test_life(surface: Surface) -> None:
    life = {"ttl_seconds": 9, "idle_timeout_seconds": 0, "persistent": True, "idle_seconds": 1.5}
    surface.server.on("PATCH", ".*/lifecycle", answer(200, life))
    surface.server.on("GET", ".*/lifecycle", answer(200, life))
    surface.server.on("POST", ".*/(pause|resume)", answer(204))
    sb = surface.sandbox()
    assert sb.set_ttl(9).ttl_seconds == 9
    assert sb.set_persistent(True).persistent is True
    assert [c.json for c in surface.server.sent("PATCH", "/lifecycle")] == [{"ttl_seconds": 9}, {"persistent": True}]
    assert (sb.lifecycle().idle_seconds, sb.lifecycle().idle_timeout_seconds) == (1.5, None)
    sb.pause()
    sb.resume()
    assert [c.body for c in surface.server.calls[-2:]] == [b"", b""]
    for bad, error in ((0, ValueError), (1.5, TypeError), ("5", TypeError)):
        with pytest.raises(error):
            sb.set_ttl(bad)


def test_use_and_limits(surface: Surface) -> None:
    usage = {
        "at": "2026-03-01T10:00:00Z", "cpu_percent": 12.5, "cpu_seconds": 3.5, "memory_bytes": 1 << 20, "disk_bytes": 4096, "processes": 9,
        "limit_hits": {"cpu": 1, "cpu_seconds": 0.5, "memory_mb": 2, "disk_mb": 3, "pids": 4},
    }
    sb = surface.sandbox()
    assert sb.info.usage is None
    surface.server.on("GET", ".*/sb_1", answer(200, {**SANDBOX, "pids": 512, "usage": usage}))
    info = sb.refresh()
    assert info.pids == 512 and info.usage.memory_bytes == 1 << 20 and info.usage.at.tzinfo == timezone.utc
    hits = info.usage.limit_hits
    assert (hits.cpu, hits.cpu_seconds, hits.memory_mb, hits.disk_mb, hits.pids) == (1, 0.5, 2, 3, 4)
    metrics = {
        "pid": 7, "uptime_seconds": 1.5, "host_cpu_percent": 12.5, "host_rss_bytes": 5, "host_vsz_bytes": 6, "threads": 8,
        "limits": {"cpu": 0.5, "memory_mb": 512, "disk_mb": 100, "pids": 64}, "usage": usage,
    }
    surface.server.on("GET", ".*/metrics", answer(200, metrics))
    m = sb.metrics()
    assert (m.pid, m.uptime_seconds, m.host_rss_bytes, m.host_vsz_bytes, m.threads) == (7, 1.5, 5, 6, 8)
    assert m.limits == metrics["limits"] and m.usage == info.usage and m.raw == metrics
    surface.server.on("GET", ".*/metrics", answer(200, {"pid": 7, "threads": 8}))  # of another server
    assert sb.metrics().usage.limit_hits.pids == 0


def test_what_the_server_cannot_do_yet_is_said(surface: Surface) -> None:
    words = {"error": "this driver can't take snapshots", "code": "unsupported", "hint": "see capabilities"}
    surface.server.on("POST", ".*/(snapshots|fork|fork-tree|hibernate|wake|promote)", answer(501, words))
    sb = surface.sandbox()
    for call in (sb.snapshot, sb.fork, sb.fork_tree, sb.hibernate, sb.wake, sb.promote):
        with pytest.raises(ServerError, match="can't take snapshots .see capabilities.") as caught:
            call()
        assert (caught.value.status_code, caught.value.code) == (501, "unsupported")


def test_snapshots_and_forks_of_a_server_that_can(surface: Surface) -> None:
    surface.server.on("POST", ".*/snapshots", answer(201, {"id": "snap_1", "size_bytes": 85}))
    surface.server.on("POST", ".*/fork", answer(201, {"parent_id": "sb_1", "children": ["sb_3", {"id": "sb_4"}]}))
    surface.server.on("POST", ".*/fork-tree", answer(201, [{"id": "sb_5", "status": "creating"}]))
    sb = surface.sandbox()
    snap = sb.snapshot("evening")
    assert (snap, snap.id, snap.size_bytes, isinstance(snap, str)) == ("snap_1", "snap_1", 85, True)
    assert sb.fork().id == "sb_3"
    children = sb.fork(2, metadata={"a": "b"})
    assert [(c.id, c.template, c.status) for c in children] == [("sb_3", sb.template, "running"), ("sb_4", sb.template, "running")]
    assert sb.fork_tree(1)[0].status == "creating"


def test_what_is_carried_is_said(surface: Surface) -> None:
    surface.server.on("POST", ".*/snapshots", answer(201, {"id": "snap_1", "size_bytes": 85}))
    surface.server.on("POST", ".*/fork", answer(201, {"parent_id": "sb_1", "children": ["sb_3"]}))
    surface.server.on("POST", ".*/hibernate", answer(200, {"status": "hibernated"}))
    sb = surface.sandbox()
    for call in (sb.snapshot, sb.fork, sb.hibernate):
        call()
        assert surface.server.calls[-1].body == b""
        call(carry_running=True)
        assert surface.server.calls[-1].json == {"carry_running": True}
        with pytest.raises(TypeError, match="carry_running"):
            call(carry_running="yes")


def test_explore_chooses_and_cleans_up(surface: Surface) -> None:
    branches = [{"id": f"sb_{n}", "metadata": {"fork_tree_id": "tr_1"}} for n in (11, 12, 13)]
    surface.server.on("POST", ".*/fork-tree", answer(201, {"tree_id": "tr_1", "children": branches}))
    surface.server.on("POST", ".*/sb_11/exec", answer(200, {"stdout": "/app/a\n", "stderr": "", "exit_code": 1, "duration_ms": 1}))
    for n, ms in ((12, 9), (13, 5)):
        surface.server.on("POST", f".*/sb_{n}/exec", answer(200, {"stdout": "/app/a\n", "stderr": "", "exit_code": 0, "duration_ms": ms}))
    surface.server.on("POST", ".*/promote", answer(200, {"winner": "sb_13", "tree_id": "tr_1", "deleted": [], "failures": {}}))
    surface.server.on("DELETE", ".*/sb_1[123]", answer(204))
    sb = surface.sandbox()
    found = sb.explore(["false", "slow", "quick"], metadata={"a": "b"})
    assert (found.winner.id, found.winner_outcome.index, found.tree_id) == ("sb_13", 2, "tr_1")
    assert sorted(found.reaped) == ["sb_11", "sb_12"] and found.outcomes[0].files == ["/app/a"]
    assert surface.server.sent("POST", "/fork-tree")[0].json == {"count": 3, "metadata": {"a": "b", "explore": "1"}}
    longest = sb.explore(["false", "slow", "quick"], score=lambda o: o.duration_ms, cleanup_losers=False, capture_files=False)
    assert longest.winner.id == "sb_12" and longest.reaped == []
    for n in (11, 12, 13):
        surface.server.on("POST", f".*/sb_{n}/exec", answer(200, {"stdout": "", "stderr": "", "exit_code": 1, "duration_ms": 1}))
    with pytest.raises(ExploreError, match="none of 3") as caught:
        sb.explore(["a", "b", "c"])
    assert len(caught.value.exploration.outcomes) == 3
    for bad in ([], ["x"] * 17):
        with pytest.raises(ValueError, match="candidates"):
            sb.explore(bad)


def test_explore_scores_what_succeeded_and_never_chooses_nan(surface: Surface) -> None:
    branches = [{"id": f"sb_{n}"} for n in (11, 12, 13)]
    surface.server.on("POST", ".*/fork-tree", answer(201, {"children": branches}))
    for n, said, status in ((11, "nan", 0), (12, "7", 0), (13, "Traceback", 1)):
        surface.server.on("POST", f".*/sb_{n}/exec", answer(200, {"stdout": said, "stderr": "", "exit_code": status}))
    surface.server.on("POST", ".*/promote", answer(200, {"winner": "sb_12"}))
    surface.server.on("DELETE", ".*/sb_1[123]", answer(204))
    sb = surface.sandbox()
    for select in ("min", "max"):
        found = sb.explore(["a", "b", "c"], score=lambda o: float(o.stdout), select=select, capture_files=False)
        assert (found.winner.id, found.outcomes[1].score, found.outcomes[2].score) == ("sb_12", 7, None)
    with pytest.raises(ValueError, match="Traceback"):
        sb.explore(["a", "b", "c"], score=lambda o: float(o.stdout), require_success=False, capture_files=False)
    with pytest.raises(ExploreError, match="none of 3"):
        sb.explore(["a", "b", "c"], score=lambda o: float("nan"), capture_files=False)


def test_previews(surface: Surface) -> None:
    sb = surface.sandbox()
    listed = [{"port": 80, "listening": True, "addresses": ["::"]}, {"port": 3000, "label": "web", "listening": False, "source": "user"}]
    surface.server.on("GET", ".*/ports", answer(200, listed))
    surface.server.on("POST", ".*/preview-token", answer(200, {"url": "https://x/y"}))
    surface.server.on("POST", ".*/ports", answer(201, {"port": 3000, "label": "web", "public": True}))
    surface.server.on("DELETE", ".*/ports/3000", answer(204, None))
    api = sb.preview_url(80).rpartition(":")[2].rstrip("/")
    assert sb.preview_url(80) == f"http://80-sb_1.localhost:{api}/"
    assert sb.preview_url(80, "https").startswith("https://80-sb_1.")
    ports = sb.ports()
    assert ports == [80, 3000] and ports[0].addresses == ["::"] and (ports[1].label, ports[1].listening) == ("web", False)
    assert sb.preview_urls() == {80: sb.preview_url(80)}
    assert sb.signed_preview_url(80, 60, paths=["/a"]) == "https://x/y"
    assert sb.name_port(3000, "web", public=True).public
    sb.forget_port(3000)
    for bad in (0, 65536):
        with pytest.raises(ValueError, match="port"):
            sb.preview_url(bad)
    with pytest.raises(TypeError, match="paths"):
        sb.signed_preview_url(80, paths="/a")
    for host, want in {
        "preview.example": "https://80-sb-1.preview.example/",
        "localhost:9": "http://80-sb-1.localhost:9/",
        None: "https://80-sb-1.example.com/",
    }.items():
        assert preview_address("https://api.example.com", host, "sb-1", 80, None) == want


def test_the_account(surface: Surface) -> None:
    client = surface.client()
    surface.server.on("GET", "/v1/me", answer(200, {"owner": "root"}))
    surface.server.on("GET", "/v1/templates", answer(200, [{"name": "base", "aliases": ["ubuntu-24.04"]}]))
    surface.server.on("GET", "/v1/templates/base", answer(200, {"name": "base", "memory_mb": 512}))
    surface.server.on("POST", "/v1/me/tokens", answer(201, {"token": "pds_x", "prefix": "pds_"}))
    surface.server.on("GET", "/v1/me/tokens", answer(200, [{"prefix": "pds_", "label": "ci"}]))
    surface.server.on("DELETE", "/v1/me/tokens/pds_", answer(204))
    assert client.me() == {"owner": "root"}
    assert client.templates.list()[0].aliases == ["ubuntu-24.04"]
    assert client.templates.get("base").memory_mb == 512
    made = client.tokens.create("ci")
    assert (made.token, made.label) == ("pds_x", "ci") and "pds_x" not in repr(made)
    assert client.tokens.list()[0].token is None
    client.tokens.revoke("pds_")
    client.tokens.delete("pds_")


def test_keys_with_all_that_they_can_be(surface: Surface) -> None:
    client = surface.client()
    body = {
        "token": "pds_x",
        "prefix": "pds_",
        "scopes": ["read"],
        "workspace": "ann",
        "created_at": "2026-03-01T10:00:00Z",
        "expires_at": "2026-03-08T10:00:00Z",
        "last_used_at": "2026-03-02T10:00:00Z",
    }
    surface.server.on("POST", "/v1/me/tokens", answer(201, body))
    surface.server.on("GET", "/v1/me/tokens", answer(200, [body]))
    made = client.tokens.create("ci", 7, scopes=["read"], workspace="ann")
    assert surface.server.calls[-1].json == {"label": "ci", "expires_in_days": 7, "scopes": ["read"], "workspace": "ann"}
    assert (made.scopes, made.workspace) == (("read",), "ann")
    assert made.expires_at - made.last_used_at == timedelta(days=6)
    client.tokens.create("ci", expires_at=datetime(2030, 1, 2, 3, tzinfo=timezone(timedelta(hours=1))))
    assert surface.server.calls[-1].json == {"label": "ci", "expires_at": "2030-01-02T02:00:00+00:00"}
    assert client.tokens.list("*")[0].workspace == "ann"
    assert surface.server.calls[-1].query == {"workspace": "*"}
    for wrong in ({"expires_in_days": 0}, {"scopes": [""]}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            client.tokens.create("ci", **wrong)
    for wrong in ({"scopes": "read"}, {"expires_at": "2030"}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            client.tokens.create("ci", **wrong)


# Commands


def test_exec(surface: Surface) -> None:
    sb = surface.sandbox()
    sent = json.loads(sb.exec(["echo", "a b"], timeout_seconds=5, cwd="/tmp", envs={"A": "1"}, user=1000, stdin="in").stdout)
    del sent["execution_id"]
    assert sent == {
        "cmd": ["echo", "a b"],
        "timeout_seconds": 5,
        "cwd": "/tmp",
        "envs": {"A": "1"},
        "user": "1000",
        "stdin": "in",
    }
    plain = json.loads(sb.exec("echo hi").stdout)
    assert len(plain.pop("execution_id")) == 36
    assert plain == {"cmd": "echo hi", "timeout_seconds": 60, "cwd": "/workspace"}
    assert json.loads(sb.commands.run("echo hi", timeout=3).stdout)["timeout_seconds"] == 3


def test_a_command_that_fails_raises_only_when_asked(surface: Surface) -> None:
    sb = surface.sandbox()
    assert sb.exec("false").exit_code == 1
    for run in (sb.exec, sb.commands.run):
        with pytest.raises(CommandError, match="status 1: it went wrong") as caught:
            run("false", check=True)
        assert (caught.value.exit_code, caught.value.stderr) == (1, "it went wrong\n")


def test_a_command_is_come_back_to_when_the_connection_breaks(surface: Surface) -> None:
    sb = surface.sandbox()
    answers = [None, None, answer(200, {"stdout": "once", "stderr": "", "exit_code": 0})]
    surface.server.on("POST", ".*/exec", lambda *_: answers.pop(0))
    assert sb.exec("x").stdout == "once"
    first, *others = [call.json for call in surface.server.sent("POST", "/exec")]
    assert "attach" not in first and others == [{**first, "attach": True}] * 2


def test_a_command_past_its_deadline_raises_with_its_output(surface: Surface) -> None:
    with pytest.raises(SandboxTimeout, match="within 1 s") as caught:
        surface.sandbox().exec("sleep 60", timeout_seconds=1)
    assert caught.value.stdout == "so far\n"
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize("cmd, error", [("", ValueError), ([], ValueError), (3, TypeError), (["a", 3], TypeError)])
def test_commands_that_are_none(surface: Surface, cmd: Any, error: Any) -> None:
    with pytest.raises(error, match="cmd"):
        surface.sandbox().exec(cmd)


def process_routes(surface: Surface, exit: Any) -> None:
    events = [
        {"type": "started", "pid": 7, "seq": 1},
        {"type": "stdout", "text": "a\n", "seq": 2},
        {"type": "stderr", "text": "", "raw": "/w==", "seq": 3},
        {"type": "stdout", "text": "b\n", "seq": 4},
        {"type": "exit", "exit": exit, "seq": 5},
    ]
    info = {"pid": 7, "cmd": "x", "running": False, "exit": exit, "started_at": "2026-03-01T10:00:00Z"}
    surface.server.on("POST", ".*/processes", answer(201, {"pid": 7}))
    surface.server.on("GET", ".*/processes/7/stream", lambda c, *_: [e for e in events if e["seq"] > int(c.query["after"])])
    surface.server.on("GET", ".*/processes/7", answer(200, info))
    surface.server.on("GET", ".*/processes", answer(200, [info]))
    for method in ("POST", "DELETE"):
        surface.server.on(method, ".*/processes/7(/.*)?", answer(204))


def test_a_process_in_the_background(surface: Surface) -> None:
    process_routes(surface, {"exit_code": 3, "reason": "exited"})
    sb = surface.sandbox()
    p = sb.commands.run("x", background=True, stdin=True, tag="mine", timeout_seconds=2)
    assert surface.server.sent("POST", "/processes")[0].json == {
        "cmd": "x", "cwd": "/workspace", "timeout_ms": 2000, "stdin": True, "tag": "mine"}
    assert p.pid == 7
    surface.server.cut_after[:] = [2, 1, None]
    seen: List[str] = []
    result = p.wait(on_stdout=seen.append)
    assert (result.stdout, result.stderr, result.exit_code, seen) == ("a\nb\n", "\ufffd", 3, ["a\n", "b\n"])
    assert [e.type for e in p.stream(after=3)] == ["stdout", "exit"]
    assert list(p.stream())[2].raw == b"\xff"
    p.send_stdin("ü", close=True)
    assert surface.server.sent("POST", "/stdin")[0].body == "ü".encode()
    assert len(surface.server.sent("DELETE", "/stdin")) == 1
    p.signal("TERM")
    assert surface.server.sent("POST", "/signal")[0].json == {"signal": "TERM"}
    p.kill()
    with pytest.raises(CommandError):
        p.wait(check=True)
    assert (sb.commands.list()[0].exit_code, sb.commands.list()[0].reason) == (3, "exited")
    assert sb.commands.connect(7).info().running is False
    assert sb.commands.kill(7) is True and sb.commands.kill(8) is False
    with pytest.raises(NotFoundError):
        sb.commands.connect(8)


def test_a_command_with_callbacks(surface: Surface) -> None:
    process_routes(surface, {"exit_code": 0, "reason": "exited"})
    seen: List[str] = []
    result = surface.sandbox().commands.run("x", on_stdout=seen.append, stdin="input")
    assert (seen, result.stdout) == (["a\n", "b\n"], "a\nb\n")
    assert surface.server.sent("POST", "/processes")[0].json["timeout_ms"] == 60000
    assert surface.server.sent("POST", "/stdin")[0].body == b"input"


def test_a_process_in_the_background_remembers_how_it_is_waited_for(surface: Surface) -> None:
    process_routes(surface, {"exit_code": 3, "reason": "exited"})
    seen: List[str] = []
    p = surface.sandbox().commands.run("x", background=True, check=True, on_stdout=seen.append, stdin=b"\xff")
    assert surface.server.sent("POST", "/stdin")[0].body == b"\xff" and surface.server.sent("DELETE", "/stdin")
    assert [e.type for e in p] == ["started", "stdout", "stderr", "stdout", "exit"]
    with pytest.raises(CommandError):
        p.wait()
    assert seen == ["a\n", "b\n"]
    again: List[str] = []
    assert p.wait(check=False, on_stdout=again.append).stdout == p.wait(check=False).stdout == "a\nb\n"
    assert seen == again == ["a\n", "b\n"]  # each is called once


def test_callbacks_of_the_background_are_called_while_nobody_waits(fake: FakeServer) -> None:
    more, heard = threading.Event(), threading.Event()

    def stream(call: Any, *_: Any) -> Any:
        if int(call.query["after"]) > 0:
            more.wait(30)
            return [{"type": "stdout", "text": "late", "seq": 2}, {"type": "exit", "exit": {"exit_code": 0}, "seq": 3}]
        return [{"type": "stdout", "text": "early", "seq": 1}]  # and the connection breaks

    fake.on("POST", ".*/processes", answer(201, {"pid": 7}))
    fake.on("GET", ".*/processes/7/stream", stream)
    seen: List[str] = []

    def hear(text: str) -> None:
        seen.append(text)
        heard.set()

    sb = pandastack.Client(fake.url, KEY).sandboxes.create("t")
    p = sb.commands.run("x", background=True, on_stdout=hear)
    assert heard.wait(30) and seen == ["early"]
    with pytest.raises(SandboxTimeout, match="goes on") as late:
        p.wait(0.01)
    assert late.value.stdout == "early"
    more.set()
    assert p.wait().stdout == "earlylate" and seen == ["early", "late"]

    async def beside() -> None:
        async with pandastack.AsyncClient(fake.url, KEY) as client:
            more.clear()
            seen.clear()
            came = asyncio.Event()

            async def hear(text: str) -> None:
                seen.append(text)
                came.set()

            p = await (await client.sandboxes.create("t")).commands.run("x", background=True, on_stdout=hear)
            await asyncio.wait_for(came.wait(), 30)
            assert seen == ["early"]
            with pytest.raises(SandboxTimeout):
                await p.wait(0.01)
            more.set()
            assert (await p.wait()).stdout == "earlylate" and seen == ["early", "late"]

    asyncio.run(beside())


def test_what_a_callback_of_the_background_raises_comes_out_of_wait(surface: Surface) -> None:
    process_routes(surface, {"exit_code": 0, "reason": "exited"})
    seen: List[str] = []

    def hear(text: str) -> None:
        seen.append(text)
        raise ZeroDivisionError(text)

    p = surface.sandbox().commands.run("x", background=True, on_stdout=hear)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            p.wait()
    assert seen == ["a\n"]
    with pytest.raises(ZeroDivisionError):
        p.wait(on_stderr=lambda _: None)
    assert surface.server.sent("DELETE", "/processes/7") == []  # the process is not the worse for it
    assert list(p.stream())[-1].type == "exit"


def test_a_callback_that_waits_for_its_own_process_is_told(fake: FakeServer) -> None:
    process_routes(Surface(None, None, None, fake), {"exit_code": 0})
    held: List[Any] = []
    ready = threading.Event()

    def hear(_: str) -> None:
        ready.wait(30)
        held[0].wait()

    held.append(pandastack.Client(fake.url, KEY).sandboxes.create("t").commands.run("x", background=True, on_stdout=hear))
    ready.set()
    with pytest.raises(RuntimeError, match="wait for itself"):
        held[0].wait()


def test_input_of_any_size_and_kind(surface: Surface, tmp_path: Path) -> None:
    process_routes(surface, {"exit_code": 0, "reason": "exited"})
    sb = surface.sandbox()
    big = os.urandom(3_000_000)
    (tmp_path / "big").write_bytes(big)
    with open(tmp_path / "big", "rb") as file:
        for given, sent in ((big, big), (file, big), ("ü" * 1_500_000, ("ü" * 1_500_000).encode())):
            surface.server.calls.clear()
            assert sb.exec("x", stdin=given).stdout == "a\nb\n"
            assert surface.server.sent("POST", "/stdin")[0].body == sent
            assert surface.server.sent("POST", "/processes")[0].json["stdin"] is True
            assert len(surface.server.sent("DELETE", "/stdin")) == 1
    with pytest.raises(TypeError, match="data"):
        sb.exec("x", stdin=3)


def test_input_that_a_command_does_not_read_is_no_error(surface: Surface) -> None:
    process_routes(surface, {"exit_code": 0, "reason": "exited"})
    surface.server.on("POST", ".*/stdin", answer(409, {"error": "it no longer reads", "code": "conflict"}))
    assert surface.sandbox().exec("x", stdin=b"unread").exit_code == 0
    with pytest.raises(ConflictError):
        surface.sandbox().commands.connect(7).send_stdin("unread")


def test_a_command_whose_input_cannot_be_had_is_killed(surface: Surface) -> None:
    class Broken:
        def read(self, size: int = -1) -> bytes:
            if size == 0:
                return b""
            raise OSError("the disk is gone")

    process_routes(surface, {"exit_code": 137, "reason": "killed", "signal": "SIGKILL"})
    with pytest.raises(OSError, match="^the disk is gone"):
        surface.sandbox().exec("x", stdin=Broken())
    assert surface.server.sent("DELETE", "/processes/7")


def test_a_callback_that_raises_leaves_no_command_behind(surface: Surface) -> None:
    process_routes(surface, {"exit_code": 0, "reason": "exited"})
    with pytest.raises(ZeroDivisionError):
        surface.sandbox().commands.run("x", on_stdout=lambda _: 1 / 0)
    assert len(surface.server.sent("DELETE", "/processes/7")) == 1


def test_why_a_command_ended(surface: Surface) -> None:
    process_routes(surface, {"exit_code": 137, "reason": "oom", "signal": "SIGKILL"})
    p = surface.sandbox().commands.connect(7)
    assert (p.wait().reason, p.wait().signal) == ("oom", "SIGKILL")
    with pytest.raises(CommandError, match="out of memory"):
        p.wait(check=True)


def test_a_command_that_fails_keeps_its_output(surface: Surface) -> None:
    body = {"error": "the sandbox has ended", "code": "conflict", "stdout": "so far", "stderr": "and this"}
    surface.server.on("POST", ".*/exec", answer(409, body))
    with pytest.raises(ConflictError) as caught:
        surface.sandbox().exec("x")
    assert (caught.value.stdout, caught.value.stderr) == ("so far", "and this")


def test_a_process_ended_by_its_deadline(surface: Surface) -> None:
    process_routes(surface, {"exit_code": 137, "reason": "timeout"})
    with pytest.raises(SandboxTimeout, match="deadline") as caught:
        surface.sandbox().commands.run("x", on_stdout=lambda _: None)
    assert caught.value.stdout == "a\nb\n"


def test_waiting_a_while_for_a_process(surface: Surface) -> None:
    process_routes(surface, {})
    surface.server.on("GET", ".*/processes/7/stream", lambda c, *_: [{"type": "stdout", "text": "a", "seq": 1}])
    p = surface.sandbox().commands.connect(7)
    with pytest.raises(SandboxTimeout, match="goes on") as caught:
        p.wait(0.05)
    assert caught.value.stdout == "a"


@pytest.mark.parametrize(
    "options",
    [{"stdin": True}, {"tag": "a"}, {"timeout": 1, "timeout_seconds": 1}],
)
def test_options_that_do_not_go_together(surface: Surface, options: Any) -> None:
    with pytest.raises(TypeError):
        surface.sandbox().commands.run("x", **options)


# Errors


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (400, "invalid", BadRequestError),
        (401, "unauthenticated", AuthError),
        (403, "denied", AuthError),
        (404, "not_found", NotFoundError),
        (409, "conflict", ConflictError),
        (413, "too_large", BadRequestError),
        (429, "rate_limited", RateLimitError),
        (500, "internal", ServerError),
        (501, "unsupported", ServerError),
        (503, "no_capacity", CapacityError),
        (504, "timeout", SandboxTimeout),
        (507, "no_space", CapacityError),
        (502, None, ServerError),
        (418, None, BadRequestError),
    ],
)
def test_each_status_has_its_class(surface: Surface, status: int, code: Any, kind: Any) -> None:
    body = {"error": "words", "code": code, "hint": "do this", "field": "ttl_seconds", "request_id": "r1"}
    surface.server.on("GET", "/v1/me", answer(status, body, retry_after="10"))  # longer than a client waits by itself
    with pytest.raises(PandastackError) as caught:
        surface.client().me()
    error = caught.value
    assert type(error) is kind
    assert (error.status_code, error.code, error.hint, error.field) == (status, code, "do this", "ttl_seconds")
    assert error.response == body and error.retry_after == 10.0
    assert str(error).startswith("ttl_seconds: words (do this)" if status == 400 else "words (do this)")


@pytest.mark.parametrize(
    "body, words",
    [
        (b'{"message": "m"}', "m"),
        (b'{"detail": "d"}', "d"),
        (b'{"error": "", "message": "m"}', "m"),
        (b'{"error": {"message": "nested", "code": "invalid", "hint": "h"}}', "nested (h)"),
        (b'{"error": {"code": "invalid"}}', "invalid"),
        (b"plain words", "plain words"),
        (b"", "the server answered 400 with no words"),
        (b"[1]", "[1]"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_whatever_the_body_is_there_are_words(surface: Surface, body: bytes, words: str) -> None:
    surface.server.on("GET", "/v1/me", (400, {}, body))
    with pytest.raises(BadRequestError) as caught:
        surface.client().me()
    assert str(caught.value) == words


def test_an_answer_that_is_no_json(surface: Surface) -> None:
    surface.server.on("GET", "/v1/me", (200, {}, b"<html>"))
    with pytest.raises(ServerError, match="api_url"):
        surface.client().me()


def test_a_wrong_key_says_what_to_do(surface: Surface) -> None:
    with pytest.raises(AuthError, match="PANDASTACK_API_KEY"):
        surface.Client(surface.server.url, "pds_wrong").me()


def test_headers_for_a_proxy_go_with_every_call(surface: Surface) -> None:
    """Calls and streams have them; what the SDK says itself stands."""
    client = surface.Client(surface.server.url, KEY, headers={"X-Proxy-Token": "let me in", "accept": "x/y"})
    sb = client.sandboxes.create("code-interpreter")
    assert sb.run_code("1", on_stdout=lambda _: None).text == "1"  # a stream
    assert len(surface.server.calls) >= 2
    for call in surface.server.calls:
        assert call.headers["x-proxy-token"] == "let me in" and call.headers["authorization"] == f"Bearer {KEY}"
        assert "x/y" not in call.headers["accept"]
    for bad in ({"Authorization": "Basic x"}, {"a b": "c"}, {"X": "a\r\nY: b"}, {"": "x"}):
        with pytest.raises(ValueError, match="headers"):
            surface.Client(surface.server.url, KEY, headers=bad)


def test_lists_come_page_by_page(surface: Surface) -> None:
    names = [f"sb_{n}" for n in range(1200)]

    def page(call: Any) -> Any:
        start = int(call.query.get("cursor", 0))
        end = start + int(call.query["limit"])
        more = {"x_next_cursor": str(end)} if end < len(names) else {}
        return answer(200, [{"id": name, "status": "running"} for name in names[start:end]], **more)

    surface.server.on("GET", "/v1/sandboxes", page)
    client = surface.client()
    for limit, pages in ((None, 3), (1200, 3), (500, 1), (501, 2), (1, 1), (5000, 3)):
        surface.server.calls.clear()
        assert [sb.id for sb in client.sandboxes.list(status="running", limit=limit)] == names[:limit], limit
        assert len(surface.server.calls) == pages, limit
        assert all(call.query["status"] == "running" for call in surface.server.calls)
    for wrong, kind in ((0, ValueError), ("5", TypeError)):
        with pytest.raises(kind, match="limit"):
            client.sandboxes.list(limit=wrong)


def test_calls_that_come_too_soon_wait(surface: Surface) -> None:
    bodies: List[bytes] = []
    after = "1"

    def busy(call: Any, *_: Any) -> Any:
        bodies.append(call.body)
        if len(bodies) > 1:
            return answer(200, {"ttl_seconds": 9})
        return answer(429, {"error": "slow down", "code": "rate_limited"}, retry_after=after)

    sb = surface.sandbox()
    surface.server.on("PATCH", ".*/lifecycle", busy)
    assert sb.set_ttl(9).ttl_seconds == 9
    assert len(bodies) == 2 and bodies[0] == bodies[1] == b'{"ttl_seconds":9}'
    for after in ("10", "0", "soon"):  # that is the caller's to wait for, or nothing that can be waited for
        bodies.clear()
        with pytest.raises(RateLimitError):
            sb.set_ttl(9)
        assert len(bodies) == 1, after
    after = "1"
    bodies.clear()
    surface.server.on("PUT", ".*/fs", busy)
    with pytest.raises(RateLimitError):  # half of a file is nothing to send
        sb.filesystem.write("/x", io.BytesIO(b"once"))
    assert len(bodies) == 1


def test_cells_that_come_too_soon_wait(surface: Surface) -> None:
    refused: List[str] = []

    def busy(call: Any, *groups: Any) -> Any:
        if len(refused) == 0:
            refused.append(call.path)
            return answer(429, {"error": "slow down", "code": "rate_limited"}, retry_after="1")
        return surface.server.run(call, "")

    surface.server.on("POST", ".*/run/stream", busy)
    printed: List[str] = []
    ex = surface.sandbox().run_code("1 + 1", on_stdout=printed.append)
    assert ex.text == "2" and len(refused) == 1


def test_what_may_be_sent_twice_is_repeated_over_a_broken_connection(surface: Surface) -> None:
    client = surface.client(reconnect_seconds=5)
    tries: List[str] = []

    def flaky(call: Any, *_: Any) -> Any:
        tries.append(call.method)
        return None if tries.count(call.method) < 2 else answer(200, {"owner": "me"})

    client.sandboxes.list()
    surface.server.on("GET", "/v1/me", flaky)
    assert client.me() == {"owner": "me"}
    surface.server.on("POST", "/v1/me/tokens", flaky)
    with pytest.raises(APIConnectionError):
        client.tokens.create("ci")
    assert tries == ["GET", "GET", "POST"]


def test_a_create_is_sent_again_with_the_same_key(surface: Surface) -> None:
    keys: List[str] = []

    def flaky(call: Any) -> Any:
        keys.append(call.headers["idempotency-key"])
        return None if len(keys) < 3 else answer(201, {"id": "sb_1"})

    surface.server.on("POST", "/v1/sandboxes", flaky)
    client = surface.client(reconnect_seconds=5)  # this is its first call: the server is there, though it has answered nothing
    assert client.sandboxes.create("base").id == "sb_1"
    client.sandboxes.create("base")
    client.sandboxes.create("base", idempotency_key="mine")
    assert len(keys) == 5 and keys[0] == keys[1] == keys[2] != keys[3] and keys[4] == "mine"
    with pytest.raises(ValueError, match="idempotency_key"):
        client.sandboxes.create("base", idempotency_key="")


def test_connections_are_kept(surface: Surface) -> None:
    sb = surface.sandbox()
    for _ in range(5):
        sb.run_code("1+1")
    assert len(surface.server._open) == 1
