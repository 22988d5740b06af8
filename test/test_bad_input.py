"""Every mistake gets a clear answer that names what was wrong."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from daemon import ROOT, Daemon
from pandastack import BadRequestError, NotFoundError, Sandbox


def call(d: Daemon, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, dict]:
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    r = urllib.request.Request(d.url + path, data, {"Authorization": f"Bearer {d.key}", "Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(r, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def test_what_is_malformed_is_refused_as_in_the_go_tests(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    """The stub of the HTTP tests and the whole above the fake driver are held against the same list."""
    wrong = []
    for bad in json.loads((ROOT / "internal/httpapi/testdata/bad_requests.json").read_text()):
        path = bad["path"].replace("{sandbox}", shared_sandbox.id).replace("{context}", "default")
        status, answer = call(daemon, bad["method"], path, bad["body"].encode())
        if (status, answer.get("code"), answer.get("field", "")) != (bad["status"], bad["code"], bad["field"]):
            wrong.append((bad["name"], status, answer))
    assert not wrong


def test_unknown_template_names_the_nearest(daemon: Daemon) -> None:
    with pytest.raises((NotFoundError, BadRequestError)) as e:
        Sandbox.create(template="code-interpeter", api_url=daemon.url, api_key=daemon.key)
    assert "code-interpreter" in str(e.value)


@pytest.mark.parametrize("body, field", [
    ({"ttl_seconds": -1}, "ttl_seconds"),
    ({"ttl_seconds": "soon"}, "ttl_seconds"),
    ({"memory_mb": -5}, "memory_mb"),
    ({"cpu": 0}, "cpu"),
    ({"metadata": {"a": 1}}, "metadata"),
    ({"envs": {"A=B": "x"}}, "envs"),
])
def test_bad_create_fields_are_named(daemon: Daemon, body: dict, field: str) -> None:
    status, answer = call(daemon, "POST", "/v1/sandboxes", {"template": "code-interpreter", **body})
    assert (status, answer["code"]) == (400, "invalid"), answer
    assert answer["field"].startswith(field)


def test_bad_json_is_400(daemon: Daemon) -> None:
    status, answer = call(daemon, "POST", "/v1/sandboxes", b'{"template": ')
    assert (status, answer["code"]) == (400, "invalid")


def test_the_same_execution_id_with_other_code_is_a_conflict(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    ctx = shared_sandbox.create_code_context()
    run = f"/v1/sandboxes/{shared_sandbox.id}/repl/sessions/{ctx.id}/run"
    eid = "11111111-2222-3333-4444-555555555555"
    first = call(daemon, "POST", run, {"code": "n = globals().get('n', 0) + 1; n", "execution_id": eid})
    again = call(daemon, "POST", run, {"code": "n = globals().get('n', 0) + 1; n", "execution_id": eid})
    assert first[1]["results"] == again[1]["results"] == [{"text/plain": "1"}], "it ran once"
    status, answer = call(daemon, "POST", run, {"code": "n = 100", "execution_id": eid})
    assert (status, answer["code"]) == (409, "conflict")
    assert ctx.run_code("n").text == "1"


def test_unknown_ids_are_404(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    with pytest.raises(NotFoundError):
        Sandbox.get("sb-nosuchsandbox", api_url=daemon.url, api_key=daemon.key)
    status, answer = call(daemon, "POST", f"/v1/sandboxes/{shared_sandbox.id}/repl/sessions/nope/run", {"code": "1"})
    assert (status, answer["code"]) == (404, "not_found")


def test_empty_code_and_languages(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    ctx = shared_sandbox.create_code_context()
    run = f"/v1/sandboxes/{shared_sandbox.id}/repl/sessions/{ctx.id}/run"
    for body, field in (({"code": ""}, "code"), ({}, "code"), ({"code": "1", "timeout_ms": -1}, "timeout_ms"), ({"code": 7}, "code")):
        status, answer = call(daemon, "POST", run, body)
        assert (status, answer.get("field")) == (400, field), (body, answer)
    status, answer = call(daemon, "POST", f"/v1/sandboxes/{shared_sandbox.id}/repl/sessions", {"language": "cobol"})
    assert status in (400, 501) and "python" in json.dumps(answer)


def test_no_key_and_a_wrong_one_look_the_same(daemon: Daemon) -> None:
    for header in ({"Authorization": ""}, {"Authorization": "Bearer pds_" + "0" * 32}):
        for path in ("/v1/sandboxes", "/v1/sandboxes/sb-whatever", "/v1/templates"):
            status, answer = call(daemon, "GET", path, headers=header)
            assert (status, answer["code"]) == (401, "unauthenticated"), path


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
def test_browsers_pointed_at_us_are_refused(daemon: Daemon, headers: dict[str, str]) -> None:
    status, _ = call(daemon, "GET", "/v1/sandboxes", headers=headers)
    assert status == 403


def test_a_killed_sandbox_is_gone_and_killing_it_again_is_harmless(daemon: Daemon) -> None:
    sb = Sandbox.create(template="code-interpreter", api_url=daemon.url, api_key=daemon.key)
    ctx = sb.create_code_context()
    sb.kill()
    ctx.close()
    sb.kill()
    with pytest.raises(NotFoundError):
        ctx.run_code("1")
