"""What must happen when user code starts a process: output in order, no memory limit, no second kernel.

Programs are started through a handful of functions of the standard library. Each is wrapped once, in the zygote;
plain forks are met with ``os.register_at_fork``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from . import interrupts, openmp
from .link import Link
from .memory_limit import MemoryLimit
from .streams import Streams


class Spawning:
    """Hooks that are asleep in the zygote and awake in a context."""

    def __init__(self, link: Link, streams: Streams, limit: MemoryLimit) -> None:
        self._link, self._streams, self._limit = link, streams, limit
        self.awake = False

    def install(self) -> None:
        import _posixsubprocess
        import subprocess

        _posixsubprocess.fork_exec = self._wrap(_posixsubprocess.fork_exec)
        if hasattr(subprocess, "_fork_exec"):  # the name subprocess calls it by
            subprocess._fork_exec = self._wrap(subprocess._fork_exec)
        for name in ("posix_spawn", "posix_spawnp", "system"):
            setattr(os, name, self._wrap(getattr(os, name)))
        os.write = self._write(os.write)
        os.register_at_fork(before=self._before_fork, after_in_child=self._in_child)

    def _wrap(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not self.awake:
                return start(*args, **kwargs)
            self._streams.flush()
            self._link.before_spawn()
            with self._limit:
                return start(*args, **kwargs)

        return wrapped

    def _write(self, write: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(write)
        def wrapped(fd: int, data: Any, /) -> int:
            if fd in (1, 2) and self.awake:
                self._streams.flush()  # lines that print() gathered come first
            return write(fd, data)

        return wrapped

    def _before_fork(self) -> None:
        if self.awake:
            self._streams.flush()
            self._link.before_spawn()
            openmp.end_threads()

    def _in_child(self) -> None:
        if self.awake:
            self._link.disconnect()
            self._limit.set(0)
            interrupts.in_child()
