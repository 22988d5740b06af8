"""Terminals in a sandbox: programs that want one, such as a shell, an editor or a password prompt."""

from __future__ import annotations

from typing import Any, AsyncIterator, Callable, Dict, List, Optional, Union

from .. import _checks
from .. import _routes as routes
from ..errors import NotFoundError
from ..events import Event
from ..records import ExecResult, ProcessInfo
from .client import AsyncClient
from .commands import AsyncProcess, Command, Input
from .transport import call

OnData = Optional[Callable[[bytes], Any]]


class AsyncTerminal(AsyncProcess):
    """A process with a terminal. It lives in the sandbox, whoever is connected, and its input is always open.

    All that it writes is one stream of bytes, with the escape sequences of the terminal in it. Iterating over it gives
    events as `stream` does, which have numbers to come back to; `output` gives the bytes.

    Attributes:
        pid: its number in the sandbox, good for `AsyncPty.connect`.
    """

    def __init__(self, client: AsyncClient, sandbox_id: str, pid: int, *, on_data: OnData = None) -> None:
        super().__init__(client, sandbox_id, pid)
        if on_data is not None:
            self._listen(_hearer(on_data))

    async def resize(self, rows: int, cols: int) -> None:
        """Sets the size; programs in the foreground are told by SIGWINCH.

        Raises:
            ConflictError: it has ended.
        """
        await self._client._send(routes.resize_process(self._sandbox_id, self.pid, rows, cols))

    async def output(self, after: int = 0) -> AsyncIterator[bytes]:
        """What it writes, as it comes, to its end. `after` is the number of an event: see `stream`."""
        async for event in self._events(after, None):
            if event.type == "stdout":
                yield event.content

    async def wait(  # type: ignore[override]
        self, timeout_seconds: Optional[float] = None, *, check: Optional[bool] = None, on_data: OnData = None
    ) -> ExecResult:
        """Waits for its end and returns all of its output, as text, in `stdout`.

        Args:
            timeout_seconds: how long to wait; the process goes on after that. Default: until it ends.
            check: raise CommandError for a status other than 0.
            on_data: called with each piece of output (bytes) as it comes, from the start. That which it was started with
                is called anyhow, and has been when this returns.

        Raises:
            SandboxTimeout: it did not end in time, or its own deadline ended it; has the output so far.
            CommandError: with `check`.
        """
        if self._listening is not None and on_data is None:
            return await self._listened(timeout_seconds, check)
        return await self._wait(_hearer(on_data), timeout_seconds, check)


def _hearer(on_data: OnData) -> Callable[[Event], Any]:
    async def hear(event: Event) -> None:
        if event.type == "stdout":
            await call(on_data, event.content)

    return hear


class AsyncPty:
    """Terminals: ``sandbox.pty``."""

    def __init__(self, client: AsyncClient, sandbox_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id

    async def create(
        self,
        cmd: Optional[Command] = None,
        *,
        rows: int = 24,
        cols: int = 80,
        cwd: str = "/workspace",
        envs: Optional[Dict[str, str]] = None,
        user: Union[None, str, int] = None,
        timeout_seconds: Optional[float] = None,
        tag: Optional[str] = None,
        on_data: OnData = None,
    ) -> AsyncTerminal:
        """Starts a shell, or `cmd`, with a terminal of its own, and returns at once.

        Args:
            cmd: a str for the shell (bash), or a list of arguments. Default: a login shell.
            rows, cols: the size of the terminal, at most 1000 each.
            cwd: its working folder.
            envs: variables beside those of the sandbox. ``TERM`` is ``xterm-256color`` unless you say otherwise.
            user: a name or number. Default: root.
            timeout_seconds: its deadline, which ends all of its session. Default: none.
            tag: a name for it in lists, unique while it runs.
            on_data: called with each piece of output (bytes) as it comes, from a thread (in asyncio, a task) of its own.
                What it raises, `wait` raises.

        Raises:
            NotFoundError: no such sandbox.
            ServerError: the agent in the sandbox is of an earlier version and has no terminals (status 501).
        """
        _checks.callback("on_data", on_data)
        request = routes.start_process(
            self._sandbox_id,
            ["/bin/bash", "-l"] if cmd is None else cmd,
            timeout_seconds=timeout_seconds,
            cwd=cwd,
            envs=envs,
            user=user,
            stdin=False,
            tag=tag,
            pty=(rows, cols),
        )
        body = (await self._client._send(request)).object()
        return AsyncTerminal(self._client, self._sandbox_id, body["pid"], on_data=on_data)

    async def connect(self, pid: int, *, on_data: OnData = None) -> AsyncTerminal:
        """The terminal of the process with this number, started by whomever. `on_data` is as in `create`, from the start.

        Raises:
            NotFoundError: there is no such process.
            ValueError: it has no terminal.
        """
        _checks.callback("on_data", on_data)
        body = (await self._client._send(routes.get_process(self._sandbox_id, pid))).object()
        if not body.get("pty"):
            raise ValueError(f"process {pid} has no terminal: use commands.connect")
        return AsyncTerminal(self._client, self._sandbox_id, pid, on_data=on_data)

    async def list(self) -> List[ProcessInfo]:
        """The processes with a terminal, ended ones for a while too."""
        answer = await self._client._send(routes.list_processes(self._sandbox_id))
        return [info for info in map(ProcessInfo.from_wire, answer.items("processes")) if info.pty]

    async def send_stdin(self, pid: int, data: Input) -> None:
        """Types into the terminal of a process: bytes, or str as UTF-8.

        Raises:
            ConflictError: it has ended.
        """
        await self._client._send(routes.write_stdin(self._sandbox_id, pid, data))

    async def resize(self, pid: int, rows: int, cols: int) -> None:
        """Sets the size of the terminal of a process."""
        await self._client._send(routes.resize_process(self._sandbox_id, pid, rows, cols))

    async def kill(self, pid: int) -> bool:
        """Kills a process and all of its session. False when there is none with this number."""
        try:
            await self._client._send(routes.kill_process(self._sandbox_id, pid))
        except NotFoundError:
            return False
        return True
