"""The soft limit on a context's address space, which turns running out of memory into a MemoryError."""

from __future__ import annotations

import os
import resource
from types import TracebackType

from .link import high_descriptor

#: Room that the kernel itself always keeps, so that it can format the MemoryError and run `del big` afterwards.
RESERVE = 64 << 20

_PAGE = resource.getpagesize()


class MemoryLimit:
    """RLIMIT_AS of this process. Lifted around everything that starts another program, which may need far more."""

    def __init__(self) -> None:
        self._limit = 0
        self._now = resource.RLIM_INFINITY
        self._lifted = 0
        self._statm = -1
        self._hard = resource.RLIM_INFINITY

    def open(self) -> None:
        """Get ready to see what this process has mapped; once in each process."""
        if self._statm >= 0:  # the process that this one was forked from
            os.close(self._statm)
        self._statm = high_descriptor(os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC))

    def set(self, size: int) -> None:
        """Limit what can come into use to ``size`` bytes in all; 0 takes the limit away.

        What is mapped by now and not in use, which is most of what the imports have mapped, does not count.
        """
        self._limit = 0
        if size:
            mapped, used = self._sizes()
            self._limit = size + mapped - used
            self._set(max(self._limit, mapped + RESERVE))
        else:
            self._set(resource.RLIM_INFINITY)

    def apply(self) -> None:
        """Set the limit for the next cell: at least what is mapped plus a reserve, or not even ``del`` would run."""
        if self._limit:
            mapped, _ = self._sizes()
            self._set(max(self._limit, mapped + RESERVE))

    def _sizes(self) -> tuple[int, int]:
        """Bytes that are mapped, and those of them in use."""
        mapped, used = os.pread(self._statm, 64, 0).split()[:2]
        return int(mapped) * _PAGE, int(used) * _PAGE

    def lift(self) -> None:
        """Take the limit away until the next :meth:`apply`."""
        if self._limit:
            self._set(resource.RLIM_INFINITY)

    def _set(self, size: int) -> None:
        if size == self._now:  # a system call is worth saving
            return
        try:
            self._set_soft(size)
        except (ValueError, OSError):  # the user's code has lowered the hard limit
            _, self._hard = resource.getrlimit(resource.RLIMIT_AS)
            self._set_soft(size)
        self._now = size

    def _set_soft(self, size: int) -> None:
        if self._hard != resource.RLIM_INFINITY and (size == resource.RLIM_INFINITY or size > self._hard):
            size = self._hard
        resource.setrlimit(resource.RLIMIT_AS, (size, self._hard))

    def __enter__(self) -> None:
        self._lifted += 1
        if self._lifted == 1:
            self._before = self._now
            self.lift()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._lifted -= 1
        if self._limit and self._lifted == 0:
            self._set(self._before)

