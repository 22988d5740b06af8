from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_server import KEY, FakeServer  # noqa: E402

import pandastack  # noqa: E402


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if "live" in str(request.path):
        return
    for name in ("PANDASTACK_API", "PANDASTACK_API_URL", "PANDASTACK_API_KEY", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    server = FakeServer().start()
    yield server
    server.stop()


class Blocking:
    """The asynchronous surface behind synchronous calls, so that one test exercises both."""

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._target, self._loop = target, loop

    def __getattr__(self, name: str) -> Any:
        return self._wrap(getattr(self._target, name))

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._wrap(self._finish(self._target(*args, **options)))

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self._finish(self._target.__anext__())
            except StopAsyncIteration:
                return

    def __enter__(self) -> Any:
        return self._wrap(self._finish(self._target.__aenter__()))

    def __exit__(self, *error: Any) -> Any:
        return self._finish(self._target.__aexit__(*error))

    def __repr__(self) -> str:
        return repr(self._target)

    def _finish(self, made: Any) -> Any:
        if not hasattr(made, "__await__"):
            return made

        async def wait() -> Any:
            return await made

        return self._loop.run_until_complete(wait())

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._wrap(item) for item in value]
        module = getattr(type(value), "__module__", "")
        if callable(value) or module.startswith("pandastack._async") or hasattr(value, "__anext__"):
            return Blocking(value, self._loop)
        return value


class Surface:
    """`Client` and `Sandbox` of one of the two surfaces."""

    def __init__(self, client: Any, sandbox: Any, server: FakeServer) -> None:
        self.Client, self.Sandbox, self.server = client, sandbox, server

    def client(self, **options: Any) -> Any:
        return self.Client(self.server.url, KEY, **options)

    def sandbox(self, **options: Any) -> Any:
        return self.client(**options).sandboxes.create("code-interpreter")


@pytest.fixture(params=["sync", "async"])
def surface(request: pytest.FixtureRequest, fake: FakeServer) -> Iterator[Surface]:
    if request.param == "sync":
        yield Surface(pandastack.Client, pandastack.Sandbox, fake)
        return
    loop = asyncio.new_event_loop()
    try:
        yield Surface(Blocking(pandastack.AsyncClient, loop), Blocking(pandastack.AsyncSandbox, loop), fake)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
