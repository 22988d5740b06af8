"""What an operator sees: events, logs, metrics, request ids, and an upgrade under running sandboxes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Iterator

import pytest
from daemon import BIN, ROOT, TEMPLATES, Daemon
from pandastack import AuthError, Client, PandastackError, Sandbox


def ask(d: Daemon, path: str, **headers: str) -> str:
    request = urllib.request.Request(d.url + path, headers={"Authorization": f"Bearer {d.key}", **headers})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


def test_one_request_id_leads_from_the_client_into_the_agents_log(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    path = f"/v1/sandboxes/{shared_sandbox.id}/repl/sessions"
    ask(daemon, path, **{"X-Request-Id": "from-the-outside"})
    assert "request_id=from-the-outside method=GET path=/contexts" in shared_sandbox.logs("stderr")
    assert '"request_id":"from-the-outside"' in daemon.log.read_text()


def test_the_life_of_a_real_sandbox_can_be_read(daemon: Daemon) -> None:
    sb = Sandbox.create(template="code-interpreter", ttl_seconds=120, api_url=daemon.url, api_key=daemon.key)
    sb.run_code("while True: pass", timeout_seconds=1)
    sb.run_code("import os; os._exit(3)")
    sb.kill()
    events = list(sb.events(follow=True))  # ends with the sandbox
    types = [e.type for e in events]
    assert types[:2] == ["created", "ready"] and types[-2:] == ["killed", "ended"]
    ends = [e.payload["end"] for e in events if e.type == "cell_ended"]
    assert ends == ["timeout", "kernel_died"]
    assert events[-2].payload["by"] == daemon.key[:12]
    everything = json.loads(ask(daemon, "/v1/events?tail=1000"))["events"]
    assert [e["id"] for e in everything if e["sandbox_id"] == sb.id] == [e.id for e in events]


def test_metrics_count_real_sandboxes(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    def numbers() -> "dict[str, float]":
        lines = (line.rsplit(" ", 1) for line in ask(daemon, "/metrics").splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    before = numbers()
    shared_sandbox.run_code("1 / 0")
    after = numbers()
    name = 'pandastack_cell_seconds_count{end="error"}'
    assert after[name] == before[name] + 1
    assert after['pandastack_sandboxes{state="running"}'] >= 1 and after["pandastack_ready"] == 1
    assert after["pandastack_sandboxes_memory_bytes"] > 20e6 and after["process_resident_memory_bytes"] > 5e6


# What those suffer from who run such systems themselves.


def test_the_clock_inside_is_the_hosts(shared_sandbox: Sandbox) -> None:
    before = time.time()
    inside = float(shared_sandbox.exec("date +%s.%N").stdout)
    assert before - 2 < inside < time.time() + 2


def test_one_address_serves_commands_code_and_files(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    """Given once, in the environment: nothing goes anywhere else."""
    code = f"""
from pandastack import Sandbox
sb = Sandbox.get({shared_sandbox.id!r})
sb.filesystem.write("/workspace/one-address", "x")
print(sb.exec("cat one-address").stdout + sb.run_code("open('/workspace/one-address').read()").text)
"""
    done = subprocess.run([sys.executable, "-c", code], env=daemon.env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "x'x'\n", done.stderr


def test_keys_of_any_form_are_the_servers_to_judge(daemon: Daemon) -> None:
    with pytest.raises(AuthError):
        Client(daemon.url, "other_" + "0" * 32).me()


def test_a_missing_gvisor_is_named_with_its_fix(daemon: Daemon) -> None:
    done = subprocess.run([BIN, "--json", "doctor", "--set", "runsc=/nowhere/runsc", "--data-dir", daemon.data],
                          env=daemon.env, capture_output=True, text=True, timeout=60)
    checks = {c["id"]: c for c in json.loads(done.stdout)}
    assert done.returncode == 1 and not checks["driver"]["ok"]
    assert "/nowhere/runsc" in checks["driver"]["detail"] and checks["driver"]["fix"]


def test_a_machine_that_serves_passes_its_checks(daemon: Daemon) -> None:
    done = subprocess.run([BIN, "--json", "doctor", "--data-dir", daemon.data, "--set", f"templates_dir={TEMPLATES}",
                           "--set", f"listen=127.0.0.1:{daemon.port}"], env=daemon.env, capture_output=True, text=True, timeout=60)
    checks = json.loads(done.stdout)
    assert done.returncode == 0 and all(c["ok"] for c in checks), [c for c in checks if not c["ok"]]
    documented = (ROOT / "docs" / "operations.md").read_text()
    assert [c["id"] for c in checks if f"`{c['id']}`" not in documented] == []


# An upgrade: the release before has an agent that speaks the protocol of that time.


@pytest.fixture(scope="module")
def old_release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the daemon of a release before: this one's, with an agent of the version before inside."""
    if shutil.which("go") is None:
        pytest.fail("go is needed to build the release before")
    made = tmp_path_factory.mktemp("old")
    arch = subprocess.run(["go", "env", "GOHOSTARCH"], capture_output=True, text=True, check=True).stdout.strip()
    env = {**os.environ, "CGO_ENABLED": "0", "GOOS": "linux"}

    def build(*args: str) -> None:
        subprocess.run(["go", "build", "-trimpath", *args], cwd=ROOT, env=env, check=True, timeout=300)

    build("-buildvcs=false", "-tags", "previous", "-o", str(made / "guest"), "./cmd/pandastack-guest")
    inside = ROOT / "internal" / "daemon" / "programs" / arch / "guest"
    overlay = made / "overlay.json"
    overlay.write_text(json.dumps({"Replace": {str(inside): str(made / "guest")}}))
    build("-overlay", str(overlay), "-ldflags", "-X github.com/pandastack/pandastack/internal/daemon.version=before",
          "-o", str(made / "pandastack"), "./cmd/pandastack")
    (made / "runsc").symlink_to(BIN.parent / "runsc")
    yield made / "pandastack"


@pytest.mark.slow
def test_an_upgrade_keeps_sandboxes_with_the_agent_of_the_version_before(old_release: Path) -> None:
    d = Daemon(pool_ready=0, pool_prepared=0)
    # The same recipe under a name of its own: its files are there already, its memory snapshot is the old agent's.
    recipe = d.dir / "before"
    shutil.copytree(ROOT / "templates" / "code-interpreter", recipe)
    text = (recipe / "recipe.toml").read_text()
    (recipe / "recipe.toml").write_text(text.replace('name = "code-interpreter"', 'name = "before"', 1))
    try:
        built = subprocess.run([old_release, "template", "build", recipe, "--data-dir", d.data, "--set", f"templates_dir={TEMPLATES}"],
                               env=d.env, capture_output=True, text=True, timeout=300)
        assert built.returncode == 0, built.stderr
        d.program = old_release
        d.start()
        assert json.loads(ask(d, "/version"))["version"] == "before"
        sb = Sandbox.create(template="before", ttl_seconds=600, api_url=d.url, api_key=d.key)
        sb.run_code("kept = 'from before'")
        waiting = sb.commands.run("sleep 4; echo done", background=True)

        d.kill9()
        d.program = BIN
        d.start()
        assert json.loads(ask(d, "/version"))["version"] != "before"
        assert sb.run_code("kept").text == "'from before'"
        assert waiting.wait(timeout_seconds=60).stdout == "done\n"
        with pytest.raises(PandastackError) as refused:
            sb.logs()
        assert refused.value.status_code == 501 and "earlier version" in str(refused.value)
        types = [e.type for e in sb.events()]
        assert "adopted" in types and "link_lost" not in types[types.index("adopted") + 1:]
        # The template of the version before is still good for new sandboxes, too.
        other = Sandbox.create(template="before", ttl_seconds=60, api_url=d.url, api_key=d.key)
        assert other.run_code("6 * 7").text == "42"
        clean = [e["payload"]["clean"] for e in json.loads(ask(d, "/v1/events"))["events"] if e["type"] == "daemon_started"]
        assert clean == [True, False]
        other.kill()
        sb.kill()
    finally:
        if d.process is not None:
            d.stop()
        made = TEMPLATES / "names" / "before.json"
        if made.exists():
            shutil.rmtree(TEMPLATES / "snapshots" / json.loads(made.read_text())["digest"], ignore_errors=True)
            made.unlink()
        d.remove()
