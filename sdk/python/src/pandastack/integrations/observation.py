"""What comes of a cell that a model wrote: text for the model, figures for the program around it.

All adapters run cells through `Interpreter`, so that models are told the same in every framework.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import re
import struct
import threading
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Awaitable, Callable, Dict, List, Optional, Set, Tuple, Union
from weakref import WeakKeyDictionary

from .. import _checks as check
from ..errors import APIConnectionError, NotFoundError, PandastackError
from ..execution import Execution, Result

__all__ = ["Figure", "Interpreter", "Observation", "require"]

NAME = "run_python"
CODE = "Python of one cell, as in a notebook: the value of the last expression is shown; !cmd and %magics work."
SCHEMA: Dict[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": CODE}},
    "required": ["code"],
    "additionalProperties": False,
}

# What one observation holds at most, in bytes of UTF-8. Of longer text the beginning and, which says more, the end stay.
MAX_OUTPUT = 30_000
MAX_VALUE = 10_000
MAX_FIGURES = 8

# The server's line, where it left out some. Code can write what begins like it, as often and as long as it likes, so no two
# attempts to find it look at the same text.
_CUT = re.compile(r"\n?\[\.\.\. (\d{1,16}) bytes left out[^\n\[]*\.\.\.\]\n")
_PICTURES = ("image/png", "image/jpeg", "image/svg+xml")
_WORDS = ("text/plain", "text/markdown", "text/latex", "application/json")


def describe(shown: Optional[bool]) -> str:
    """The description of the tool that runs cells. `shown`: whether the model is shown the figures, too; None when the
    tool does not know."""
    figures = "" if shown is None else ", you are shown them" if shown else ", the user sees them, you do not"
    return (
        "Runs Python in a sandbox and returns what it prints, the value of the last expression, or the traceback. "
        "Variables, imports and files stay from call to call. Draw with matplotlib, without savefig, and end with "
        f"plt.show(): figures are captured{figures}."
    )


@dataclass(frozen=True)
class Figure:
    """A picture that a cell showed.

    Attributes:
        data: its bytes.
        mime: "image/png", "image/jpeg" or "image/svg+xml".
    """

    data: bytes
    mime: str = "image/png"

    @property
    def base64(self) -> str:
        """The bytes in base64."""
        return base64.b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        """The bytes as a ``data:`` URL."""
        return f"data:{self.mime};base64,{self.base64}"

    @property
    def for_models(self) -> bool:
        """Whether models take it: they read no SVG."""
        return self.mime in ("image/png", "image/jpeg")

    def save(self, path: Union[str, Path]) -> Path:
        """Writes it to a file and returns its path, with the right ending if `path` has none."""
        path = Path(path)
        if not path.suffix:
            path = path.with_suffix({"image/png": ".png", "image/jpeg": ".jpg"}.get(self.mime, ".svg"))
        path.write_bytes(self.data)
        return path

    def __repr__(self) -> str:
        return f"Figure({self.mime}, {len(self.data)} bytes)"


@dataclass(frozen=True)
class Observation:
    """What came of a cell. ``str()`` of it is its text.

    Attributes:
        text: for the model: output, values, a line for each figure, the traceback, and what to do next where the end
            does not say it by itself.
        figures: the pictures that were shown, in order.
        html: the results that have HTML, such as tables, in order; for people, and as untrusted as the code.
        ok: whether the cell ended well.
        execution: the whole outcome; None when the cell could not be run at all.
    """

    text: str
    figures: Tuple[Figure, ...] = ()
    html: Tuple[str, ...] = ()
    ok: bool = True
    execution: Optional[Execution] = None

    def __str__(self) -> str:
        return self.text


class _Caller:
    """Who waits for a cell."""

    begun = False  # it is the turn of the cell
    left = False


_stopping: "Set[asyncio.Future[None]]" = set()  # event loops keep no reference to their tasks


async def to_the_end(work: Awaitable[None]) -> None:
    """Waits for what must not stay half done. By a task of its own: some cancel a caller again and again, as anyio does,
    until it is gone."""
    task = asyncio.ensure_future(work)
    _stopping.add(task)
    task.add_done_callback(_stopping.discard)
    await asyncio.shield(task)


class Interpreter:
    """Runs the cells of a model in a sandbox, and turns whatever comes of them into observations.

    Args:
        session: a `Sandbox`, whose default interpreter is used, or a `CodeContext`; or one of their asynchronous
            likes, which `run` does not take.
        timeout_seconds: the deadline of a cell.
        on_figure: called with each `Figure`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
    """

    def __init__(
        self,
        session: Any,
        *,
        timeout_seconds: float = 60,
        on_figure: Optional[Callable[[Figure], Any]] = None,
    ) -> None:
        if not callable(getattr(session, "run_code", None)):
            raise TypeError(f"session must be a Sandbox or a CodeContext, not {type(session).__name__}")
        self.session = session
        self.timeout_seconds = check.seconds("timeout_seconds", timeout_seconds)
        self.on_figure = on_figure
        self.is_async = inspect.iscoroutinefunction(session.run_code)
        self._turn = threading.Lock()
        self._turns: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = WeakKeyDictionary()

    def __deepcopy__(self, memo: Any) -> "Interpreter":
        return self  # frameworks copy agents with their tools; the sandbox stays the same

    def run(self, code: str) -> Observation:
        """Runs a cell. What goes wrong in it, or with its sandbox, is in the observation and not raised."""
        if self.is_async:
            raise TypeError("an asynchronous sandbox needs an asynchronous agent; use Sandbox instead of AsyncSandbox")
        try:
            return self._seen(self._in_turn(code, _Caller()))
        except PandastackError as error:
            return failure(error)

    async def arun(self, code: str) -> Observation:
        """The same without blocking the event loop. When its caller is cancelled, its cell is interrupted, or never begins
        if it waits behind another one of this interpreter."""
        caller = _Caller()
        asked: Awaitable[Execution]
        asked = self._in_turn_here(code, caller) if self.is_async else asyncio.to_thread(self._in_turn, code, caller)
        running = asyncio.ensure_future(asked)
        try:
            return self._seen(await asyncio.shield(running))
        except PandastackError as error:
            return failure(error)
        except asyncio.CancelledError:
            caller.left = True
            # Nobody wants to know any more how it ends.
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
            await to_the_end(self._stop(running, caller))
            raise

    def run_json(self, arguments: str) -> Observation:
        """As `run`, for the arguments of a call as models write them: ``{"code": "…"}``."""
        try:
            code = _code(arguments)
        except ValueError as error:
            return Observation(f"[error]\nThe arguments don't fit: {error}", ok=False)
        return self.run(code)

    async def arun_json(self, arguments: str) -> Observation:
        """As `run_json`, without blocking the event loop."""
        try:
            code = _code(arguments)
        except ValueError as error:
            return Observation(f"[error]\nThe arguments don't fit: {error}", ok=False)
        return await self.arun(code)

    def _in_turn(self, code: str, caller: "_Caller") -> Execution:
        """Runs a cell when those that were asked for in other threads have ended."""
        with self._turn:
            caller.begun = True
            if caller.left:
                return Execution(end="interrupted")
            execution: Execution = self.session.run_code(code, timeout_seconds=self.timeout_seconds)
            return execution

    async def _in_turn_here(self, code: str, caller: "_Caller") -> Execution:
        """The same on an event loop. The server would run one that waits there for seconds when its caller is gone."""
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            caller.begun = True
            execution: Execution = await self.session.run_code(code, timeout_seconds=self.timeout_seconds)
            return execution

    async def _stop(self, running: "asyncio.Future[Execution]", caller: "_Caller") -> None:
        """Stops a cell that nobody waits for, and no other."""
        if caller.begun:
            await self._interrupt()
        running.cancel()  # a thread can't be cancelled, and sees that its caller has left

    async def _interrupt(self) -> None:
        try:
            if self.is_async:
                context = await self.session.context() if hasattr(self.session, "context") else self.session
                await context.interrupt()
            else:
                context = self.session.context() if hasattr(self.session, "context") else self.session
                await asyncio.to_thread(context.interrupt)
        except PandastackError:
            pass  # the sandbox is gone, and the cell with it

    def _seen(self, execution: Execution) -> Observation:
        seen = observe(execution, self.timeout_seconds)
        if self.on_figure is not None:
            for figure in seen.figures:
                self.on_figure(figure)
        return seen


def _code(arguments: str) -> str:
    try:
        given = json.loads(arguments)
    except (RecursionError, TypeError):  # nested without end; none at all
        given = None
    code = given.get("code") if isinstance(given, dict) else None
    if not isinstance(code, str):
        raise ValueError('they must be {"code": "…"}, an object with one string')
    return code


def observe(execution: Execution, timeout_seconds: Optional[float] = None) -> Observation:
    """The observation of an outcome. `timeout_seconds` is the deadline that the cell had, for the words about it."""
    parts: List[str] = []
    figures: List[Figure] = []
    html: List[str] = []

    def add(label: str, text: str, most: int) -> None:
        text = middle(text.strip("\n"), most)
        if text:
            parts.append(f"[{label}]\n{text}" if parts or label in ("stderr", "error") else text)

    stdout = execution.stdout.strip("\n")
    if stdout:
        parts.append(middle(stdout, MAX_OUTPUT))
    add("stderr", execution.stderr, MAX_OUTPUT // 3)
    # The value of the last line is what the cell ends with.
    for result in sorted(execution.results, key=lambda one: one.is_last_expression):
        if result.html is not None:
            html.append(result.html)
        if result.chart is None:
            add("result", _words(result), MAX_VALUE)
            continue
        try:
            figure = _figure(result)
        except ValueError as error:
            parts.append(f"[a figure that can't be shown: {error}]")
            continue
        figures.append(figure)
        if len(figures) <= MAX_FIGURES:
            parts.append(f"[figure {len(figures)}: {_size(figure)}]")
    if len(figures) > MAX_FIGURES:
        parts.append(f"[{len(figures) - MAX_FIGURES} more figures]")
    if execution.end == "error" and execution.error:
        add("error", execution.error, MAX_VALUE)
    if execution.results_dropped:
        parts.append(f"[{execution.results_dropped} results were left out]")
    if execution.truncated and execution.output_path:
        parts.append(f"[the whole output is in {execution.output_path} of the sandbox]")
    ending = _ending(execution, timeout_seconds, bool(parts))
    if ending:
        parts.append(ending)
    return Observation("\n".join(parts), tuple(figures), tuple(html), execution.end == "ok", execution)


def failure(error: PandastackError) -> Observation:
    """What a model is told when its cell could not be run."""
    if isinstance(error, NotFoundError):
        text = "The code did not run: its sandbox has ended, and variables and files are gone. Don't try again; say so."
    elif isinstance(error, APIConnectionError) and error.sent:
        text = f"The connection to the sandbox broke: {error}. Whether the code ran is not known; look before you repeat it."
    else:
        text = f"The code did not run: {error}"
    return Observation(f"[error]\n{text}", ok=False)


def _ending(execution: Execution, timeout_seconds: Optional[float], printed: bool) -> str:
    """What a model can't know about how its cell ended, and what is left of its state. In the words of our own agents."""
    if execution.end == "ok":
        return "" if printed else "The cell ran and printed nothing. To see a value, print it or put it on the last line."
    lost = "Variables, imports and functions are still there."
    if not execution.state_survived:
        lost = "All variables, imports and functions are lost; files are still there. Import and load again what you need."
    if execution.end == "error":
        return "" if execution.state_survived else f"[{lost}]"
    above = " What it printed until then is above." if printed else ""
    if execution.end == "timeout":
        how = "was interrupted at" if execution.state_survived else "did not react to an interrupt and was ended after"
        deadline = f"its deadline of {timeout_seconds:g} seconds" if timeout_seconds else "its deadline"
        return f"[deadline] The cell {how} {deadline}.{above} {lost} Make it do less at a time."
    if execution.end == "oom":
        return (
            "[out of memory] The cell used more memory than there is, and its interpreter was ended."
            f"{above} {lost} Work on less at a time."
        )
    if execution.end == "interrupted":
        return f"[interrupted] The cell was interrupted.{above} {lost}"
    return f"[interpreter died] The interpreter ended while the cell ran.{above} {lost}"


def _words(result: Result) -> str:
    text = next((result.data[mime] for mime in _WORDS if mime in result.data), None)
    return text if text is not None else f"a value of the types {', '.join(result.data)}, which has no text"


def _figure(result: Result) -> Figure:
    mime = next(mime for mime in _PICTURES if mime in result.data)
    data = result.data[mime]
    if mime == "image/svg+xml":
        return Figure(data.encode(), mime)
    try:
        return Figure(base64.b64decode("".join(data.split()), validate=True), mime)
    except ValueError:  # also for letters that are no ASCII
        raise ValueError("it is not base64") from None


def _size(figure: Figure) -> str:
    kind = figure.mime.partition("/")[2].partition("+")[0].upper()
    if figure.data[:8] == b"\x89PNG\r\n\x1a\n" and len(figure.data) >= 24:
        return "{}, {}×{} pixels".format(kind, *struct.unpack_from(">II", figure.data, 16))
    return kind


def middle(text: str, most: int) -> str:
    """Shortens a text to about `most` bytes and says how many are missing where, those that the server left out too."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= most:
        return text
    head = raw[: most // 5].decode("utf-8", "ignore")
    tail = raw[-(most - most // 5) :].decode("utf-8", "ignore")
    cut = text[len(head) : len(text) - len(tail)]
    missing = len(cut.encode("utf-8", "surrogatepass"))
    for mark in _CUT.finditer(cut):
        missing += int(mark[1]) - len(mark[0])
    return f"{head}\n[... {missing} bytes left out ...]\n{tail}"


def require(extra: str, *wanted: str) -> None:
    """Looks whether the packages of an adapter are there and new enough.

    Args:
        extra: of this package, that installs them.
        wanted: such as "langchain 1.0".

    Raises:
        ImportError: one is missing or too old; the message names the version wanted and how to install it.
    """
    for want in wanted:
        name, _, least = want.partition(" ")
        try:
            found = version(name)
        except PackageNotFoundError:
            found = ""
        if not found or _numbers(found) < _numbers(least):
            there = f"{found} is installed" if found else "it is not installed"
            raise ImportError(
                f'pandastack.integrations.{extra} needs {name} {least} or newer, and {there}: pip install "pandastack[{extra}]"',
                name=name,
            )


def _numbers(version: str) -> Tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
