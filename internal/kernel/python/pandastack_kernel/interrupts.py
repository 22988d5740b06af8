"""SIGINT: raises in the user's code, waits while a frame is being sent, and is ignored between cells.

Python ignores what is raised in a ``__del__`` or in the callback of a weak reference, wherever in the user's code that
happens to run. An interrupt is not lost to that: it is sent again. So is one that arrives in lines of ours that are run
whole, after they have looked whether one was kept back.

The state is the module's, as the signal is the process's. Only the main thread runs signal handlers.
"""

from __future__ import annotations

import signal
import sys
import time
from _thread import get_ident, start_new_thread
from collections.abc import Callable
from threading import main_thread
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=FunctionType)

_armed = False  # a cell runs
_depth = 0  # of shields
_pending = False  # an interrupt was kept back
_ignored = False  # an interrupt was raised where Python ignores it
_sender: object | None = None  # the thread that sends such again
_again = False  # it has just sent one


def install() -> None:
    """Make SIGINT ours again, whatever the previous cell did to it."""
    if signal.getsignal(signal.SIGINT) is not _arrived:
        signal.signal(signal.SIGINT, _arrived)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _unraisable


def in_child() -> None:
    """In a fork: what was kept back is the parent's, and so is the thread that sends it."""
    global _pending, _ignored, _sender, _again
    _pending = _ignored = _again = False
    _sender = None


def during(work: Callable[[], T]) -> T:
    """Call ``work``. An interrupt raises KeyboardInterrupt in the user's code that it runs, never here or in the caller."""
    global _armed, _pending, _ignored, _sender, _again
    _armed = True
    try:
        return work()
    finally:
        _armed = _pending = _ignored = _again = False
        _sender = None


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
    global _pending, _ignored
    if _pending and not _depth:
        _pending = _ignored = False
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
    global _pending, _ignored, _again
    again, _again = _again, False
    if not _armed or again and not (_pending or _ignored):  # it was raised while it was sent again
        return
    if not may_raise(frame):
        _pending = True
        if not _depth:  # else it is raised at the end of the shield
            _send_later()
        return
    _pending = _ignored = False
    raise KeyboardInterrupt


def _unraisable(args: Any) -> None:
    """Python's hook for what it ignores. An interrupt of ours is sent again; what rings again by itself is passed over."""
    global _ignored
    at = args.exc_traceback
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    raiser = _raisers.get(at.tb_frame.f_code) if at is not None else None
    if raiser is None:
        sys.__unraisablehook__(args)
    elif raiser:
        _ignored = True
        _send_later()


def _send_later() -> None:
    global _sender
    if _sender is None:  # one, however often: it may be ignored a thousand times before it is not
        try:
            _sender = mine = object()
            start_new_thread(_send_again, (mine,))  # not threading's, whose locks the signal may have come among
        except (RuntimeError, MemoryError):  # the sandbox has no room for a thread: the next look finds it
            _sender = None


def _send_again(mine: object) -> None:
    """Until it is raised: the hook may still be running, and so may who else must be run whole."""
    global _sender, _pending, _ignored, _again
    main, kill = main_thread().ident or 0, signal.pthread_kill
    while _sender is mine:
        time.sleep(0.001)
        if not (_ignored or _pending):
            _sender, _again = None, False
            if not (_ignored or _pending):
                return
            _sender = mine  # one came meanwhile
        theirs, number = signal.getsignal(signal.SIGINT) is not _arrived, signal.SIGINT
        # From the look on there is no call, so no other thread runs before it is sent.
        if (_ignored or _pending) and not _depth:
            _again = not theirs
            kill(main, number)
            if theirs:  # a handler of the user's has it now, and nobody else will
                _pending = _ignored = False


def whole(function: F) -> F:
    """Decorates a function that no signal breaks off, nor what it calls, down to an :func:`exposing` one."""
    _whole.add(function.__code__)
    return function


def exposing(function: F) -> F:
    """Decorates a function that calls the user's code: what it calls may be broken off, its own lines are not."""
    _exposing.add(function.__code__)
    return function


def raising(function: F, *, again: bool) -> F:
    """Marks a function that raises in the user's code, and whether that is to be sent again where Python ignores it."""
    _raisers[function.__code__] = again
    return function


_whole: set[CodeType] = set()
_exposing: set[CodeType] = set()
_raisers: dict[CodeType, bool] = {}
for _function in (during, shield.__enter__, shield.__exit__, raise_pending, may_raise, _arrived, _unraisable, _send_later):
    whole(_function)
for _function in (raise_pending, _arrived):
    raising(_function, again=True)
