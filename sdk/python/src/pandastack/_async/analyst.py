"""Analysts: a model that answers questions about files of data, in one sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Union

from ..records import AgentEvent
from .agent import AsyncAgent, AsyncAgentRun
from .sandbox import AsyncSandbox

CELL_SECONDS = 120  # a table on disk takes its time


@dataclass(frozen=True)
class AsyncAnswer:
    """What came of a question.

    Attributes:
        text: the model's words; None without an answer: see ``run.reason`` and ``run.info.error``.
        figures: pictures that its cells drew, PNG or JPEG, in order.
        run: the run.
    """

    text: Optional[str]
    figures: List[bytes]
    run: AsyncAgentRun


class AsyncAnalyst:
    """Answers questions about files of data: a model writes Python, which runs in one sandbox, where each file is loaded once.

        analyst = AsyncAnalyst("sales.csv", model="openai:gpt-4o")
        answer = await analyst.ask("Plot revenue by month; which month is the peak?")
        print(answer.text)
        await analyst.ask("And without returns?")
        await analyst.close()

    CSV, TSV, Excel, Parquet, JSON and SQLite, of any size that its disk holds; how a file is written is found out, and stands
    in `tables`. The sandbox is made by the first question, and ends with `close`, or with
    the ``with`` block that it is used in.

    Args:
        files: paths of files here.
        follows: the id of an analyst's run, whose sandbox is still there: go on after it. Without files.
        model, base_url, model_key, dialect, vision, instructions, limits, tools, tool_policy, price: as for `AsyncAgent`;
            ``cell_seconds`` is 120 unless `limits` says otherwise.
        template, cpu, memory_mb, disk_mb: of the sandbox. A CSV of more than a sixteenth of its memory stays on disk.
        ttl_seconds: that the sandbox lives after a question.
        api_url, api_key: as for `AsyncSandbox.create`.

    Attributes:
        tables: what was made of the files, as the event "loaded" has it; [] before the first question.
        run: the last run; None before the first question.
        sandbox: has the files in ``/workspace``; None before the first question.
    """

    def __init__(
        self,
        *files: Union[str, Path],
        follows: Optional[str] = None,
        model: Optional[str] = None,
        base_url: Optional[str] = None,
        model_key: Optional[str] = None,
        dialect: str = "text",
        vision: bool = True,
        instructions: Optional[str] = None,
        limits: Optional[Dict[str, float]] = None,
        tools: Any = None,
        tool_policy: Optional[Dict[str, Any]] = None,
        price: Optional[Dict[str, float]] = None,
        template: str = "code-interpreter",
        cpu: Optional[float] = None,
        memory_mb: Optional[int] = None,
        disk_mb: Optional[int] = None,
        ttl_seconds: int = 3600,
        api_url: Optional[str] = None,
        api_key: Optional[str] = None,
    ) -> None:
        if bool(files) == bool(follows):
            raise ValueError("give files, or a run to follow")
        names = [Path(file).name for file in files]
        if len(set(names)) < len(names):
            raise ValueError("two files have the same name")
        self._files = dict(zip(names, files))
        self._follows = follows
        self._last: Optional[AsyncAgentRun] = None  # that the next question follows
        self._ttl = ttl_seconds
        self._made = False
        self._server: Dict[str, Any] = {"api_url": api_url, "api_key": api_key}
        self._new: Dict[str, Any] = {"template": template, "cpu": cpu, "memory_mb": memory_mb, "disk_mb": disk_mb}
        self._agent = AsyncAgent(
            model,
            base_url=base_url,
            model_key=model_key,
            dialect=dialect,
            vision=vision,
            instructions=instructions,
            limits={"cell_seconds": CELL_SECONDS, **(limits or {})},
            tools=tools,
            tool_policy=tool_policy,
            price=price,
            **self._server,
        )
        self.tables: List[Dict[str, Any]] = []
        self.run: Optional[AsyncAgentRun] = None
        self.sandbox: Optional[AsyncSandbox] = None

    async def ask(self, question: str, *, on_event: Optional[Callable[[AgentEvent], Any]] = None) -> AsyncAnswer:
        """Asks a question and waits for the end. Later ones find the tables and variables of earlier ones. A run that ends
        without an answer is no error: look at ``answer.run.reason``.

        Args:
            question: in words.
            on_event: called with each `AgentEvent`.

        Raises:
            OSError: a file can't be read.
            NotFoundError: the sandbox is gone.
            CapacityError: the server has no room.
        """
        await self._open()
        if self._last is None:
            assert self.sandbox is not None
            run = await self._agent.start(question, sandbox_id=self.sandbox.id, data=list(self._files))
        else:
            run = await self._agent.start(question, follows=self._last.id)
        await run.wait(on_event)
        self.run = run
        figures: List[bytes] = []
        loaded = self._last is not None
        for event in await run.transcript():
            if event.type == "loaded" and not event.data["loaded"].get("failed"):
                self.tables, loaded = event.data["loaded"]["tables"], True
            elif event.type == "outcome":
                figures += [await run.figure(f["file"]) for f in event.data["outcome"].get("figures") or []]
        if loaded and run.info.context_id:
            self._last = run
        return AsyncAnswer(run.answer, figures, run)

    async def _open(self) -> None:
        """Makes the sandbox and sends the files, or gives it its time anew."""
        if self.sandbox is not None:
            if self._made:
                await self.sandbox.set_ttl(self._ttl)
            return
        if self._follows is not None:
            self._last = self.run = await self._agent.get(self._follows)
            self.sandbox = await AsyncSandbox.get(self._last.sandbox_id or "", **self._server)
            return
        sandbox = await AsyncSandbox.create(ttl_seconds=self._ttl, **self._new, **self._server)
        try:
            for name, file in self._files.items():
                await sandbox.filesystem.upload(file, f"/workspace/{name}")
        except BaseException:
            await sandbox.kill()
            raise
        self.sandbox, self._made = sandbox, True

    async def notebook(self) -> bytes:
        """All questions so far as a Jupyter notebook, which does it again beside the files.

        Raises:
            RuntimeError: nothing was asked yet.
        """
        return await self._asked().notebook()

    async def report(self) -> str:
        """All questions so far as one page of HTML that needs nothing beside it.

        Raises:
            RuntimeError: nothing was asked yet.
        """
        return await self._asked().report()

    def _asked(self) -> AsyncAgentRun:
        if self.run is None:
            raise RuntimeError("the analyst was asked nothing yet")
        return self.run

    async def close(self) -> None:
        """Ends the sandbox that it made. Runs, notebook and report are still there. Closing twice is no error."""
        if self.sandbox is not None and self._made:
            self._made = False
            await self.sandbox.kill()

    async def __aenter__(self) -> "AsyncAnalyst":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
