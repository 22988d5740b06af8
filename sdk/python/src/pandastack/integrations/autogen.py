"""AutoGen: a `CodeExecutor` that runs code blocks in a sandbox.

    async with SandboxCodeExecutor() as executor:
        analyst = CodeExecutorAgent("analyst", code_executor=executor, model_client=client)
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import AsyncCodeContext, AsyncSandbox
from ..errors import PandastackError, SandboxTimeout
from .observation import MAX_OUTPUT, Figure, Interpreter, Observation, failure, middle, require

require("autogen", "autogen-core 0.7.5")

from autogen_core import CancellationToken, Component  # noqa: E402
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult  # noqa: E402
from pydantic import BaseModel  # noqa: E402

__all__ = ["SandboxCodeExecutor", "SandboxCodeResult"]

_PYTHON = ("python", "py", "python3", "ipython", "")
_SHELL = ("bash", "sh", "shell")


@dataclass
class SandboxCodeResult(CodeResult):
    """A result with the figures that were drawn."""

    figures: List[Figure] = field(default_factory=list)


class SandboxCodeExecutorConfig(BaseModel):
    """What a `SandboxCodeExecutor` is made of again."""

    timeout_seconds: float = 60
    options: Dict[str, Any] = {}


class SandboxCodeExecutor(CodeExecutor, Component[SandboxCodeExecutorConfig]):
    """Runs code blocks in a sandbox: Python in one interpreter that keeps its state, and bash.

    Args:
        sandbox: an `AsyncSandbox` of yours. Default: one of its own, which `start` makes and `stop` ends.
        timeout_seconds: the deadline of a block.
        on_figure: called with each `Figure`; `SandboxCodeResult.figures` has them, too.
        options: for `AsyncSandbox.create`, when it makes its own; ``template`` is "code-interpreter".
    """

    component_config_schema = SandboxCodeExecutorConfig
    component_provider_override = "pandastack.integrations.autogen.SandboxCodeExecutor"

    def __init__(
        self,
        sandbox: Optional[AsyncSandbox] = None,
        *,
        timeout_seconds: float = 60,
        on_figure: Optional[Callable[[Figure], Any]] = None,
        **options: Any,
    ) -> None:
        if sandbox is not None and options:
            raise TypeError(f"a sandbox is given, so it is too late for {', '.join(sorted(options))}")
        self._given = sandbox
        self._options = options
        self._timeout_seconds = timeout_seconds
        self._on_figure = on_figure
        self._starting: "Optional[asyncio.Future[Tuple[AsyncSandbox, AsyncCodeContext]]]" = None
        self._waiting = 0  # for it
        self._sandbox: Optional[AsyncSandbox] = None
        self._context: Optional[AsyncCodeContext] = None

    async def start(self) -> None:
        """Makes the sandbox, and an interpreter in it. Several may want it at once."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        starting = self._starting
        self._waiting += 1
        try:
            self._sandbox, self._context = await asyncio.shield(starting)
        except BaseException:
            if self._starting is starting and (starting.done() or self._waiting == 1):  # it failed, or nobody wants it any more
                await asyncio.shield(self.stop())
            raise
        finally:
            self._waiting -= 1

    async def _start(self) -> Tuple[AsyncSandbox, AsyncCodeContext]:
        options = {"template": "code-interpreter", "ttl_seconds": 3600, **self._options}
        sandbox = self._given or await AsyncSandbox.create(**options)
        try:
            return sandbox, await sandbox.create_code_context()
        except BaseException:
            if self._given is None:
                await sandbox.kill()
            raise

    async def stop(self) -> None:
        """Ends the interpreter, and the sandbox if it is the executor's own."""
        starting, self._starting = self._starting, None
        self._sandbox = self._context = None
        if starting is None:
            return
        try:
            sandbox, context = await starting
        except PandastackError:  # whoever started it hears of it
            return
        if self._given is None:
            await sandbox.kill()
        else:
            await context.close()

    async def restart(self) -> None:
        """Starts a new interpreter; variables are gone, files stay."""
        if self._context is not None:
            await self._context.restart()

    async def execute_code_blocks(
        self, code_blocks: List[CodeBlock], cancellation_token: CancellationToken
    ) -> SandboxCodeResult:
        """Runs blocks in order, to the first that fails. Errors and deadlines are in the result, not raised.

        Raises:
            asyncio.CancelledError: by `cancellation_token`; the cell is interrupted.
        """
        await self.start()
        seen: List[Observation] = []
        for block in code_blocks:
            running = asyncio.ensure_future(self._run(block))
            cancellation_token.link_future(running)
            seen.append(await running)
            if not seen[-1].ok:
                break
        figures = [figure for each in seen for figure in each.figures]
        ok = all(each.ok for each in seen)
        return SandboxCodeResult(0 if ok else 1, "\n".join(each.text for each in seen), figures)

    async def _run(self, block: CodeBlock) -> Observation:
        language = block.language.strip().lower()
        if language in _PYTHON:
            interpreter = Interpreter(self._context, timeout_seconds=self._timeout_seconds, on_figure=self._on_figure)
            return await interpreter.arun(block.code)
        if language in _SHELL:
            return await self._shell(block.code)
        return Observation(f"[error]\nNothing here runs {block.language}. Write python or bash.", ok=False)

    async def _shell(self, command: str) -> Observation:
        assert self._sandbox is not None
        try:
            done = await self._sandbox.exec(command, timeout_seconds=self._timeout_seconds)
        except SandboxTimeout as error:
            text = middle(f"{error.stdout}{error.stderr}".rstrip("\n"), MAX_OUTPUT)
            return Observation(f"{text}\n[deadline] The command was ended after {self._timeout_seconds:g} seconds.", ok=False)
        except PandastackError as error:
            return failure(error)
        text = middle("\n".join(part.rstrip("\n") for part in (done.stdout, done.stderr) if part), MAX_OUTPUT)
        if done.exit_code:
            text += f"\n[exit code {done.exit_code}]"
        return Observation(text or "The command ran and printed nothing.", ok=done.exit_code == 0)

    def _to_config(self) -> SandboxCodeExecutorConfig:
        if self._given is not None:
            raise ValueError("an executor with a sandbox of yours can't be written down; let it make its own")
        options = {name: value for name, value in self._options.items() if name != "api_key"}  # whoever loads it has a key
        return SandboxCodeExecutorConfig(timeout_seconds=self._timeout_seconds, options=options)

    @classmethod
    def _from_config(cls, config: SandboxCodeExecutorConfig) -> "SandboxCodeExecutor":
        return cls(timeout_seconds=config.timeout_seconds, **config.options)
