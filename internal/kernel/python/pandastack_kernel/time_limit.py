"""A bound on how long code of the user's may take when the kernel calls it: formatters and __str__."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(BaseException):
    """Raised inside code that took too long. Not an Exception, so that `except Exception` does not swallow it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`OutOfTime` in the block after ``seconds`` of wall clock.

    It is raised again every second until the block ends, because a bare ``except:`` may catch it.
    The user's own alarm, if one was running, is put back with what was left of it. In a thread other than the main
    one there is no limit: only the main thread is given signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(signum: int, frame: FrameType | None) -> None:
        raise OutOfTime

    previous = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous if previous is not None else signal.SIG_DFL)
        if left:
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def restart(seconds: float) -> None:
    """Give the block that is running under :func:`time_limit` the whole time again."""
    if threading.current_thread() is threading.main_thread():
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
