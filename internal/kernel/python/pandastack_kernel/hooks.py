"""Lets a program in a sandbox do something before a snapshot of it is taken, and after it was restored.

    from pandastack_kernel import hooks

    @hooks.on_snapshot
    def flush(): ...

    @hooks.on_restore
    def renew(generation): ...

Works in code contexts, and in other Python programs of the sandbox after
``sys.path.append("/run/pandastack/program/kernel")``. Hooks run one after the other in a thread of their own. Needs
nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

FOLDER = "/run/pandastack-hooks"  # where the guest agent looks for whom to tell

_hooks: dict[str, list[Callable[..., Any]]] = {"snapshot": [], "restore": []}
_lock = threading.Lock()
_listener: socket.socket | None = None


def on_snapshot(hook: Callable[[], Any]) -> Callable[[], Any]:
    """Calls ``hook()`` before each image is taken: a snapshot, a fork, a hibernation, a pause.

    The image waits up to 2 s for all hooks of all programs. What a hook raises is written to stderr and reported; the
    image is taken all the same.
    """
    return _add("snapshot", hook)


def on_restore(hook: Callable[[int], Any]) -> Callable[[int], Any]:
    """Calls ``hook(generation)`` in every copy after it was restored, and after a wake, but not in an original that goes on.

    ``generation`` is the number in ``/run/pandastack-generation``. By then clock, host name and random state are those
    of the copy.
    """
    return _add("restore", hook)


def _add(event: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    with _lock:
        _hooks[event].append(hook)
        _listen()
    return hook


def _listen() -> None:
    """Opens the socket by which this process is told. The lock is held."""
    global _listener
    if _listener is not None:
        return
    path = f"{FOLDER}/{os.getpid()}-{os.urandom(4).hex()}.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(8)
    _listener = listener
    threading.Thread(target=_serve, args=(listener,), name="pandastack-hooks", daemon=True).start()


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            try:
                message = json.loads(connection.makefile("rb").readline())
                connection.sendall((_call(message) or "ok").encode() + b"\n")
            except (OSError, ValueError):
                continue  # whoever asked has gone


def _call(message: dict[str, Any]) -> str:
    failed = []
    for hook in list(_hooks.get(message["event"], ())):
        try:
            hook(message["generation"]) if message["event"] == "restore" else hook()
        except BaseException as error:
            traceback.print_exc(file=sys.stderr)
            failed.append(f"{type(error).__name__}: {error}"[:200].replace("\n", " "))
    return "; ".join(failed)


def _after_fork() -> None:
    """A child has the hooks, and needs a socket and a thread of its own."""
    global _listener, _lock
    _lock = threading.Lock()
    if _listener is not None:
        _listener.close()
        _listener = None
        with _lock:
            _listen()


os.register_at_fork(after_in_child=_after_fork)
