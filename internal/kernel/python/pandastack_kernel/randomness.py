"""Fresh random state for a context that woke up as a copy of another."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def reseed(entropy: bytes) -> None:
    """Seed every generator of the interpreter that a copy would share with its siblings.

    Those are ``random``, numpy's legacy generator, OpenSSL's pool, the names of temporary files and the key of
    ``multiprocessing``. ``os.urandom``, ``uuid4`` and ``secrets`` come from the operating system. Generators that the
    program holds itself (``numpy.random.default_rng()`` in a variable) cannot be reached.

    Args:
        entropy: 48 bytes or more, different for every copy.
    """
    import random

    entropy += os.urandom(16)
    random.seed(entropy)
    if "numpy.random" in sys.modules:
        words = [int.from_bytes(entropy[at : at + 4], "little") for at in range(0, len(entropy) - 3, 4)]
        sys.modules["numpy.random"].seed(words)
    if "ssl" in sys.modules:
        sys.modules["ssl"].RAND_add(entropy, float(len(entropy)))
    if "tempfile" in sys.modules:
        sys.modules["tempfile"]._name_sequence = None
    if "multiprocessing.process" in sys.modules:
        process = sys.modules["multiprocessing.process"]
        process.current_process()._config["authkey"] = process.AuthenticationString(os.urandom(32))


@contextmanager
def kept() -> Iterator[None]:
    """Give the seeded generators back the state they had before the block."""
    import random

    numpy_random = sys.modules.get("numpy.random")
    state, numpy_state = random.getstate(), numpy_random.get_state() if numpy_random else None
    yield
    random.setstate(state)
    if numpy_random is not None:
        numpy_random.set_state(numpy_state)
