"""A bound on how long code of the user's may take when the kernel calls it: formatters and __str__."""

from __future__ import annotations

import signal
from _thread import get_ident
from threading import main_thread
from types import FrameType
from typing import Any

from .interrupts import may_raise, raise_pending, raising, whole


class OutOfTime(BaseException):
    """Raised inside code that took too long. Not an Exception, so that `except Exception` does not swallow it."""


class time_limit:
    """Raise :class:`OutOfTime` in the block after ``seconds`` of wall clock.

    It is raised again every second until the block ends, because a bare ``except:`` may catch it, and because nothing
    is raised while a frame is being sent. The user's own alarm, if one was running, is put back with what was left of
    it. In a thread other than the main one there is no limit: only the main thread is given signals.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._counts = False

    # An interrupt or a ring between these lines would leave the timer running for whoever comes next.
    @whole
    def __enter__(self) -> None:
        if get_ident() == main_thread().ident:
            self._counts = True
            self._previous = signal.signal(signal.SIGALRM, _ring)
            self._left = signal.setitimer(signal.ITIMER_REAL, self._seconds, 1.0)

    @whole
    def __exit__(self, *_: Any) -> None:
        if self._counts:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._previous if self._previous is not None else signal.SIG_DFL)
            if self._left[0]:
                signal.setitimer(signal.ITIMER_REAL, *self._left)
            raise_pending()


@whole
def _ring(signum: int, frame: FrameType | None) -> None:
    if may_raise(frame):
        raise OutOfTime


raising(_ring, again=False)  # it rings every second


def restart(seconds: float) -> None:
    """Give the block that is running under :class:`time_limit` the whole time again."""
    if get_ident() == main_thread().ident:
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
