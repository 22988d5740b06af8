"""SIGINT: raises in the user's code, waits while a frame is being sent, and is ignored between cells."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """Decides what an interrupt does at the moment it arrives.

    ``armed`` is true while a cell runs. Inside a ``with interrupts.shield()`` block of the main thread an interrupt
    is kept back until the block ends, so that no frame is left half sent.
    """

    def __init__(self) -> None:
        self.armed = False
        self._depth = 0
        self._pending = False
        self._shield = _Shield(self)

    def install(self) -> None:
        """Make SIGINT ours again, whatever the previous cell did to it."""
        if signal.getsignal(signal.SIGINT) != self._arrived:
            signal.signal(signal.SIGINT, self._arrived)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def disarm(self) -> None:
        """End a cell: from here on an interrupt has nothing to stop."""
        while True:
            try:
                self.armed = False
                self._pending = False
                return
            except KeyboardInterrupt:  # arrived just before the flag was down
                continue

    def shield(self) -> _Shield:
        return self._shield

    def _arrived(self, signum: int, frame: FrameType | None) -> None:
        if not self.armed:
            return
        if self._depth:
            self._pending = True
            return
        raise KeyboardInterrupt


class _Shield:
    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def __enter__(self) -> None:
        # Only the main thread runs signal handlers, so only there is a shield needed.
        if threading.current_thread() is threading.main_thread():
            self._interrupts._depth += 1

    def __exit__(self, *_: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            self._interrupts._depth -= 1
            if self._interrupts._pending and not self._interrupts._depth:
                self._interrupts._pending = False
                if self._interrupts.armed:
                    raise KeyboardInterrupt
