"""Tracebacks for people and models: the user's frames with their lines, a library's frames in one line.

    Traceback (most recent call last):
      Cell In[3], line 2, in total
          1 def total(df):
    ----> 2     return df["amount"].sum()
      [4 frames in pandas, the last: pandas/core/indexes/base.py:3812, in get_loc]
    KeyError: 'amount'
"""

from __future__ import annotations

import linecache
import os
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, TracebackType

from IPython.core.error import UsageError

from .bundles import shorten
from .interrupts import exposing, whole
from .time_limit import OutOfTime, time_limit

#: The longest traceback and the longest message, in characters; head and tail are kept.
TRACEBACK_LIMIT = 256 << 10
VALUE_LIMIT = 64 << 10

_SECONDS = 5.0  # for all the __str__ and __repr__ of a traceback together
_AROUND = 2  # lines of context on each side of the failing one
_CHAIN = 10  # exceptions of a chain or a group that are shown
_CELL = re.compile(r"^Cell In\[\d+\]$")

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


@dataclass(frozen=True)
class Failure:
    """An exception as the `end` frame carries it."""

    name: str
    value: str
    traceback: str


@exposing
def describe_failure(error: BaseException) -> Failure:
    """The three strings of ``error``. Never raises and always ends, whatever the exception's own methods do.

    Within :func:`interrupts.during` an interrupt breaks those methods off, as it does the rest of the user's code.
    """
    try:
        with time_limit(_SECONDS):
            value = _message(error)
            text = "".join(_chain(error, set()))
    except BaseException as fault:  # what user code raises here may be anything
        return _speechless(error, fault)
    return _failure(error, value, text)


@whole
def _speechless(error: BaseException, fault: BaseException) -> Failure:
    """What can be said of ``error`` without its own methods, which ended with ``fault``."""
    why = "took too long" if isinstance(fault, OutOfTime) else f"raised {type(fault).__name__}"
    if isinstance(fault, KeyboardInterrupt):
        why = "was interrupted"
    value = f"<exception str() {why}>"
    return _failure(error, value, f"{''.join(_frames(error.__traceback__))}{_kind(error)}: {value}")


@whole
def _failure(error: BaseException, value: str, text: str) -> Failure:
    return Failure(
        name=type(error).__name__,
        value=shorten(value, VALUE_LIMIT),
        traceback=shorten(text.rstrip("\n"), TRACEBACK_LIMIT),
    )


def _chain(error: BaseException, seen: set[int]) -> Iterator[str]:
    earlier: list[str] = []
    if id(error) not in seen and len(seen) < _CHAIN:
        seen.add(id(error))
        if error.__cause__ is not None:
            if not _says_the_same(error.__cause__, error):
                earlier = [*_chain(error.__cause__, seen), _CAUSE]
        elif error.__context__ is not None and not error.__suppress_context__:
            if not _says_the_same(error.__context__, error):
                earlier = [*_chain(error.__context__, seen), _CONTEXT]
    yield from earlier
    yield from _one(error)
    if isinstance(error, BaseExceptionGroup):
        for number, inner in enumerate(error.exceptions[:_CHAIN], 1):
            yield f"  ---- {number} of {len(error.exceptions)} ----\n"
            for part in _chain(inner, seen):
                yield "".join(f"  {line}" for line in part.splitlines(keepends=True))


def _says_the_same(inner: BaseException, outer: BaseException) -> bool:
    """Whether the inner exception is a library's first draft of the outer one, and tells nothing more."""
    if type(inner) is not type(outer) or _message(inner) != _message(outer):
        return False
    return not _has_user_frame(inner.__traceback__)


def _has_user_frame(tb: TracebackType | None) -> bool:
    return any(_is_user(frame) for frame, _ in traceback.walk_tb(tb))


def _one(error: BaseException) -> Iterator[str]:
    lines = list(_frames(error.__traceback__))
    if isinstance(error, (SyntaxError, UsageError)) and not _has_user_frame(error.__traceback__):
        lines = []  # the cell itself: only the parser's frames are there
    if lines:
        yield "Traceback (most recent call last):\n"
        yield from lines
    yield from _last_lines(error)


def _last_lines(error: BaseException) -> Iterator[str]:
    said = [error]
    for one in said:  # first: TracebackException catches whatever breaks a str() off, and would be followed by another
        _message(one)
        if isinstance(one, BaseExceptionGroup):
            said += one.exceptions
    try:
        # The traceback is needed for "Did you mean", its frames are not.
        summary = traceback.TracebackException(type(error), error, error.__traceback__, limit=0, compact=True)
        lines = list(summary.format_exception_only())
    except Exception:
        lines = [f"{_kind(error)}: {_message(error)}\n"]
    for line in lines:
        if isinstance(error, SyntaxError):
            line = re.sub(r'File "(Cell In\[\d+\])"', r"\1", line)
        yield line


def _frames(tb: TracebackType | None) -> Iterator[str]:
    library: list[tuple[FrameType, int]] = []
    previous: tuple[str, int, str] | None = None
    repeated = 0
    for frame, line in traceback.walk_tb(tb):
        if _is_kernel(frame):
            continue
        if not _is_user(frame):
            library.append((frame, line))
            continue
        yield from _collapsed(library)
        library = []
        here = (frame.f_code.co_filename, line, frame.f_code.co_name)
        if here == previous:
            repeated += 1
            if repeated >= 2:
                continue
        else:
            if repeated >= 2:
                yield f"  [the frame above repeated {repeated - 1} more times]\n"
            previous, repeated = here, 0
        yield from _user_frame(frame, line)
    if repeated >= 2:
        yield f"  [the frame above repeated {repeated - 1} more times]\n"
    yield from _collapsed(library)


def _user_frame(frame: FrameType, line: int) -> Iterator[str]:
    code = frame.f_code
    name = code.co_filename
    place = name if _CELL.match(name) else f"File {name}"
    function = "" if code.co_name == "<module>" else f", in {code.co_name}"
    yield f"  {place}, line {line}{function}\n"
    source = linecache.getlines(name, frame.f_globals)
    if not 0 < line <= len(source):
        return
    width = len(str(min(len(source), line + _AROUND)))
    for number in range(max(1, line - _AROUND), min(len(source), line + _AROUND) + 1):
        text = shorten(source[number - 1].rstrip("\n"), 500)
        mark = "---->" if number == line else "     "
        yield f"  {mark} {number:>{width}} {text}".rstrip() + "\n"


def _collapsed(frames: list[tuple[FrameType, int]]) -> Iterator[str]:
    """One line for each run of frames of one library."""
    start = 0
    for at in range(1, len(frames) + 1):
        if at < len(frames) and _library(frames[at][0]) == _library(frames[start][0]):
            continue
        frame, line = frames[at - 1]
        count = at - start
        words = f"{count} frame{'s' if count > 1 else ''} in {_library(frame)}"
        last = "the last: " if count > 1 else ""
        yield f"  [{words}, {last}{_short(frame.f_code.co_filename)}:{line}, in {frame.f_code.co_name}]\n"
        start = at


def _library(frame: FrameType) -> str:
    name = str(frame.f_globals.get("__name__") or "").partition(".")[0]
    if name in sys.stdlib_module_names:
        return f"{name} (standard library)"
    return name or _short(frame.f_code.co_filename)


def _roots() -> tuple[str, ...]:
    """Where installed code lives. Longest first."""
    found = {os.path.dirname(os.__file__), os.path.realpath(os.path.dirname(os.__file__))}
    found.update(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib"))
    found.update(site.getsitepackages())
    found.update(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    return tuple(sorted((path.rstrip("/") + "/" for path in found if path), key=len, reverse=True))


_ROOTS = _roots()
_KERNEL = os.path.dirname(os.path.abspath(__file__)) + "/"


def _is_kernel(frame: FrameType) -> bool:
    """Frames of ours, and of the parts of IPython that only call the user's code."""
    if frame.f_code.co_filename.startswith(_KERNEL):
        return True
    module = str(frame.f_globals.get("__name__") or "")
    return module in ("IPython.core.interactiveshell", "IPython.core.async_helpers", "IPython.core.displayhook")


def _is_user(frame: FrameType) -> bool:
    """Code of a cell, or of a file that is not installed."""
    name = frame.f_code.co_filename
    if _CELL.match(name):
        return True
    if name.startswith(_KERNEL) or not name.startswith("/"):
        # `<frozen importlib>`, `<__array_function__ internals>`, Cython's relative names; `<string>` is the user's exec
        return name == "<string>" and str(frame.f_globals.get("__name__")) == "__main__"
    return not name.startswith(_ROOTS) and "/site-packages/" not in name and "/dist-packages/" not in name


def _short(path: str) -> str:
    for root in _ROOTS:
        if path.startswith(root):
            return path[len(root) :]
    return path


def _kind(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"
