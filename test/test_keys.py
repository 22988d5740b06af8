"""Keys, workspaces, creates that happen once, pages and limits, against the real thing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator

import pytest
from daemon import BIN, Daemon
from pandastack import AuthError, Client, NotFoundError, RateLimitError

TEMPLATE = "code-interpreter"


@pytest.fixture(scope="module")
def strict() -> Iterator[Daemon]:
    """A daemon with narrow limits and a talkative log, shared by the tests of this file."""
    d = Daemon(max_sandboxes_per_workspace=2, rate_limit=50, rate_burst=100, log_level="debug", pool_ready=1, pool_prepared=1)
    d.start()
    yield d
    if d.process.poll() is not None:
        d.start()
    with Client(d.url, d.key) as admin:
        for token in admin.tokens.list("*"):
            made = admin.tokens.create("clean up", workspace=token.workspace)
            with Client(d.url, made.token) as client:
                for sb in client.sandboxes.list():
                    sb.kill()
    assert d.stop() == 0, d.tail()
    d.remove()


@pytest.fixture
def admin(strict: Daemon) -> Iterator[Client]:
    with Client(strict.url, strict.key) as client:
        yield client
        for sb in client.sandboxes.list():
            sb.kill()


def call(d: Daemon, key: str, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict, dict]:
    data = None if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    r = urllib.request.Request(d.url + path, data, {"Authorization": f"Bearer {key}", **named}, method=method)
    try:
        with urllib.request.urlopen(r, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"{}"), dict(answer.headers)
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read()), dict(e.headers)


def test_scopes_and_workspaces(strict: Daemon, admin: Client) -> None:
    assert admin.me()["scopes"] == ["read", "run", "admin"] and admin.me()["workspace"] == "local"
    runs = admin.tokens.create("ann's agent", 1, workspace="ann")
    looks = admin.tokens.create("ann's dashboard", scopes=["read"], workspace="ann")
    assert runs.scopes == ("read", "run") and runs.expires_at is not None and runs.token not in repr(runs)
    mine = admin.sandboxes.create(TEMPLATE)
    with Client(strict.url, runs.token) as ann, Client(strict.url, looks.token) as dashboard:
        hers = ann.sandboxes.create(TEMPLATE)
        assert hers.run_code("40 + 2").text == "42"
        hers.filesystem.write("/workspace/x", "hers")
        assert [s.id for s in ann.sandboxes.list()] == [s.id for s in dashboard.sandboxes.list()] == [hers.id]
        assert [s.id for s in admin.sandboxes.list()] == [mine.id]
        with pytest.raises(NotFoundError):
            ann.sandboxes.get(mine.id)

        seen = dashboard.sandboxes.get(hers.id)
        assert seen.filesystem.read("/workspace/x") == b"hers"
        for forbidden in (lambda: seen.exec("id"), seen.kill, lambda: seen.filesystem.write("/workspace/x", "mine"),
                          lambda: dashboard.sandboxes.create(TEMPLATE), lambda: seen.run_code("1")):
            with pytest.raises(AuthError, match="lacks the scope run") as e:
                forbidden()
            assert e.value.status_code == 403
        with pytest.raises(AuthError, match="lacks the scope admin"):
            ann.tokens.create("more")
        admin.tokens.revoke(looks.prefix)
        with pytest.raises(AuthError) as e:
            dashboard.me()
        assert e.value.status_code == 401
        assert hers.exec("cat /workspace/x").stdout == "hers", "the other key goes on"
        hers.kill()


def test_what_is_open_ends_with_its_key(strict: Daemon, admin: Client) -> None:
    made = admin.tokens.create("for a moment")
    sb = admin.sandboxes.create(TEMPLATE)
    outcome: list[BaseException | None] = []
    begun = threading.Event()

    def look() -> None:
        with Client(strict.url, made.token) as client:
            try:
                client.sandboxes.get(sb.id).run_code(
                    "import time\nprint('up', flush=True)\ntime.sleep(25)", on_stdout=lambda _: begun.set())
                outcome.append(None)
            except BaseException as e:  # noqa: BLE001
                outcome.append(e)

    thread = threading.Thread(target=look)
    thread.start()
    assert begun.wait(30)
    admin.tokens.revoke(made.prefix)
    thread.join(20)
    assert not thread.is_alive() and isinstance(outcome[0], AuthError), outcome


def test_a_create_happens_once(strict: Daemon, admin: Client) -> None:
    key = str(uuid.uuid4())
    answers: list[tuple[int, dict, dict]] = []
    body = {"template": TEMPLATE, "metadata": {"b": "2", "a": "1"}}

    def create() -> None:
        answers.append(call(strict, strict.key, "POST", "/v1/sandboxes", body, Idempotency_Key=key))

    threads = [threading.Thread(target=create) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [a[0] for a in answers] == [201] * 4 and len({a[1]["id"] for a in answers}) == 1, answers
    status, answer, _ = call(strict, strict.key, "POST", "/v1/sandboxes", {"template": "base"}, Idempotency_Key=key)
    assert (status, answer["code"]) == (409, "conflict")

    strict.kill9()
    strict.start()
    create()
    assert answers[-1][0] == 201 and answers[-1][1]["id"] == answers[0][1]["id"]
    assert [s.id for s in admin.sandboxes.list()] == [answers[0][1]["id"]]


@pytest.mark.parametrize("after", [0.0, 0.02, 0.2])
def test_a_create_outlives_the_daemon(strict: Daemon, admin: Client, after: float) -> None:
    """Whenever the daemon dies, the SDK asks again, and there is one sandbox."""
    made: list[object] = []

    def create() -> None:
        with Client(strict.url, strict.key) as client:
            client.me()
            ready.set()
            try:
                made.append(client.sandboxes.create(TEMPLATE, metadata={"after": str(after)}, memory_mb=600).id)
            except Exception as e:  # noqa: BLE001
                made.append(e)

    ready = threading.Event()
    thread = threading.Thread(target=create)
    thread.start()
    assert ready.wait(30)
    time.sleep(after)  # where the create is by then does not matter: it holds everywhere
    strict.kill9()
    strict.start()
    thread.join(90)
    assert [s.id for s in admin.sandboxes.list()] == made


def test_pages(strict: Daemon, admin: Client) -> None:
    both = [admin.sandboxes.create(TEMPLATE, metadata={"test": "pages", "n": str(n)}).id for n in range(2)]
    path, seen = "/v1/sandboxes?metadata.test=pages&limit=1", []
    while path:
        status, page, headers = call(strict, strict.key, "GET", path)
        assert status == 200 and len(page) == 1
        seen.append(page[0]["id"])
        link = headers.get("Link", "")
        assert ('rel="next"' in link) == ("X-Next-Cursor" in headers)
        path = link.partition(">")[0].lstrip("<")
    assert seen == both[::-1]
    assert [s.id for s in admin.sandboxes.list({"test": "pages", "n": "1"}, status="running")] == [both[1]]

    # Two is what this workspace may have: the third is refused at once, until one has ended.
    with pytest.raises(RateLimitError, match="maximum of 2 sandboxes") as e:
        admin.sandboxes.create(TEMPLATE)
    assert e.value.retry_after == 10 and "max_sandboxes_per_workspace" in e.value.hint
    admin.sandboxes.delete(both[0])
    admin.sandboxes.create(TEMPLATE)


def test_too_many_calls(strict: Daemon, admin: Client) -> None:
    key = admin.tokens.create("busy", workspace="busy").token
    refused: list[dict] = []

    def flood() -> None:
        for _ in range(60):
            status, answer, headers = call(strict, key, "GET", "/v1/me")
            if status == 429:
                refused.append({**answer, "after": headers["Retry-After"]})

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert refused and {r["code"] for r in refused} == {"rate_limited"} and {r["after"] for r in refused} == {"1"}
    assert "rate_limit" in refused[0]["hint"]
    with Client(strict.url, key) as busy:  # its client waits, and others are not held up
        assert busy.me()["workspace"] == "busy"
    assert admin.me()["workspace"] == "local"


def test_all_keys_lost(strict: Daemon, admin: Client) -> None:
    sb = admin.sandboxes.create(TEMPLATE)
    sb.run_code("kept = 7")
    create = [BIN, "--quiet", "key", "create", "--on-host", "--label", "rescue", "--data-dir", str(strict.data)]
    busy = subprocess.run(create, env=strict.env, capture_output=True, text=True)
    assert busy.returncode == 1 and "already uses the data directory" in busy.stderr, busy
    assert strict.stop() == 0
    made = subprocess.run(create, env=strict.env, capture_output=True, text=True)
    strict.start()
    assert made.returncode == 0, made.stderr
    with Client(strict.url, made.stdout.strip()) as rescued:
        assert rescued.me()["scopes"][-1] == "admin"
        assert rescued.sandboxes.get(sb.id).run_code("kept").text == "7"


def test_no_key_is_written_anywhere(strict: Daemon, admin: Client) -> None:
    """Runs last: neither the log nor the data directory has any of the keys, wherever they were sent."""
    secret = admin.tokens.create("secret").token
    for path in (f"/v1/me/tokens/{secret}", f"/v1/sandboxes/{secret}", f"/v1/{secret}?access_token={secret}"):
        call(strict, secret, "DELETE", path, None, X_Request_Id=secret, User_Agent=secret)
    log = strict.log.read_text(errors="replace")
    assert secret[:12] in log, "the requests are there"
    strict.process.send_signal(signal.SIGTERM)
    strict.process.wait(60)
    for known in (secret, strict.key):
        assert known[12:] not in strict.log.read_text(errors="replace")
        for folder, _, files in os.walk(strict.data):
            for name in files:
                path = os.path.join(folder, name)
                if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > 64 << 20:
                    continue
                with open(path, "rb") as f:
                    assert known[12:].encode() not in f.read(), path
    strict.start()
