"""The frameworks run for real; their models are scripted, on loopback, and whatever they send anywhere else is caught."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pandastack
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "test")]

from daemon import Daemon  # noqa: E402

# Frameworks tell their makers what they do, unless they are told not to.
QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true",
    "ANONYMIZED_TELEMETRY": "false", "LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1",
}


# Their wishes do not go together, so there are two environments, named for what they quarrel about.
EXAMPLES = {
    "openai-3": ["langchain", "deepagents", "openai", "openai_agents", "openai_agents_sandbox", "pydantic_ai", "pydantic_ai_workspace", "smolagents", "autogen"],
    "openai-2": ["crewai", "llamaindex"],
}
HERE = EXAMPLES.get(Path(sys.prefix).name, [])  # none elsewhere: make test-frameworks runs these
collect_ignore = [f"test_{name}.py" for names in EXAMPLES.values() for name in names if name not in HERE]
if not HERE:
    collect_ignore.append("test_examples.py")


class Outside(BaseHTTPRequestHandler):
    """The proxy that the world is behind: it lets nothing through and notes what wanted out."""

    tried: list[str] = []

    def handle_one_request(self) -> None:
        line = self.rfile.readline().decode(errors="replace").strip()
        if line:
            self.tried.append(line)
            self.wfile.write(b"HTTP/1.1 502 nobody leaves\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self.close_connection = True


@pytest.fixture(scope="session", autouse=True)
def outside() -> Iterator[list[str]]:
    """What went elsewhere than to loopback; nothing may."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Outside)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    proxy = f"http://127.0.0.1:{server.server_port}"
    os.environ.update(QUIET)
    for name, value in {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": "127.0.0.1"}.items():
        os.environ[name] = os.environ[name.lower()] = value
    yield Outside.tried
    server.shutdown()


@pytest.fixture(autouse=True)
def nothing_leaves(outside: list[str]) -> Iterator[None]:
    yield
    tried, outside[:] = list(outside), []
    assert tried == [], "it called somebody"


@pytest.fixture(autouse=True)
def settings(daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Clients in this process find the daemon, too, and frameworks keep their files in a folder that goes away."""
    for name in ("HOME", "XDG_CONFIG_HOME", "PANDASTACK_API_URL", "PANDASTACK_API_KEY"):
        monkeypatch.setenv(name, daemon.env[name])
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path / "crew"))
    monkeypatch.setenv("OPENAI_API_KEY", "scripted")
    monkeypatch.setenv("OPENAI_MODEL", "gpt-4o")


@pytest.fixture(scope="module")
def shared(daemon: Daemon) -> Iterator[pandastack.Sandbox]:
    with pandastack.Sandbox.create("code-interpreter", ttl_seconds=900, api_url=daemon.url, api_key=daemon.key) as sandbox:
        yield sandbox


@pytest.fixture
def example(tmp_path: Path) -> Any:
    """Runs an example as a user does, and returns what it printed; it leaves its files in `tmp_path`."""

    def run(name: str, base_url: str) -> str:
        env = {**os.environ, "OPENAI_BASE_URL": base_url, "OPENAI_API_BASE": base_url}
        program = [sys.executable, ROOT / "examples" / "frameworks" / name]
        done = subprocess.run(program, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        return done.stdout

    return run
