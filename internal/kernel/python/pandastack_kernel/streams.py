"""sys.stdout and sys.stderr of a context: text that goes to the pipes in the order it was written."""

from __future__ import annotations

import io
import os
import sys
import time
from typing import Any

from .interrupts import shield
from .link import Link

_write = os.write  # before `spawning` wraps it

#: A line goes out at once, unless more than BURST came faster than one every SPACING seconds: then lines are gathered.
#: A system call is dear in a sandbox; a loop that prints 100,000 lines must not make as many.
BURST = 64
SPACING = 0.002
#: Gathered output goes out at this size, in bytes.
GATHERED_LIMIT = 32 << 10


class Pipe(io.RawIOBase):
    """The bytes under a stream. Only one of the two holds anything back at a time, so the order is kept."""

    other: Pipe

    def __init__(self, fd: int, link: Link) -> None:
        super().__init__()
        self._fd = fd
        self._link = link
        self._held = bytearray()
        self._credit = float(BURST)
        self._counted = 0.0
        self.name = {1: "<stdout>", 2: "<stderr>"}[fd]
        self.mode = "wb"

    def write(self, data: Any) -> int:
        if self._link.mute:
            return len(data)
        if self.other._held:
            self.other.flush()
        self._held += data
        if (data[-1:] in (b"\n", b"\r") and self._may_go()) or len(self._held) >= GATHERED_LIMIT:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """Write what is held back, whole: an interrupt raises after it, so that nothing is lost or written twice."""
        if not self._held:
            return
        with shield():
            if self._link.last != self._fd:
                self._link.turn_to(self._fd)
            held, self._held = self._held, bytearray()
            rest = memoryview(held)
            while rest:
                try:
                    rest = rest[_write(self._fd, rest[: 1 << 20]) :]
                except BlockingIOError:  # somebody made the shared pipe non-blocking, asyncio does
                    os.set_blocking(self._fd, True)

    def _may_go(self) -> bool:
        now = time.monotonic()
        self._credit = min(BURST, self._credit + (now - self._counted) / SPACING)
        self._counted = now
        if self._credit < 1:
            return False
        self._credit -= 1
        return True

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        """Stays open: a cell that closes sys.stdout must not silence the next one."""


class Streams:
    """Owns both streams and puts them back before each cell."""

    def __init__(self, link: Link) -> None:
        self._pipes = Pipe(1, link), Pipe(2, link)
        self._pipes[0].other, self._pipes[1].other = self._pipes[1], self._pipes[0]
        self._make()

    def _make(self) -> None:
        self._out, self._err = (_text(pipe) for pipe in self._pipes)

    def restore(self) -> None:
        """Make sys.stdout and sys.stderr ours again, new ones if the old were detached."""
        try:
            self._out.flush()
            self._err.flush()
        except ValueError:
            self._make()
        sys.stdout = sys.__stdout__ = self._out
        sys.stderr = sys.__stderr__ = self._err

    def flush(self) -> None:
        """Write what is held back, unfinished lines too."""
        for pipe in self._pipes:
            pipe.flush()


def _text(pipe: Pipe) -> io.TextIOWrapper:
    # The pipe does the buffering. Anything that Python can hold can be printed, lone surrogates included.
    return io.TextIOWrapper(pipe, encoding="utf-8", errors="backslashreplace", write_through=True)
