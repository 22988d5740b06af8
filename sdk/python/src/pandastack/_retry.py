"""When to call again while the server restarts. Pure: clocks and sleeps are the caller's."""

from __future__ import annotations

import random
import time
from typing import Callable, Optional

from ._request import Request
from .errors import PandastackError

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


LONGEST_WAIT = 2.0  # that a server may ask for and get
THROTTLE_SECONDS = 30.0  # that a call waits in all


class Throttle:
    """When to send again what was refused only because there were too many calls in a second.

    The server says so before it does anything, so that any call may be sent again, unless its body is a file that has
    been read. Other limits (sandboxes, contexts, processes) are the caller's to wait for: their ``Retry-After`` is longer.
    """

    def __init__(self, request: Request, clock: Callable[[], float] = time.monotonic) -> None:
        self._resendable = request.body is None or isinstance(request.body, (dict, bytes))
        self._clock = clock
        self._began = clock()

    def pause(self, error: PandastackError) -> Optional[float]:
        """Seconds to sleep before another try, None when there should be none."""
        wait = error.retry_after
        if error.status_code != 429 or not self._resendable or wait is None or not 0 < wait <= LONGEST_WAIT:
            return None
        if self._clock() - self._began + wait > THROTTLE_SECONDS:
            return None
        return wait * random.uniform(1, 1.5)  # not all at once
