"""OpenAI's Agents SDK: sandboxes for its `SandboxAgent`, with its shell, files, patches, snapshots and ports.

    config = SandboxRunConfig(client=PandastackSandboxClient())
    await Runner.run(SandboxAgent(name="Analyst"), "…", run_config=RunConfig(sandbox=config))
"""

from __future__ import annotations

import asyncio
import io
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, List, Literal, Optional, Tuple, Union
from urllib.parse import urlsplit

from .. import AsyncProcess, AsyncSandbox, AsyncTerminal
from ..errors import APIConnectionError, CapacityError, ConflictError, NotFoundError, PandastackError, RateLimitError
from ..events import Capture, Event
from .observation import MAX_OUTPUT, Figure, failure, require, to_the_end
from .openai_agents import python_tool

require("openai_agents_sandbox", "openai-agents 0.24")

from agents import Tool  # noqa: E402
from agents.sandbox import (  # noqa: E402
    Capability,
    ExecResult,
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortEndpoint,
    ExposedPortUnavailableError,
    Manifest,
    SnapshotSpec,
    User,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceWriteTypeError,
    resolve_snapshot,
)
from agents.sandbox.errors import MountConfigError, WorkspaceStartError  # noqa: E402
from agents.sandbox.session import (  # noqa: E402
    BaseSandboxClient,
    BaseSandboxClientOptions,
    BaseSandboxSession,
    Dependencies,
    Instrumentation,
    SandboxSession,
    SandboxSessionState,
)
from agents.sandbox.session.pty_types import (  # noqa: E402
    PtyExecUpdate,
    clamp_pty_yield_time_ms,
    resolve_pty_write_yield_time_ms,
    truncate_text_by_tokens,
)
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript  # noqa: E402
from agents.sandbox.snapshot import SnapshotBase  # noqa: E402
from pydantic import Field  # noqa: E402

__all__ = [
    "PandastackSandboxClient",
    "PandastackSandboxClientOptions",
    "PandastackSandboxSession",
    "PandastackSandboxSessionState",
    "Python",
]

_KEPT = b"pandastack snapshot "  # and its id: what stands for a workspace that is kept as one
_PIECE = 8 << 20  # bytes of a workspace that travel at once
_MOST = 16 << 20  # bytes of each output stream that `exec` gives
_LINK_SECONDS = 7 * 24 * 3600  # the longest that a signed link lives


class PandastackSandboxClientOptions(BaseSandboxClientOptions):
    """How sandboxes are made. They travel with the state of a session, so secrets don't belong here.

    Args:
        template: what a sandbox is made from.
        ttl_seconds: its life on the wall clock.
        idle_timeout_seconds: hibernate it when nobody calls for so long. Any call wakes it.
        envs: variables for all that runs in it; those of the manifest come on top.
        metadata, cpu, memory_mb, disk_mb, pids, network: as for `Sandbox.create`.
        exposed_ports: what `resolve_exposed_port` may be asked for.
        on_exit: what becomes of the sandbox when its session is shut down. "hibernate" keeps it asleep, with its memory,
            for a resume; also when its life is over.
        workspace_persistence: what a snapshot of the SDK holds: the files of the workspace ("tar"), or the id of a
            snapshot of the whole sandbox, with variables of interpreters and processes ("snapshot"), where nothing in the
            manifest is ephemeral.
    """

    type: Literal["pandastack"] = "pandastack"
    template: str = "code-interpreter"
    ttl_seconds: int = 3600
    idle_timeout_seconds: Optional[int] = None
    envs: Optional[Dict[str, str]] = None
    metadata: Optional[Dict[str, str]] = None
    cpu: Optional[float] = None
    memory_mb: Optional[int] = None
    disk_mb: Optional[int] = None
    pids: Optional[int] = None
    network: Optional[Dict[str, Any]] = None
    exposed_ports: Tuple[int, ...] = ()
    on_exit: Literal["kill", "hibernate"] = "kill"
    workspace_persistence: Literal["tar", "snapshot"] = "tar"


class PandastackSandboxSessionState(SandboxSessionState):
    """What a session is resumed from.

    Attributes:
        sandbox_id: the sandbox it was in.
        options: how another is made when that has ended.
        kept: the snapshot of the whole sandbox that was taken last, if any.
    """

    type: Literal["pandastack"] = "pandastack"
    sandbox_id: str
    options: PandastackSandboxClientOptions
    kept: Optional[str] = None


class Python(Capability):
    """The tool `run_python` beside the shell: an interpreter in the session's sandbox that keeps its state from call to
    call, and over a snapshot or sleep of the whole sandbox.

        SandboxAgent(name="Analyst", capabilities=[*Capabilities.default(), Python()])

    Args:
        timeout_seconds: the deadline of a call.
        show_figures: give the model its figures, too; for models that see, over the Responses API.
        on_figure: called with each `Figure`.
    """

    type: Literal["python"] = "python"
    timeout_seconds: float = 60
    show_figures: bool = False
    on_figure: Optional[Callable[[Figure], Any]] = Field(default=None, exclude=True)

    def tools(self) -> List[Tool]:
        inner = getattr(self.session, "_inner", self.session)
        if not isinstance(inner, PandastackSandboxSession):
            raise TypeError(f"Python() needs a session of PandastackSandboxClient, not {type(inner).__name__}")
        if self.run_as is not None:
            raise ValueError(f"Python() runs as root, and this agent as {self.run_as.name}: leave run_as out, or Python()")
        made = python_tool(
            inner.sandbox, timeout_seconds=self.timeout_seconds, show_figures=self.show_figures, on_figure=self.on_figure
        )
        return [made]


class _Bytes:
    """An output stream, as bytes, up to a size."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._lost = 0

    def add(self, piece: bytes) -> None:
        room = max(_MOST - len(self._kept), 0)
        self._kept += piece[:room]
        self._lost += len(piece[room:])

    def lose(self, count: int) -> None:
        """So many bytes were not kept in the sandbox, which its reader was too slow for."""
        self._kept += f"\n[... {count} bytes left out ...]\n".encode()

    def value(self) -> bytes:
        return bytes(self._kept) + (f"\n[... {self._lost} bytes left out ...]\n".encode() if self._lost else b"")


def _why(ended: Event) -> str:
    """What is to be known of the end of a command that neither its status nor its output says."""
    path, hint, reason = (ended.data.get(name) for name in ("output_path", "hint", "reason"))
    words = [f"[the whole output is in {path} of the sandbox]"] if path else []
    if reason == "timeout":
        words.append("[deadline] The command was ended at its deadline.")
    if hint:
        words.append(f"[{hint}]")
    return "".join(f"\n{line}" for line in words)


def _told(error: Optional[BaseException]) -> PtyExecUpdate:
    """A failure of the sandbox, for the model. An error of a tool that is raised is not shown to it."""
    text = failure(error).text if isinstance(error, PandastackError) else f"[error]\n{error}"
    return PtyExecUpdate(None, text.encode(), 1, None)


def _exec_error(command: Any, error: PandastackError) -> ExecTransportError:
    return ExecTransportError(command=command, message=str(error), cause=error, retryable=_again(error))


def _again(error: PandastackError) -> Optional[bool]:
    """Whether the same call may succeed later; None when that is not known."""
    if isinstance(error, (RateLimitError, CapacityError)):
        return True
    if isinstance(error, APIConnectionError):
        return None if error.sent else True
    return False


class _Running:
    """A command that the model may come back to, and how much of its output it has seen."""

    def __init__(self, process: AsyncProcess) -> None:
        self.process = process
        self.seen = 0  # the number of the last event
        self.hearing = asyncio.Lock()


class PandastackSandboxSession(BaseSandboxSession):
    """A session in a PandaStack sandbox. `PandastackSandboxClient` makes them.

    Attributes:
        sandbox: the `AsyncSandbox`, for what the SDK has no words for.
    """

    state: PandastackSandboxSessionState

    def __init__(self, state: PandastackSandboxSessionState, sandbox: AsyncSandbox, client: "PandastackSandboxClient") -> None:
        self.state = state
        self.sandbox = sandbox
        self._client = client
        self._root_is_there = False
        self._commands: Dict[int, _Running] = {}

    # Life

    async def _prepare_backend_workspace(self) -> None:
        await self.sandbox.filesystem.mkdir(self.state.manifest.root)
        self._root_is_there = True

    def _wrap_start_error(self, error: Exception) -> Exception:
        if not isinstance(error, PandastackError):
            return error
        wrapped: Exception = WorkspaceStartError(
            path=self._workspace_root_path(), message=str(error), cause=error, retryable=_again(error)
        )
        return wrapped

    def _runtime_helpers(self) -> Tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object:
        return self.state.sandbox_id

    async def running(self) -> bool:
        """Whether the session has started and its sandbox is there; one that sleeps is, since any call wakes it."""
        if not self._root_is_there:
            return False
        try:
            return (await self.sandbox.refresh()).status in ("running", "hibernated")
        except NotFoundError:
            return False

    async def _shutdown_backend(self) -> None:
        if self.state.options.on_exit == "hibernate":
            await self.sandbox.hibernate(carry_running=True)
        else:
            await self.sandbox.kill()

    # Commands

    async def _exec_internal(self, *command: Union[str, Path], timeout: Optional[float] = None) -> ExecResult:
        process = await self._start(command, timeout)
        streams = {"stdout": _Bytes(), "stderr": _Bytes()}
        ended: Optional[Event] = None
        try:
            async for event in process.stream():
                if event.type in streams:
                    streams[event.type].add(event.content)
                elif event.type == "gap" and event.stream in streams:
                    streams[event.stream].lose(event.dropped)
                elif event.is_last:
                    ended = event
        except PandastackError as error:
            raise _exec_error(command, error) from error
        finally:
            if ended is None:  # cancelled, or lost sight of
                await to_the_end(process._kill_quietly())
        if ended is None:
            raise ExecTransportError(command=command, message="the output of the command ended before the command")
        out, err = streams["stdout"].value(), streams["stderr"].value()
        if ended.data.get("reason") == "timeout":
            context = {"stdout": out.decode("utf-8", "replace"), "stderr": err.decode("utf-8", "replace")}
            raise ExecTimeoutError(command=command, timeout_s=timeout, context=context)
        return ExecResult(stdout=out, stderr=err + _why(ended).encode(), exit_code=ended.data.get("exit_code") or 0)

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: Union[str, Path],
        timeout: Optional[float] = None,
        shell: Union[bool, List[str]] = True,
        user: Union[None, str, User] = None,
        tty: bool = False,
        yield_time_s: Optional[float] = None,
        max_output_tokens: Optional[int] = None,
    ) -> PtyExecUpdate:
        """Starts a command and tells what it writes for so long. Its number is its pid in the sandbox.

        What goes wrong with the sandbox is told as output, since a model reads it.
        """
        try:
            process = await self._start(self._prepare_exec_command(*command, shell=shell, user=user), timeout, tty=tty)
        except ExecTransportError as error:
            return _told(error.cause)
        running = self._commands[process.pid] = _Running(process)
        milliseconds = clamp_pty_yield_time_ms(int(1000 * (10 if yield_time_s is None else yield_time_s)))
        return await self._hear(running, milliseconds / 1000, max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: Optional[float] = None,
        max_output_tokens: Optional[int] = None,
    ) -> PtyExecUpdate:
        """Types into a command that was started with `tty`, or with no `chars` hears what it has written since."""
        running = self._resolve_pty_session_entry(pty_processes=self._commands, session_id=session_id)
        if chars and not isinstance(running.process, AsyncTerminal):
            raise RuntimeError("stdin is not available for this process")  # words that the SDK looks for
        try:
            await running.process.send_stdin(chars)
        except ConflictError:
            pass  # it has ended, which its output tells
        except PandastackError as error:
            return _told(error)
        milliseconds = int(1000 * (yield_time_s or 0))
        milliseconds = resolve_pty_write_yield_time_ms(yield_time_ms=milliseconds, input_empty=not chars)
        return await self._hear(running, milliseconds / 1000, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        commands, self._commands = list(self._commands.values()), {}
        for running in commands:
            await running.process._kill_quietly()

    async def _start(self, command: Any, timeout: Optional[float], tty: bool = False) -> AsyncProcess:
        argv, user = [str(part) for part in command], None
        if argv[:2] == ["sudo", "-u"] and argv[3:4] == ["--"]:  # how the SDK writes a user
            user, argv = argv[2], argv[4:]
        options: Dict[str, Any] = {
            "cwd": self.state.manifest.root if self._root_is_there else "/",
            "envs": await self.state.manifest.environment.resolve(),
            "user": user,
            "timeout_seconds": timeout,
        }
        try:
            if tty:
                return await self.sandbox.pty.create(argv, **options)
            process: AsyncProcess = await self.sandbox.commands.run(argv, background=True, **options)
            return process
        except PandastackError as error:
            raise _exec_error(command, error) from error

    async def _hear(self, running: _Running, seconds: float, max_output_tokens: Optional[int]) -> PtyExecUpdate:
        """What a command has written that nobody has heard, until it ends or the time is over."""
        most = max(MAX_OUTPUT, 4 * (max_output_tokens or 0))
        heard, seen = Capture(most // 5, most - most // 5), running.seen
        ended: Optional[Event] = None

        async def listen() -> None:
            nonlocal ended, seen
            async for event in running.process.stream(seen):
                seen = event.seq
                if event.type in ("stdout", "stderr"):
                    heard.add(event.text or "")
                elif event.type == "gap":
                    heard.gap(event.dropped)
                elif event.is_last:
                    ended = event

        async with running.hearing:
            try:
                await asyncio.wait_for(listen(), seconds)
            except asyncio.TimeoutError:
                pass
            except PandastackError as error:
                return _told(error)
            running.seen = seen  # and not before: who is cancelled hears it again
        text = heard.text() + (_why(ended) if ended else "")
        tokens: Optional[int] = None
        if max_output_tokens is not None:
            text, tokens = truncate_text_by_tokens(text, max_output_tokens)
        if ended is None:
            return PtyExecUpdate(running.process.pid, text.encode(), None, tokens)
        self._commands.pop(running.process.pid, None)
        return PtyExecUpdate(None, text.encode(), ended.data.get("exit_code") or 0, tokens)

    # Files

    async def _validate_path_access(self, path: Union[Path, str], *, for_write: bool = False) -> Path:
        checked: Path = await self._validate_remote_path_access(path, for_write=for_write)
        return checked

    async def read(self, path: Path, *, user: Union[None, str, User] = None) -> io.IOBase:
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        return io.BytesIO(await self._content(path, None))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return await self._content(path, max_bytes)

    async def _content(self, path: Path, end: Optional[int]) -> bytes:
        there = (await self._validate_path_access(path)).as_posix()
        try:
            return await self.sandbox.filesystem.read(there, end=end)
        except NotFoundError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except PandastackError as error:
            if error.status_code == 416:  # there is nothing in it, and so no part of it
                return b""
            raise WorkspaceArchiveReadError(path=path, cause=error, context={"reason": str(error)}, retryable=_again(error)) from error

    async def write(self, path: Path, data: io.IOBase, *, user: Union[None, str, User] = None) -> None:
        content = data.read()
        if isinstance(content, str):
            content = content.encode()
        if not isinstance(content, (bytes, bytearray)):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
        there = (await self._validate_path_access(path, for_write=True)).as_posix()
        try:
            if user is None:
                await self.sandbox.filesystem.write(there, bytes(content))
                return
            # Written by the user, so that the file is the user's and what it may not write stays.
            name = user.name if isinstance(user, User) else user
            command = ["sh", "-c", 'mkdir -p -- "$(dirname -- "$1")" && cat >"$1"', "sh", there]
            done = await self.sandbox.exec(command, cwd="/", user=name, stdin=bytes(content), timeout_seconds=600)
        except PandastackError as error:
            raise WorkspaceArchiveWriteError(path=path, cause=error, context={"reason": str(error)}, retryable=_again(error)) from error
        if done.exit_code:
            raise WorkspaceArchiveWriteError(path=path, context={"reason": done.stderr.strip()}, retryable=False)

    # Ports

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        """The port's own name, with the token of a link in `query` that is good for a week."""
        at = urlsplit(self.sandbox.preview_url(port))
        try:
            link = urlsplit(await self.sandbox.signed_preview_url(port, _LINK_SECONDS))
        except PandastackError as error:
            raise ExposedPortUnavailableError(
                port=port, exposed_ports=self.state.exposed_ports, reason="backend_unavailable", cause=error
            ) from error
        tls, token = at.scheme == "https", link.path.strip("/").rpartition("/")[2]
        return ExposedPortEndpoint(at.hostname or "", at.port or (443 if tls else 80), tls, f"pandastack_token={token}")

    # The workspace, kept and brought back

    async def _persist_snapshot(self) -> None:
        before = self.state.kept
        await super()._persist_snapshot()
        if before is not None and before != self.state.kept:  # nothing refers to it any more
            try:
                await self.sandbox._client.snapshots.delete(before)
            except NotFoundError:
                pass  # somebody else removed it

    async def persist_workspace(self) -> io.IOBase:
        root, skipped = self._workspace_root_path(), sorted(path.as_posix() for path in self._persist_workspace_skip_relpaths())
        try:
            if self.state.options.workspace_persistence == "snapshot" and not skipped:
                kept = await self.sandbox.snapshot(f"openai-agents {self.state.session_id}", carry_running=True)
                self.state.kept = kept.id
                return io.BytesIO(_KEPT + kept.id.encode())
            there = f"/tmp/{uuid.uuid4().hex}.tar"
            without = [f"--exclude=./{path}" for path in skipped]
            try:
                await self._exec_checked_nonzero("tar", "--anchored", "--no-wildcards", *without, "-C", str(root), "-cf", there, ".")
                return await self._fetch(there)
            finally:
                await self.sandbox.exec(["rm", "-f", there], cwd="/")
        except PandastackError as error:
            raise WorkspaceArchiveReadError(path=root, cause=error, context={"reason": str(error)}, retryable=_again(error)) from error

    async def _fetch(self, path: str) -> io.IOBase:
        file = tempfile.TemporaryFile()
        try:
            size = (await self.sandbox.filesystem.stat(path)).size
            for start in range(0, size, _PIECE):
                file.write(await self.sandbox.filesystem.read(path, start=start, end=min(start + _PIECE, size)))
            file.seek(0)
            return file
        except BaseException:
            file.close()
            raise

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        first = data.read(len(_KEPT))
        try:
            if first == _KEPT:
                return await self._restore(data.read().decode())
            there = f"/tmp/{uuid.uuid4().hex}.tar"
            try:
                with tempfile.TemporaryFile() as file:
                    file.write(first)
                    shutil.copyfileobj(data, file)
                    file.seek(0)
                    await self.sandbox.filesystem.write(there, file)
                # What is in it is unpacked in there, where it can do no more than the commands of the agent.
                await self._exec_checked_nonzero("tar", "-C", str(root), "-xf", there)
            finally:
                await self.sandbox.exec(["rm", "-f", there], cwd="/")
        except PandastackError as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error, context={"reason": str(error)}, retryable=_again(error)) from error

    async def _restore(self, kept: str) -> None:
        """Goes on in a sandbox made from a snapshot, instead of that there is."""
        sandbox = await self._client._create(self.state.options, from_snapshot=kept)
        old, self.sandbox = self.sandbox, sandbox
        self.state.sandbox_id, self.state.kept = sandbox.id, kept
        self._set_start_state_preserved(True)  # its accounts are there
        await old.kill()


class PandastackSandboxClient(BaseSandboxClient[PandastackSandboxClientOptions]):
    """Makes sandboxes for agents, and finds them again.

    Args:
        api_url, api_key: as for `AsyncClient`; they are no part of a session's state.
        secrets: as for `Sandbox.create`; they aren't, either.
        instrumentation, dependencies: the SDK's, for its events and for snapshots that need a client.

    What this has no place for is refused when a session is made: entries of a manifest that mount other storage, and
    folders of this machine (`MountConfigError`, `ValueError`).
    """

    backend_id = "pandastack"
    supports_default_options = True

    def __init__(
        self,
        *,
        api_url: Optional[str] = None,
        api_key: Optional[str] = None,
        secrets: Any = None,
        instrumentation: Optional[Instrumentation] = None,
        dependencies: Optional[Dependencies] = None,
    ) -> None:
        self._server: Dict[str, Any] = {"api_url": api_url, "api_key": api_key}
        self._secrets = secrets
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: Union[None, SnapshotSpec, SnapshotBase] = None,
        manifest: Optional[Manifest] = None,
        options: Optional[PandastackSandboxClientOptions] = None,
    ) -> SandboxSession:
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        options = options or PandastackSandboxClientOptions()
        sandbox = await self._create(options)
        id = uuid.uuid4()
        state = PandastackSandboxSessionState(
            session_id=id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(id)),
            exposed_ports=options.exposed_ports,
            sandbox_id=sandbox.id,
            options=options,
        )
        return self._session(state, sandbox)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, PandastackSandboxSessionState):
            raise TypeError(f"this is the state of another kind of sandbox: {type(state).__name__}")
        state.assert_path_grants_rebound()
        self._validate_manifest_for_create(state.manifest)
        sandbox = await self._find(state.sandbox_id)
        if sandbox is not None:
            session = self._session(state, sandbox)
            session._inner._set_start_state_preserved(True)
            return session
        sandbox = await self._create(state.options)
        state.sandbox_id, state.workspace_root_ready = sandbox.id, False
        return self._session(state, sandbox)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Ends the sandbox, unless it is to sleep until it is resumed."""
        inner = session._inner
        if not isinstance(inner, PandastackSandboxSession):
            raise TypeError(f"this session is not in one of our sandboxes: {type(inner).__name__}")
        if inner.state.options.on_exit == "kill":
            await inner.sandbox.kill()
        return session

    def deserialize_session_state(self, payload: Dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, PandastackSandboxSessionState)

    def _validate_manifest_for_create(self, manifest: Manifest) -> Manifest:
        manifest = super()._validate_manifest_for_create(manifest)
        for _, path in manifest.mount_targets():
            raise MountConfigError(
                message=f"{path}: PandaStack sandboxes mount no other storage; let the agent fetch what it needs, with `network` "
                "and `secrets`, or copy it in"
            )
        for grant in manifest.extra_path_grants:
            if grant.host_path is not None:
                raise ValueError(f"{grant.path}: folders of this machine are not shown to PandaStack sandboxes; use a LocalDir entry")
        return manifest

    def _session(self, state: PandastackSandboxSessionState, sandbox: AsyncSandbox) -> SandboxSession:
        inner = PandastackSandboxSession(state, sandbox, self)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    async def _create(self, options: PandastackSandboxClientOptions, **more: Any) -> AsyncSandbox:
        return await AsyncSandbox.create(
            options.template,
            ttl_seconds=options.ttl_seconds,
            idle_timeout_seconds=options.idle_timeout_seconds,
            persistent=options.on_exit == "hibernate",
            metadata=options.metadata,
            envs=options.envs,
            cpu=options.cpu,
            memory_mb=options.memory_mb,
            disk_mb=options.disk_mb,
            pids=options.pids,
            network=options.network,
            secrets=self._secrets,
            **self._server,
            **more,
        )

    async def _find(self, id: str) -> Optional[AsyncSandbox]:
        """The sandbox of a state, awake, or None when it has ended."""
        try:
            sandbox = await AsyncSandbox.get(id, **self._server)
            if sandbox.status == "paused":
                await sandbox.resume()
            elif sandbox.status == "hibernated":
                await sandbox.wake()
            elif sandbox.status != "running":
                return None
        except NotFoundError:
            return None
        return sandbox
