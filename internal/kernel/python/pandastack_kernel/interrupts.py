"""SIGINT: raises in the user's code, waits while a frame is being sent, and is ignored between cells.

The state is the module's, as the signal is the process's. Only the main thread runs signal handlers.
"""

from __future__ import annotations

import signal
from _thread import get_ident
from collections.abc import Callable
from threading import main_thread
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=FunctionType)

_armed = False  # a cell runs
_depth = 0  # of shields
_pending = False  # an interrupt was kept back


def install() -> None:
    """Make SIGINT ours again, whatever the previous cell did to it."""
    if signal.getsignal(signal.SIGINT) is not _arrived:
        signal.signal(signal.SIGINT, _arrived)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def during(work: Callable[[], T]) -> T:
    """Call ``work``. An interrupt raises KeyboardInterrupt in the user's code that it runs, never here or in the caller."""
    global _armed, _pending
    _armed = True
    try:
        return work()
    finally:
        _armed = _pending = False


class shield:
    """A block of the kernel's that is run whole: an interrupt is raised at its end, so that no frame is left half sent."""

    def __enter__(self) -> None:
        global _depth
        if get_ident() == main_thread().ident:
            _depth += 1

    def __exit__(self, *_: Any) -> None:
        global _depth
        if get_ident() == main_thread().ident:
            _depth -= 1
            raise_pending()


def raise_pending() -> None:
    """Raise the interrupt that was kept back, if the time has come for it."""
    global _pending
    if _pending and not _depth:
        _pending = False
        if _armed:
            raise KeyboardInterrupt


def may_raise(frame: FrameType | None) -> bool:
    """Whether a signal handler that was called in ``frame`` may raise there: in the user's code, not between it and us."""
    if _depth:
        return False
    here = frame
    while frame is not None:
        if frame.f_code in _whole:
            return False
        if frame.f_code in _exposing:
            return frame is not here
        frame = frame.f_back
    return True


def _arrived(signum: int, frame: FrameType | None) -> None:
    global _pending
    if not _armed:
        return
    if not may_raise(frame):
        _pending = True
        return
    raise KeyboardInterrupt


def whole(function: F) -> F:
    """Decorates a function that no signal breaks off, nor what it calls, down to an :func:`exposing` one."""
    _whole.add(function.__code__)
    return function


def exposing(function: F) -> F:
    """Decorates a function that calls the user's code: what it calls may be broken off, its own lines are not."""
    _exposing.add(function.__code__)
    return function


_whole: set[CodeType] = set()
_exposing: set[CodeType] = set()
for _function in (during, shield.__enter__, shield.__exit__, raise_pending, may_raise, _arrived):
    whole(_function)
