"""Deep Agents: a backend whose files and commands are those of a sandbox.

    agent = create_deep_agent(model, backend=SandboxBackend(sandbox))
"""

from __future__ import annotations

import asyncio
from typing import Callable, List, Optional, Tuple

from .. import ExecResult, Process, Sandbox
from .. import _checks as check
from ..errors import BadRequestError, NotFoundError, PandastackError, SandboxTimeout
from .observation import failure, require

require("deepagents", "deepagents 0.7.32")

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse  # noqa: E402
from deepagents.backends.sandbox import BaseSandbox  # noqa: E402

__all__ = ["SandboxBackend"]


class SandboxBackend(BaseSandbox):
    """What the tools of a deep agent work on (`execute`, `read_file`, `write_file`, `edit_file`, `ls`, `glob`, `grep`).

    What goes wrong, such as a command at its deadline or a sandbox that has ended, is in what the methods return and not
    raised.

    Args:
        sandbox: a `Sandbox` with Python in it, such as one of the template "code-interpreter".
        timeout_seconds: the deadline of a command that is given none.
    """

    def __init__(self, sandbox: Sandbox, *, timeout_seconds: float = 120) -> None:
        if not isinstance(sandbox, Sandbox):
            raise TypeError(f"sandbox must be a Sandbox, not {type(sandbox).__name__}")
        self.sandbox = sandbox
        self.timeout_seconds = check.seconds("timeout_seconds", timeout_seconds)

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self.sandbox.id

    def execute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        """Runs a command in the shell; its output and its errors are one text, in the order in which they came.

        Args:
            timeout: its deadline in seconds; 0 for none.
        """
        return self._outcome(lambda: self._start(command, timeout).wait())

    async def aexecute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        """The same without blocking the event loop. When its caller is cancelled, the command is killed."""
        started: List[Process] = []

        def run() -> ExecResult:
            started.append(self._start(command, timeout))
            return started[0].wait()

        try:
            return await asyncio.to_thread(self._outcome, run)
        except asyncio.CancelledError:
            for process in started:
                await asyncio.to_thread(process._kill_quietly)
            raise

    def upload_files(self, files: List[Tuple[str, bytes]]) -> List[FileUploadResponse]:
        """Writes files, each by itself; missing folders are made."""
        return [FileUploadResponse(path, self._write(path, content)) for path, content in files]

    def download_files(self, paths: List[str]) -> List[FileDownloadResponse]:
        """Reads files, each by itself."""
        return [self._read(path) for path in paths]

    def _start(self, command: str, timeout: Optional[int]) -> Process:
        limit = self.timeout_seconds if timeout is None else timeout or None
        process: Process = self.sandbox.commands.run(f"exec 2>&1\n{command}", background=True, timeout_seconds=limit)
        return process

    def _outcome(self, run: Callable[[], ExecResult]) -> ExecuteResponse:
        try:
            done = run()
        except SandboxTimeout as error:
            return ExecuteResponse(f"{error.stdout}\n[deadline] The command was ended at its deadline. Make it do less at a time.", 124)
        except (PandastackError, ValueError) as error:  # a deadline below 0 is the model's
            text = failure(error).text if isinstance(error, PandastackError) else f"[error]\n{error}"
            return ExecuteResponse(text, 1)
        text = done.stdout
        if done.output_path:
            text += f"\n[the whole output is in {done.output_path}]"
        if done.hint:
            text += f"\n[{done.hint}]"
        return ExecuteResponse(text, done.exit_code, done.truncated)

    def _write(self, path: str, content: bytes) -> Optional[str]:
        try:
            self.sandbox.filesystem.write(path, content)
        except PandastackError as error:
            return self._word(path, error)
        return None

    def _read(self, path: str) -> FileDownloadResponse:
        try:
            return FileDownloadResponse(path, self.sandbox.filesystem.read(path))
        except PandastackError as error:
            return FileDownloadResponse(path, error=self._word(path, error))

    def _word(self, path: str, error: PandastackError) -> str:
        """Deep Agents' word for what went wrong, or ours where it has none."""
        if not path.startswith("/"):
            return "invalid_path"
        if isinstance(error, NotFoundError):
            return failure(error).text if self.sandbox.filesystem._sandbox_is_gone() else "file_not_found"
        if isinstance(error, BadRequestError) and self._is_folder(path):
            return "is_directory"
        return str(error)

    def _is_folder(self, path: str) -> bool:
        try:
            return self.sandbox.filesystem.stat(path).is_dir
        except NotFoundError:
            return False
