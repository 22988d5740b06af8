"""Commands in a sandbox: run one and wait, or start one and keep hold of it."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any, AsyncIterator, Callable, Dict, List, Optional, Union

from .. import _checks
from .. import _routes as routes
from .._request import Request, Upload
from ..errors import APIConnectionError, CommandError, ConflictError, NotFoundError, PandastackError, SandboxTimeout
from ..events import CommandAssembly, Event
from ..records import ExecResult, ProcessInfo
from .client import AsyncClient
from .transport import Background, beside, call

Command = Union[str, List[str]]
Input = Union[str, bytes, Upload]
Callback = Optional[Callable[[str], Any]]

INLINE_INPUT = 1 << 20  # characters of input that go with the request; more is streamed


class AsyncStdin:
    """The standard input of a process: ``process.stdin``."""

    def __init__(self, process: "AsyncProcess") -> None:
        self._process = process

    async def write(self, data: Input) -> None:
        """As `AsyncProcess.send_stdin`."""
        await self._process.send_stdin(data)

    async def close(self) -> None:
        """As `AsyncProcess.close_stdin`."""
        await self._process.close_stdin()


class AsyncProcess:
    """A command that was started in the background. It lives in the sandbox, whoever is connected.

    Iterating over it gives its output as `stream` does.

    Attributes:
        pid: its number in the sandbox, good for `AsyncCommands.connect`.
        stdin: its standard input, with ``write`` and ``close``.
    """

    def __init__(
        self,
        client: AsyncClient,
        sandbox_id: str,
        pid: int,
        *,
        check: bool = False,
    ) -> None:
        self._client = client
        self._sandbox_id = sandbox_id
        self._check = check
        self._heard = CommandAssembly()
        self._hearing = threading.Lock()  # of what was heard
        self._listening: Optional[Background] = None
        self.pid = pid
        self.stdin = AsyncStdin(self)

    async def wait(
        self,
        timeout_seconds: Optional[float] = None,
        *,
        check: Optional[bool] = None,
        on_stdout: Callback = None,
        on_stderr: Callback = None,
    ) -> ExecResult:
        """Waits for its end and returns all of its output.

        Args:
            timeout_seconds: how long to wait; the process goes on after that. Default: until it ends.
            check: raise CommandError for a status other than 0. Default: as it was started.
            on_stdout, on_stderr: called with each piece of text (str) as it comes, from the start. Those that it was
                started with are called anyhow, and have been when this returns.

        Raises:
            SandboxTimeout: it did not end in time, or its own deadline ended it; has the output so far.
            CommandError: with `check`.
            NotFoundError: no such process or sandbox.
            Exception: what a callback raised; none is called any more after that. The process goes on.
        """
        callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        if self._listening is not None and not any(callbacks.values()):
            return await self._listened(timeout_seconds, check)

        async def hear(event: Event) -> None:
            await call(callbacks.get(event.type), event.text)

        return await self._wait(hear, timeout_seconds, check)

    async def _wait(
        self, hear: Callable[[Event], Any], timeout_seconds: Optional[float], check: Optional[bool]
    ) -> ExecResult:
        until = self._until(timeout_seconds)
        assembly = CommandAssembly()
        async for event in self._events(0, until):
            assembly.add(event)
            await hear(event)
        if self._listening is not None and assembly.ended is not None:
            await self._listening.join()
        return self._outcome(assembly, timeout_seconds, check)

    def _listen(self, hear: Callable[[Event], Any]) -> None:
        """Has `hear` called with its output as it comes, beside the caller."""

        async def listen() -> None:
            async for event in self._events(0, None):
                with self._hearing:
                    self._heard.add(event)
                await hear(event)

        self._listening = Background(listen)

    async def _listened(self, timeout_seconds: Optional[float], check: Optional[bool]) -> ExecResult:
        """As `_wait`, with what is heard beside."""
        assert self._listening is not None
        limit = None if timeout_seconds is None else _checks.seconds("timeout_seconds", timeout_seconds)
        if not await self._listening.join(limit) and limit is None:
            raise RuntimeError("wait was called by a callback of the process itself, which would wait for itself")
        with self._hearing:
            return self._outcome(self._heard, timeout_seconds, check)

    def _until(self, timeout_seconds: Optional[float]) -> Optional[float]:
        return None if timeout_seconds is None else time.monotonic() + _checks.seconds("timeout_seconds", timeout_seconds)

    def _outcome(self, assembly: CommandAssembly, timeout_seconds: Optional[float], check: Optional[bool]) -> ExecResult:
        if assembly.ended is None:
            stdout, stderr = assembly.output()
            words = f"process {self.pid} did not end within {timeout_seconds:g} s; it goes on"
            raise SandboxTimeout(words, stdout=stdout, stderr=stderr)
        result = assembly.ended
        if result.reason == "timeout":
            words = f"process {self.pid} was ended at its deadline, with all that it had started"
            raise SandboxTimeout(words, stdout=result.stdout, stderr=result.stderr)
        return _checked(f"process {self.pid}", result, self._check if check is None else check)

    def stream(self, after: int = 0) -> AsyncIterator[Event]:
        """Its output as events (`Event` of type stdout, stderr, gap), the last one of type exit.

        A broken connection is taken up again where it broke.

        Args:
            after: the number of the last event that you have; 0 for all that is kept.
        """
        return self._events(after, None)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.stream()

    async def send_stdin(self, data: Input, *, close: bool = False) -> None:
        """Writes to its standard input, as fast as it reads. It must have been started with ``stdin=True``.

        Args:
            data: bytes; str, which is encoded as UTF-8; or an open file, which is streamed from where it stands.
            close: say afterwards that there is no more.

        Raises:
            ConflictError: its standard input is closed, or it has ended without reading all.
            APIConnectionError: the connection broke; part of the data may have arrived.
        """
        if data:
            await self._client._send(routes.write_stdin(self._sandbox_id, self.pid, data))
        if close:
            await self.close_stdin()

    async def close_stdin(self) -> None:
        """Says that there is no more input. To a terminal it is a Ctrl-D."""
        await self._client._send(routes.close_stdin(self._sandbox_id, self.pid))

    async def signal(self, signal: Union[str, int]) -> None:
        """Sends a signal to it and the rest of its process group.

        Args:
            signal: "SIGTERM", "TERM" or 15.

        Raises:
            NotFoundError: it is not there.
            ConflictError: it has ended.
        """
        await self._client._send(routes.signal_process(self._sandbox_id, self.pid, signal))

    async def kill(self) -> None:
        """Kills it and all of its session. Does nothing when it has ended.

        What has made itself a session of its own, with `setsid`, stays.
        """
        try:
            await self._client._send(routes.kill_process(self._sandbox_id, self.pid))
        except NotFoundError:
            pass

    async def info(self) -> ProcessInfo:
        """Its command, whether it runs, how it ended.

        Raises:
            NotFoundError: it is not there.
        """
        return ProcessInfo.from_wire((await self._client._send(routes.get_process(self._sandbox_id, self.pid))).object())

    async def _feed(self, data: Input) -> None:
        """Gives it all of its input. A program need not read it; one that can't have it all must not wait for it."""
        try:
            await self.send_stdin(data, close=True)
        except ConflictError:
            pass
        except BaseException:
            await self._kill_quietly()
            raise

    async def _kill_quietly(self) -> None:
        """Kills it on the way out of another error, which is the one to be seen."""
        try:
            await self.kill()
        except PandastackError:
            pass

    def __repr__(self) -> str:
        return f"{type(self).__name__}(pid={self.pid}, sandbox={self._sandbox_id!r})"

    def _events(self, after: int, until: Optional[float]) -> AsyncIterator[Event]:
        after = _checks.whole("after", after, least=0)
        return self._client._follow(
            routes.stream_process(self._sandbox_id, self.pid, after),
            lambda seq: routes.stream_process(self._sandbox_id, self.pid, seq),
            after=after,
            until=until,
        )


class AsyncCommands:
    """Commands: ``sandbox.commands``."""

    def __init__(self, client: AsyncClient, sandbox_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id

    async def run(
        self,
        cmd: Command,
        *,
        background: bool = False,
        timeout_seconds: Optional[float] = None,
        cwd: str = "/workspace",
        envs: Optional[Dict[str, str]] = None,
        user: Union[None, str, int] = None,
        stdin: Union[None, bool, Input] = None,
        check: bool = False,
        tag: Optional[str] = None,
        on_stdout: Callback = None,
        on_stderr: Callback = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """Runs a command.

        Args:
            cmd: a str for the shell (bash), or a list of arguments.
            background: return an `AsyncProcess` at once instead of waiting.
            timeout_seconds: its deadline, which ends all of its session. Default: 60, none in the background. `timeout`
                means the same.
            cwd: its working folder.
            envs: variables beside those of the sandbox.
            user: a name or number. Default: root.
            stdin: all of its standard input: str, bytes, or an open file, of any size; in the background that is sent
                before this returns. True (in the background) keeps it open for `send_stdin`. Default: none.
            check: raise CommandError for a status other than 0; in the background `wait` does.
            tag: a name for it in lists, unique while it runs. In the background.
            on_stdout, on_stderr: called with each piece of text (str) as it comes; in the background from a thread (in
                asyncio, a task) of their own. What they raise, `wait` raises.

        Returns:
            An `ExecResult`, or an `AsyncProcess` in the background.

        Raises:
            SandboxTimeout: it did not end in time; has the output so far.
            CommandError: with `check`.
            NotFoundError: no such sandbox.
            APIConnectionError: the connection broke and could not be made again; the command may have run.
        """
        _checks.callback("on_stdout", on_stdout)
        _checks.callback("on_stderr", on_stderr)
        if timeout is not None:
            if timeout_seconds is not None:
                raise TypeError("give timeout_seconds or timeout, not both")
            timeout_seconds = timeout
        if background:
            keep = stdin is not None and stdin is not False
            process = await self._start(cmd, timeout_seconds, cwd, envs, user, keep, tag)
            process._check = check
            if on_stdout is not None or on_stderr is not None:
                callbacks = {"stdout": on_stdout, "stderr": on_stderr}

                async def hear(event: Event) -> None:
                    await call(callbacks.get(event.type), event.text)

                process._listen(hear)
            if stdin is not None and not isinstance(stdin, bool):
                await process._feed(stdin)
            return process
        if isinstance(stdin, bool) or tag is not None:
            raise TypeError("stdin=True and tag= need background=True")
        timeout_seconds = 60 if timeout_seconds is None else timeout_seconds
        if on_stdout is None and on_stderr is None:
            return await self._exec(cmd, timeout_seconds, cwd, envs, user, stdin, check)
        return await self._watched(cmd, timeout_seconds, cwd, envs, user, stdin, check, on_stdout, on_stderr)

    async def list(self) -> List[ProcessInfo]:
        """The processes that were started through the API, ended ones for a while too."""
        answer = await self._client._send(routes.list_processes(self._sandbox_id))
        return [ProcessInfo.from_wire(body) for body in answer.items("processes")]

    async def connect(self, pid: int) -> AsyncProcess:
        """The process with this number, started by whomever through the API.

        Raises:
            NotFoundError: there is none.
        """
        await self._client._send(routes.get_process(self._sandbox_id, pid))
        return AsyncProcess(self._client, self._sandbox_id, pid)

    async def kill(self, pid: int) -> bool:
        """Kills a process and all of its session.

        Returns:
            False when there is none with this number.
        """
        try:
            await self._client._send(routes.kill_process(self._sandbox_id, pid))
        except NotFoundError:
            return False
        return True

    async def _exec(
        self,
        cmd: Command,
        timeout_seconds: float,
        cwd: str,
        envs: Optional[Dict[str, str]],
        user: Union[None, str, int],
        stdin: Optional[Input],
        check: bool,
    ) -> ExecResult:
        if not (stdin is None or isinstance(stdin, str) and len(stdin) <= INLINE_INPUT):
            return await self._watched(cmd, timeout_seconds, cwd, envs, user, stdin, check, None, None)
        execution_id = str(uuid.uuid4())

        def request(attach: bool) -> Request:
            return routes.exec_command(
                self._sandbox_id, cmd, timeout_seconds=timeout_seconds, cwd=cwd, envs=envs, user=user, stdin=stdin,
                execution_id=execution_id, attach=attach,
            )

        try:
            answer = await self._client._send(request(False))
        except APIConnectionError as error:
            if not error.sent or error.timed_out:
                raise
            answer = await self._client._send(request(True))  # it goes on without us
        body = answer.object()
        result = ExecResult.from_wire(body)
        if body.get("timed_out"):
            words = f"the command did not end within {timeout_seconds:g} s"
            raise SandboxTimeout(words, code="timeout", stdout=result.stdout, stderr=result.stderr, response=body)
        return _checked("the command", result, check)

    async def _watched(
        self,
        cmd: Command,
        timeout_seconds: float,
        cwd: str,
        envs: Optional[Dict[str, str]],
        user: Union[None, str, int],
        stdin: Optional[Input],
        check: bool,
        on_stdout: Callback,
        on_stderr: Callback,
    ) -> ExecResult:
        """Runs a command as a process, with its input streamed while its output is followed."""
        process = await self._start(cmd, timeout_seconds, cwd, envs, user, stdin is not None, None)
        process._check = check
        try:
            if stdin is None:
                return await process.wait(on_stdout=on_stdout, on_stderr=on_stderr)
            whole: Input = stdin
            result: ExecResult = await beside(
                lambda: process._feed(whole), lambda: process.wait(on_stdout=on_stdout, on_stderr=on_stderr)
            )
            return result
        except (CommandError, SandboxTimeout):
            raise
        except BaseException:  # nobody has a handle on it any more
            await process._kill_quietly()
            raise

    async def _start(
        self,
        cmd: Command,
        timeout_seconds: Optional[float],
        cwd: str,
        envs: Optional[Dict[str, str]],
        user: Union[None, str, int],
        stdin: bool,
        tag: Optional[str],
    ) -> AsyncProcess:
        request = routes.start_process(
            self._sandbox_id,
            cmd,
            timeout_seconds=timeout_seconds,
            cwd=cwd,
            envs=envs,
            user=user,
            stdin=stdin,
            tag=tag,
        )
        body = (await self._client._send(request)).object()
        return AsyncProcess(self._client, self._sandbox_id, body["pid"])


def _checked(what: str, result: ExecResult, checked: bool) -> ExecResult:
    if checked and result.exit_code != 0:
        tail = result.stderr.strip()[-400:]
        words = f"{what} ended with status {result.exit_code}" + (f": {tail}" if tail else "")
        if result.reason == "oom":
            words = f"{what} was ended because the sandbox ran out of memory"
        raise CommandError(words, exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr)
    return result
