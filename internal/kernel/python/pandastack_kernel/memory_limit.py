"""The soft limit on a context's address space, which turns running out of memory into a MemoryError."""

from __future__ import annotations

import resource
from types import TracebackType

#: Room that the kernel itself always keeps, so that it can format the MemoryError and run `del big` afterwards.
RESERVE = 64 << 20


class MemoryLimit:
    """RLIMIT_AS of this process. Lifted around everything that starts another program, which may need far more."""

    def __init__(self) -> None:
        self._limit = 0
        self._lifted = 0

    def set(self, size: int) -> None:
        """Limit the address space to ``size`` bytes; 0 takes the limit away."""
        self._limit = size
        self.apply()

    def apply(self) -> None:
        """Set the limit for the next cell: at least what is in use plus a reserve, or not even ``del`` would run."""
        if self._limit:
            _set_soft(max(self._limit, _address_space() + RESERVE))
        else:
            self.lift()

    def lift(self) -> None:
        _set_soft(resource.RLIM_INFINITY)

    def __enter__(self) -> None:
        self._lifted += 1
        if self._limit and self._lifted == 1:
            self._before = resource.getrlimit(resource.RLIMIT_AS)[0]
            self.lift()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._lifted -= 1
        if self._limit and self._lifted == 0:
            _set_soft(self._before)


def _set_soft(size: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY and (size == resource.RLIM_INFINITY or size > hard):
        size = hard
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))


def _address_space() -> int:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()
