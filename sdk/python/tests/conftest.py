from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Iterator

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_server import FakeServer  # noqa: E402
from surfaces import Blocking, Surface  # noqa: E402

import pandastack  # noqa: E402


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PANDASTACK_API", "PANDASTACK_API_URL", "PANDASTACK_API_KEY", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("pandastack._config.SYSTEM_CONFIG", tmp_path / "none")


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    server = FakeServer().start()
    yield server
    server.stop()


@pytest.fixture(params=["sync", "async"])
def surface(request: pytest.FixtureRequest, fake: FakeServer) -> Iterator[Surface]:
    if request.param == "sync":
        yield Surface(pandastack.Client, pandastack.Sandbox, pandastack.Agent, fake)
        return
    loop = asyncio.new_event_loop()
    try:
        yield Surface(*(Blocking(kind, loop) for kind in (pandastack.AsyncClient, pandastack.AsyncSandbox, pandastack.AsyncAgent)), fake)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
