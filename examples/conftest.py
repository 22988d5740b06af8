"""The examples run as a user runs them: as programs, against a daemon, with the scripted model.

The daemon is the one at PANDASTACK_API_URL, or one of the tests' own with real sandboxes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "test")]


@pytest.fixture(scope="session")
def environment() -> Iterator["dict[str, str]"]:
    """Variables with which a program finds the daemon."""
    if os.environ.get("PANDASTACK_API_URL"):
        yield {k: v for k, v in os.environ.items() if not k.startswith("OPENAI_")}
        return
    from daemon import Daemon

    daemon = Daemon(pool_ready=1, pool_prepared=1).start()
    try:
        yield {k: v for k, v in daemon.env.items() if not k.startswith("OPENAI_")}
    finally:
        daemon.stop()
        daemon.remove()


@pytest.fixture(autouse=True)
def settings(environment: "dict[str, str]", monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for code of an example that a test calls itself."""
    for name in ("PANDASTACK_API_URL", "PANDASTACK_API_KEY"):
        if name in environment:
            monkeypatch.setenv(name, environment[name])


@pytest.fixture
def run(environment: "dict[str, str]"):
    """Runs an example's program and returns what it printed."""

    def run(*arguments: "str | Path") -> str:
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
