"""Pydantic AI: a workspace for agents and their tools, with commands and files, in a sandbox.

    agent = Agent(model, capabilities=[SandboxWorkspace()])

    @agent.tool
    async def shell(ctx: RunContext, command: str) -> str:
        return (await ctx.workspace.run(command, shell=True)).stdout
"""

from __future__ import annotations

import asyncio
import posixpath
from typing import Any, Awaitable, Dict, List, Mapping, Optional, Sequence, TypeVar, Union

from .. import AsyncProcess, AsyncSandbox, FileInfo
from .._checks import seconds
from ..errors import BadRequestError, NotFoundError, PandastackError, SandboxTimeout
from .observation import require, to_the_end

require("pydantic_ai_workspace", "pydantic-ai-slim 2.68")

from pydantic_ai import RunContext  # noqa: E402
from pydantic_ai.capabilities import AbstractCapability  # noqa: E402
from pydantic_ai.workspaces import (  # noqa: E402
    CommandResult,
    FileEntry,
    SupportsCommands,
    SupportsFilesystem,
    SupportsRealpath,
    WorkspaceBackend,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

__all__ = ["SandboxWorkspace", "SandboxWorkspaceBackend"]

_PROVIDER = "pandastack"
_ROOT = "/workspace"
_LIMIT = 1 << 20  # bytes of an output stream that are kept whole
_REAL = "import os, sys; sys.stdout.write(os.path.realpath(sys.argv[1]))"
T = TypeVar("T")


class SandboxWorkspace(AbstractCapability[Any]):
    """Gives each run a sandbox, or the one that it goes on in, as ``ctx.workspace``.

    Nobody ends the sandbox but its time to live: whoever has the run's ref does, with ``Sandbox.get(ref.id).kill()``.

    Args:
        options: for `AsyncSandbox.create`; ``template`` is "code-interpreter" and ``ttl_seconds`` is 3600.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options

    def get_workspace(self, ctx: RunContext[Any], *, ref: Optional[WorkspaceRef]) -> Optional[WorkspaceBackend]:
        if ref is not None and ref.provider != _PROVIDER:
            return None
        return SandboxWorkspaceBackend(ref, **self._options)


class SandboxWorkspaceBackend(WorkspaceBackend, SupportsCommands, SupportsFilesystem, SupportsRealpath):
    """A workspace in a sandbox, for ``agent.run(workspace=…)``. It is made, or found, when it is first used.

    Args:
        ref: the sandbox to go on in: a `WorkspaceRef`, or an `AsyncSandbox` of yours. Default: a new one.
        options: for `AsyncSandbox.create`, as for `SandboxWorkspace`; of what is found, ``api_url`` and ``api_key``.
    """

    def __init__(self, ref: Union[None, WorkspaceRef, AsyncSandbox] = None, **options: Any) -> None:
        self._sandbox = ref if isinstance(ref, AsyncSandbox) else None
        self._ref = WorkspaceRef(provider=_PROVIDER, id=ref.id) if isinstance(ref, AsyncSandbox) else ref
        if self._ref is not None and self._ref.provider != _PROVIDER:
            raise ValueError(f"{self._ref} is no workspace of ours: its provider is not {_PROVIDER!r}")
        self._options = {"template": "code-interpreter", "ttl_seconds": 3600, **options}
        self._beginning: Optional[asyncio.Task[AsyncSandbox]] = None

    @property
    def ref(self) -> Optional[WorkspaceRef]:
        """The sandbox's identity, None before there is one."""
        return self._ref

    async def working_dir(self) -> str:
        await self._here()
        return _ROOT

    async def _here(self) -> AsyncSandbox:
        if self._sandbox is None:
            # One for all who come at once, and it goes on when one of them is cancelled.
            if self._beginning is None or self._beginning.done():
                self._beginning = asyncio.ensure_future(self._begin())
            return await asyncio.shield(self._beginning)
        return self._sandbox

    async def _begin(self) -> AsyncSandbox:
        server = {name: value for name, value in self._options.items() if name in ("api_url", "api_key")}
        if self._ref is None:
            sandbox = await AsyncSandbox.create(**self._options)
            self._ref = WorkspaceRef(provider=_PROVIDER, id=sandbox.id)
        else:
            try:
                sandbox = await AsyncSandbox.get(self._ref.id, **server)
            except NotFoundError as error:
                raise WorkspaceUnavailableError(str(error)) from error
            if sandbox.status in ("stopping", "deleted", "failed"):
                raise WorkspaceUnavailableError(f"the sandbox {sandbox.id} has ended: it is {sandbox.status}")
        self._sandbox = sandbox
        return sandbox

    # Commands

    async def run(
        self,
        command: Union[str, Sequence[str]],
        *,
        shell: bool = False,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> CommandResult:
        if isinstance(command, str) != shell:
            raise TypeError("a command is a string with shell=True, and a list of arguments without")
        limit = None if timeout is None else seconds("timeout", timeout)
        sandbox = await self._here()
        argv: Union[str, List[str]] = command if isinstance(command, str) else ["env", "--", *command]  # 127 for what is not there
        process: Optional[AsyncProcess] = None
        ended = False
        try:
            process = await sandbox.commands.run(argv, background=True, envs=dict(env or {}), timeout_seconds=limit)
            done = await process.wait()
            ended = True
        except SandboxTimeout as error:
            ended = True
            raise WorkspaceTimeoutError(str(error), stdout=error.stdout, stderr=error.stderr) from error
        except PandastackError as error:
            raise await self._unless_gone(error) from error
        finally:
            if process is not None and not ended:
                await to_the_end(process._kill_quietly())
        if done.truncated:
            words = f"the command wrote more than {_LIMIT} bytes; have it write to a file"
            raise WorkspaceOutputLimitError(words, limit=_LIMIT, stdout=done.stdout, stderr=done.stderr)
        return CommandResult(exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)

    # Files

    async def read_bytes(self, path: str) -> bytes:
        sandbox = await self._here()
        return await self._of(path, "read", sandbox.filesystem.read(path))

    async def write_bytes(self, path: str, data: bytes) -> None:
        sandbox = await self._here()
        await self._of(path, "write", sandbox.filesystem.write(path, data))

    async def stat(self, path: str) -> FileEntry:
        sandbox = await self._here()
        info = await self._of(path, "stat", sandbox.filesystem.stat(path))
        return (await self._entries([info], [path]))[0]

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        sandbox = await self._here()
        infos = await self._of(path, "list", sandbox.filesystem.list(path))
        return await self._entries(infos, [info.path for info in infos])

    async def _entries(self, infos: Sequence[FileInfo], paths: Sequence[str]) -> List[FileEntry]:
        """Entries as Pydantic AI wants them: a link to a folder is one."""
        links = [path for info, path in zip(infos, paths) if info.mode == "l"]
        folders = set()
        if links:
            told = await self.run(["sh", "-c", 'for path do test -d "$path" && echo y || echo n; done', "sh", *links])
            folders = {path for path, is_folder in zip(links, told.stdout.split()) if is_folder == "y"}
        return [
            FileEntry(
                name=posixpath.basename(path),
                path=path,
                is_dir=info.is_dir or path in folders,
                size=info.size if info.mode == "f" else None,
            )
            for info, path in zip(infos, paths)
        ]

    async def make_dir(self, path: str) -> None:
        sandbox = await self._here()
        await self._of(path, "make", sandbox.filesystem.mkdir(path))

    async def remove(self, path: str) -> None:
        sandbox = await self._here()
        parent, name = posixpath.split(posixpath.normpath(path))
        real = posixpath.join(await self.realpath(parent), name) if name else "/"
        if posixpath.commonpath([real, _ROOT]) == real:
            raise ValueError(f"{path} is the workspace, or above it, and is not removed")
        await self._of(path, "remove", sandbox.filesystem.remove(path, recursive=True))

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def realpath(self, path: str) -> str:
        done = await self.run(["python3", "-c", _REAL, path])
        if done.exit_code:
            raise OSError(done.stderr)
        return str(done.stdout)

    async def _of(self, path: str, what: str, call: Awaitable[T]) -> T:
        """Has a call fail with the errors that Python has for files."""
        try:
            return await call
        except PandastackError as error:
            raise await self._word(path, what, error) from error

    async def _word(self, path: str, what: str, error: PandastackError) -> Exception:
        if isinstance(error, NotFoundError):
            gone = await self._unless_gone(error)
            return FileNotFoundError(path) if gone is error else gone
        if not isinstance(error, BadRequestError):
            return error
        sandbox = await self._here()
        try:
            is_folder = (await sandbox.filesystem.stat(path)).is_dir
        except NotFoundError:
            return OSError(f"{path}: {error}")
        except BadRequestError:
            return NotADirectoryError(path)  # a part of it is a file
        if is_folder and what in ("read", "write"):
            return IsADirectoryError(path)
        if not is_folder and what in ("list", "make"):
            return NotADirectoryError(path) if what == "list" else FileExistsError(path)
        return OSError(f"{path}: {error}")

    async def _unless_gone(self, error: PandastackError) -> Exception:
        """The error, or the one for a sandbox that has ended, if that is behind it."""
        sandbox = await self._here()
        try:
            status = (await sandbox.refresh()).status
        except NotFoundError:
            status = "gone"
        if status in ("gone", "stopping", "deleted", "failed"):
            gone: Exception = WorkspaceUnavailableError(f"the sandbox {sandbox.id} has ended")
            return gone
        return error

