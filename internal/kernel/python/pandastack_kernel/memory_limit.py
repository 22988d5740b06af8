"""The soft limit on a context's address space, which turns running out of memory into a MemoryError."""

from __future__ import annotations

import os
import resource
from types import TracebackType

from .link import high_descriptor

#: Room that the kernel itself always keeps, so that it can format the MemoryError and run `del big` afterwards.
RESERVE = 64 << 20


class MemoryLimit:
    """RLIMIT_AS of this process. Lifted around everything that starts another program, which may need far more."""

    def __init__(self) -> None:
        self._limit = 0
        self._now = resource.RLIM_INFINITY
        self._lifted = 0
        self._statm = -1

    def set(self, size: int) -> None:
        """Limit the address space to ``size`` bytes; 0 takes the limit away."""
        self._limit = size
        if size and self._statm < 0:
            self._statm = high_descriptor(os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC))
        if size:
            self.apply()
        else:
            self._set(resource.RLIM_INFINITY)

    def apply(self) -> None:
        """Set the limit for the next cell: at least what is in use plus a reserve, or not even ``del`` would run."""
        if self._limit:
            used = int(os.pread(self._statm, 64, 0).split()[0]) * resource.getpagesize()
            self._set(max(self._limit, used + RESERVE))

    def lift(self) -> None:
        """Take the limit away until the next :meth:`apply`."""
        if self._limit:
            self._set(resource.RLIM_INFINITY)

    def _set(self, size: int) -> None:
        if size != self._now:  # a system call each is worth saving
            _set_soft(size)
            self._now = size

    def __enter__(self) -> None:
        self._lifted += 1
        if self._lifted == 1:
            self._before = self._now
            self.lift()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._lifted -= 1
        if self._limit and self._lifted == 0:
            self._set(self._before)


def _set_soft(size: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY and (size == resource.RLIM_INFINITY or size > hard):
        size = hard
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))
