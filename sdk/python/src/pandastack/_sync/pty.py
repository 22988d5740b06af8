# Generated from ../_async/pty.py by tools/generate_sync.py: change that file, then run the tool.
"""Terminals in a sandbox: programs that want one, such as a shell, an editor or a password prompt."""

from __future__ import annotations

from typing import Any, Iterator, Callable, Dict, List, Optional, Union

from .. import _checks
from .. import _routes as routes
from ..errors import NotFoundError
from ..events import Event
from ..records import ExecResult, ProcessInfo
from .client import Client
from .commands import Process, Command, Input
from .transport import call

OnData = Optional[Callable[[bytes], Any]]


class Terminal(Process):
    """A process with a terminal. It lives in the sandbox, whoever is connected, and its input is always open.

    All that it writes is one stream of bytes, with the escape sequences of the terminal in it. Iterating over it gives
    events as `stream` does, which have numbers to come back to; `output` gives the bytes.

    Attributes:
        pid: its number in the sandbox, good for `Pty.connect`.
    """

    def __init__(self, client: Client, sandbox_id: str, pid: int, *, on_data: OnData = None) -> None:
        super().__init__(client, sandbox_id, pid)
        if on_data is not None:
            self._listen(_hearer(on_data))

    def resize(self, rows: int, cols: int) -> None:
        """Sets the size; programs in the foreground are told by SIGWINCH.

        Raises:
            ConflictError: it has ended.
        """
        self._client._send(routes.resize_process(self._sandbox_id, self.pid, rows, cols))

    def output(self, after: int = 0) -> Iterator[bytes]:
        """What it writes, as it comes, to its end. `after` is the number of an event: see `stream`."""
        for event in self._events(after, None):
            if event.type == "stdout":
                yield event.content

    def wait(  # type: ignore[override]
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
            return self._listened(timeout_seconds, check)
        return self._wait(_hearer(on_data), timeout_seconds, check)


def _hearer(on_data: OnData) -> Callable[[Event], Any]:
    def hear(event: Event) -> None:
        if event.type == "stdout":
            call(on_data, event.content)

    return hear


class Pty:
    """Terminals: ``sandbox.pty``."""

    def __init__(self, client: Client, sandbox_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id

    def create(
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
    ) -> Terminal:
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
        body = (self._client._send(request)).object()
        return Terminal(self._client, self._sandbox_id, body["pid"], on_data=on_data)

    def connect(self, pid: int, *, on_data: OnData = None) -> Terminal:
        """The terminal of the process with this number, started by whomever. `on_data` is as in `create`, from the start.

        Raises:
            NotFoundError: there is no such process.
            ValueError: it has no terminal.
        """
        _checks.callback("on_data", on_data)
        body = (self._client._send(routes.get_process(self._sandbox_id, pid))).object()
        if not body.get("pty"):
            raise ValueError(f"process {pid} has no terminal: use commands.connect")
        return Terminal(self._client, self._sandbox_id, pid, on_data=on_data)

    def list(self) -> List[ProcessInfo]:
        """The processes with a terminal, ended ones for a while too."""
        answer = self._client._send(routes.list_processes(self._sandbox_id))
        return [info for info in map(ProcessInfo.from_wire, answer.items("processes")) if info.pty]

    def send_stdin(self, pid: int, data: Input) -> None:
        """Types into the terminal of a process: bytes, or str as UTF-8.

        Raises:
            ConflictError: it has ended.
        """
        self._client._send(routes.write_stdin(self._sandbox_id, pid, data))

    def resize(self, pid: int, rows: int, cols: int) -> None:
        """Sets the size of the terminal of a process."""
        self._client._send(routes.resize_process(self._sandbox_id, pid, rows, cols))

    def kill(self, pid: int) -> bool:
        """Kills a process and all of its session. False when there is none with this number."""
        try:
            self._client._send(routes.kill_process(self._sandbox_id, pid))
        except NotFoundError:
            return False
        return True
