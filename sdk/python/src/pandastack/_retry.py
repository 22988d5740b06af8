"""When to call again while the server restarts. Pure: clocks and sleeps are the caller's."""

from __future__ import annotations

import time
from typing import Callable, Optional

FIRST_DELAY = 0.05
LONGEST_DELAY = 1.0
GIVE_UP_SECONDS = 60.0
FIRST_CALL_SECONDS = 10.0  # of a client whose server has never answered: it may be something else that listens there


class Backoff:
    """Growing pauses from the first failure on, until a bound has passed.

    `clock` gives seconds; it is a parameter for tests.
    """

    def __init__(self, limit: float = GIVE_UP_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._since: Optional[float] = None
        self._delay = FIRST_DELAY

    def pause(self) -> Optional[float]:
        """Seconds to sleep before another try, None when it is time to give up."""
        now = self._clock()
        if self._since is None:
            self._since = now
        if now - self._since >= self._limit:
            return None
        delay = self._delay
        self._delay = min(self._delay * 2, LONGEST_DELAY)
        return delay

    def reset(self) -> None:
        """There was an answer: the next failure starts a new count."""
        self._since = None
        self._delay = FIRST_DELAY
