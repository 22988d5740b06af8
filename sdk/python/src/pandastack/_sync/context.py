# Generated from ../_async/context.py by tools/generate_sync.py: change that file, then run the tool.
"""Code contexts: an interpreter in a sandbox that keeps its state from cell to cell."""

from __future__ import annotations

import uuid
from typing import Any, Iterator, Callable, List, Optional

from .. import _checks as check
from .. import _routes as routes
from ..errors import APIConnectionError, NotFoundError
from ..events import Event, ExecutionAssembly
from ..execution import Execution, Result
from ..records import ContextInfo
from .client import Client
from .transport import call


class ExecutionStream:
    """The events of a running cell: iterate over it, or `wait` for the outcome.

    A broken connection is taken up again where it broke. Leave a loop early only through `close`, or use it as a
    context manager; a cell that nobody is attached to is interrupted after 10 s unless it was started with
    ``detach=True``.

    Attributes:
        execution_id: the id to attach with.
    """

    def __init__(self, events: Iterator[Event], execution_id: str) -> None:
        self.execution_id = execution_id
        self._events = events
        self._assembly = ExecutionAssembly(execution_id)

    def __iter__(self) -> "ExecutionStream":
        return self

    def __next__(self) -> Event:
        event = self._events.__next__()
        self._assembly.add(event)
        return event

    def wait(self) -> Execution:
        """Reads to the end and returns the outcome, put together from all events that this stream has seen.

        Raises:
            APIConnectionError: the server could not be reached again.
        """
        for _ in self:
            pass
        if self._assembly.execution is None:
            raise APIConnectionError("the stream was closed before its last event")
        return self._assembly.execution

    def close(self) -> None:
        """Lets go of the connection. The cell is not stopped by this at once."""
        self._events.close()  # type: ignore[attr-defined]

    def __enter__(self) -> "ExecutionStream":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class CodeContext:
    """An interpreter that keeps its state: variables, imports, the working folder. One cell runs at a time, others
    wait in order. A context manager: it closes itself at the end.

    Attributes:
        id: its id, good for `Sandbox.context`.
        language: "python".
        warnings: of a copy that `fork` made: what it lacks, or shares with the original.
    """

    def __init__(self, client: Client, sandbox_id: str, id: str, language: str = "python") -> None:
        self._client = client
        self._sandbox_id = sandbox_id
        self.id = id
        self.language = language
        self.warnings: List[str] = []

    def run_code(
        self,
        code: str,
        *,
        timeout_seconds: float = 30,
        execution_id: Optional[str] = None,
        detach: bool = False,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        on_result: Optional[Callable[[Result], Any]] = None,
    ) -> Execution:
        """Runs a cell and returns its outcome.

        An exception in the cell, its deadline and a dead interpreter don't raise here: look at `Execution.error` and
        `Execution.end`. When the connection breaks, or the server restarts, the call goes on waiting; the cell runs
        once whatever happens.

        Args:
            code: Python, as in a notebook cell: magics, ``!command`` and top-level ``await`` work.
            timeout_seconds: the cell's deadline, seconds of running (waiting behind other cells doesn't count).
            execution_id: an id of your own, at most once for one code. Default: a new UUID.
            detach: let the cell go on when this client is gone; else it is interrupted 10 s later.
            on_stdout, on_stderr: called with each piece of text (str) as it comes.
            on_result: called with each `Result` as it comes.

        Raises:
            NotFoundError: no such context or sandbox.
            ConflictError: the execution id was used for other code.
            RateLimitError: too many cells wait in this context.
            APIConnectionError: the server could not be reached, or not again within `reconnect_seconds`.
        """
        for name, value in (("on_stdout", on_stdout), ("on_stderr", on_stderr), ("on_result", on_result)):
            check.callback(name, value)
        execution_id = uuid.uuid4().hex if execution_id is None else execution_id
        broken: Optional[APIConnectionError] = None
        if on_stdout is None and on_stderr is None and on_result is None:
            request = self._run(code, timeout_seconds, execution_id, detach, stream=False)
            try:
                return Execution.from_wire((self._client._send(request)).object())
            except APIConnectionError as error:
                broken = error
        opening = self._run(code, timeout_seconds, execution_id, detach, stream=True)
        with self._open(opening, execution_id, 0, broken) as stream:
            for event in stream:
                if event.type == "stdout":
                    call(on_stdout, event.text)
                elif event.type == "stderr":
                    call(on_stderr, event.text)
                elif event.type == "result":
                    call(on_result, event.result)
            return stream.wait()

    def stream(
        self,
        code: str,
        *,
        timeout_seconds: float = 30,
        execution_id: Optional[str] = None,
        detach: bool = False,
    ) -> ExecutionStream:
        """Runs a cell and gives its events as they come; the cell starts with the first step of the iteration.

        Args and errors: as for `run_code`; the errors are raised by the iteration.
        """
        execution_id = uuid.uuid4().hex if execution_id is None else execution_id
        return self._open(self._run(code, timeout_seconds, execution_id, detach, stream=True), execution_id, 0, None)

    def attach(self, execution_id: str, after: int = 0) -> ExecutionStream:
        """The events of a cell that was started before, finished or not.

        Args:
            execution_id: of the cell.
            after: the number of the last event that you have; 0 for all.

        Raises (in the iteration):
            NotFoundError: no such execution, or it is too long ago.
        """
        request = routes.attach(self._sandbox_id, self.id, execution_id, after)
        return self._open(request, execution_id, after, None)

    def interrupt(self) -> None:
        """Interrupts the running cell, which then ends with "interrupted". Does nothing when none runs.

        Raises:
            NotFoundError: no such context or sandbox.
        """
        self._client._send(routes.interrupt_context(self._sandbox_id, self.id))

    def restart(self) -> None:
        """Starts a new interpreter under the same id; the variables are gone.

        Raises:
            NotFoundError: no such context or sandbox.
        """
        self._client._send(routes.restart_context(self._sandbox_id, self.id))

    def fork(self, count: Optional[int] = None) -> Any:
        """Copies the interpreter with all its variables; memory is shared until one of them writes.

        It waits up to 10 s for the cells of this context to end. The copies share the sandbox's files and limits with
        it. For copies with files of their own, fork the sandbox.

        Args:
            count: how many copies, 1 to 32. Default: one.

        Returns:
            One `CodeContext`, or a list of them when `count` is given. Their `warnings` name what a copy lacks or
            shares with the original: threads, open files, connections.

        Raises:
            ConflictError: the context is busy, or in a state in which a copy would hang; or memory is short.
            RateLimitError: the sandbox would have more contexts than it may.
            BadRequestError: `count` is out of bounds.
        """
        answer = (self._client._send(routes.fork_context(self._sandbox_id, self.id, count))).object()
        made = []
        for item in answer["children"]:
            made.append(CodeContext(self._client, self._sandbox_id, item["id"], item.get("language") or self.language))
            made[-1].warnings = list(answer.get("warnings") or [])
        return made[0] if count is None else made

    def info(self) -> ContextInfo:
        """Its state, how many cells it ran, how many wait.

        Raises:
            NotFoundError: no such context or sandbox.
        """
        return ContextInfo.from_wire((self._client._send(routes.get_context(self._sandbox_id, self.id))).object())

    def close(self) -> None:
        """Ends the interpreter. Does nothing when it has ended already, or with its sandbox."""
        try:
            self._client._send(routes.close_context(self._sandbox_id, self.id))
        except NotFoundError:
            pass

    def __enter__(self) -> "CodeContext":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, language={self.language!r}, sandbox={self._sandbox_id!r})"

    def _run(self, code: str, timeout_seconds: float, execution_id: str, detach: bool, *, stream: bool) -> Any:
        return routes.run(
            self._sandbox_id,
            self.id,
            code,
            timeout_seconds=timeout_seconds,
            execution_id=execution_id,
            detach=detach,
            stream=stream,
        )

    def _open(
        self, opening: Any, execution_id: str, after: int, broken: Optional[APIConnectionError]
    ) -> ExecutionStream:
        events = self._client._follow(
            opening,
            lambda seq: routes.attach(self._sandbox_id, self.id, execution_id, seq),
            after=after,
            broken=broken,
        )
        return ExecutionStream(events, execution_id)
