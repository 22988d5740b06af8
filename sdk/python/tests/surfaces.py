"""The two surfaces behind one set of synchronous calls, so that one test exercises both."""

from __future__ import annotations

import asyncio
from typing import Any, Iterator

from fake_server import KEY, FakeServer


class Blocking:
    """The asynchronous surface behind synchronous calls."""

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._target, self._loop = target, loop

    def __getattr__(self, name: str) -> Any:
        return self._wrap(getattr(self._target, name))

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._wrap(self._finish(self._target(*args, **options)))

    def __iter__(self) -> Iterator[Any]:
        iterator = self._target.__aiter__()
        while True:
            try:
                yield self._finish(iterator.__anext__())
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
    """`Client`, `Sandbox` and `Agent` of one of the two surfaces."""

    def __init__(self, client: Any, sandbox: Any, agent: Any, server: FakeServer) -> None:
        self.Client, self.Sandbox, self.Agent, self.server = client, sandbox, agent, server

    def client(self, **options: Any) -> Any:
        return self.Client(self.server.url, KEY, **options)

    def sandbox(self, **options: Any) -> Any:
        return self.client(**options).sandboxes.create("code-interpreter")
