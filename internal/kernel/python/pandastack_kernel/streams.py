"""sys.stdout and sys.stderr of a context: text that goes to the pipes in the order it was written."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

from .link import Link


class _Pipe(io.RawIOBase):
    """The bytes under a stream. Turning from one stream to the other goes through the link first."""

    def __init__(self, fd: int, link: Link, before_turn: Callable[[], object]) -> None:
        super().__init__()
        self._fd = fd
        self._link = link
        self._before_turn = before_turn
        self.name = {1: "<stdout>", 2: "<stderr>"}[fd]
        self.mode = "wb"

    def write(self, data: Any) -> int:
        link = self._link
        if link.mute:
            return len(data)
        if link._last != self._fd:
            self._before_turn()
            link.turn_to(self._fd)
        view = memoryview(data).cast("B")
        size = len(view)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:  # somebody made the shared pipe non-blocking, asyncio does
                os.set_blocking(self._fd, True)
        return size

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
        self._link = link
        self._make()

    def _make(self) -> None:
        # Of two streams that both held back unfinished lines the order would be lost, so only one does.
        self._out = _text(_Pipe(1, self._link, self._flush_err), write_through=False)
        self._err = _text(_Pipe(2, self._link, self._flush_out), write_through=True)

    def restore(self) -> None:
        """Make sys.stdout and sys.stderr ours again, new ones if the old were detached."""
        import sys

        if not self.flush():
            self._make()
        sys.stdout = sys.__stdout__ = self._out
        sys.stderr = sys.__stderr__ = self._err

    def flush(self) -> bool:
        """Write what is left of unfinished lines. False if the user detached a stream."""
        return self._flush_out() and self._flush_err()

    def _flush_out(self) -> bool:
        return _flush(self._out)

    def _flush_err(self) -> bool:
        return _flush(self._err)


def _flush(stream: io.TextIOWrapper) -> bool:
    try:
        stream.flush()
    except ValueError:
        return False
    return True


def _text(pipe: _Pipe, *, write_through: bool) -> io.TextIOWrapper:
    # Whole lines at a time; what is left of one goes out before anything else does. Anything that Python can hold can
    # be printed, lone surrogates included.
    return io.TextIOWrapper(
        pipe, encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=write_through
    )
