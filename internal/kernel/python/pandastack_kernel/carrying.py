"""What a fork of a context cannot carry along, or shares with the original: looked for before, and told.

A fork copies memory and the calling thread. It does not copy other threads and child processes; open files and
connections are the same ones in both.
"""

from __future__ import annotations

import _imp
import fcntl
import os
import sys
import threading
from typing import Any

#: Names given in one warning at most.
NAMED = 5


def survey(own_sockets: set[int]) -> tuple[str, list[str]]:
    """Look at this process before it is forked.

    Args:
        own_sockets: descriptors that are the kernel's.

    Returns:
        Why it must not be forked ("" if it may), and one sentence for each thing that the copies lack or share.
    """
    if _imp.lock_held():
        return "another thread is in the middle of an import, which a copy would wait for without end", []
    found = [_threads(), _children(), _tasks(), *_files(own_sockets)]
    return "", [sentence for sentence in found if sentence]


def _threads() -> str:
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if not others:
        return ""
    return f"threads do not run in a copy ({_some(others)}); what waits for them there waits without end"


def _children() -> str:
    me, children = os.getpid(), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    name, _, rest = file.read().partition(b"(")[2].rpartition(b")")
            except OSError:  # it has ended
                continue
            state, parent = rest.split()[:2]
            if int(parent) == me and state != b"Z":
                children.append(f"{entry} {name.decode(errors='replace')}")
    if not children:
        return ""
    return f"child processes stay with the original ({_some(children)})"


def _event_loop() -> Any:
    """The loop in which IPython runs top-level ``await``, if there is one yet."""
    helpers = sys.modules.get("IPython.core.async_helpers")
    return getattr(helpers, "_asyncio_event_loop", None)


_left: list[Any] = []


def leave_event_loop() -> None:
    """In a fork: let a new loop be made. The old one's epoll is the original's, and closing it would disturb that."""
    if _event_loop() is not None:
        _left.append(_event_loop())  # nor may it be collected, which closes it
        sys.modules["IPython.core.async_helpers"]._asyncio_event_loop = None  # type: ignore[attr-defined]


def _tasks() -> str:
    loop = _event_loop()
    if loop is None:
        return ""
    waiting = [task.get_name() for task in sys.modules["asyncio"].all_tasks(loop) if not task.done()]
    if not waiting:
        return ""
    return f"asyncio tasks do not go on in a copy ({_some(waiting)})"


def _files(own_sockets: set[int]) -> list[str]:
    for name in ("_ssock", "_csock"):  # with which an event loop wakes itself
        pair = getattr(_event_loop(), name, None)
        own_sockets = own_sockets | ({pair.fileno()} if pair else set())
    sockets, files = [], []
    for entry in os.listdir("/proc/self/fd"):
        fd = int(entry)
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
            writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        except OSError:  # the one of the listing itself
            continue
        if target.startswith("socket:"):
            if fd not in own_sockets:
                sockets.append(f"descriptor {fd}")
        elif target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/sys/")) and writable:
            files.append(target)
    sentences = []
    if sockets:
        sentences.append(f"connections are the same in the original and every copy, use each in one of them ({_some(sockets)})")
    databases = sorted({file for file in files if _is_database(file)})
    if databases:
        sentences.append(f"a database that is open must be used in one of them only, or opened again ({_some(databases)})")
    others = sorted(set(files) - set(databases))
    if others:
        sentences.append(f"files open for writing have one position for all ({_some(others)})")
    return sentences


def _is_database(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(16)
    except OSError:
        return False
    return head.startswith(b"SQLite format 3") or head[8:12] == b"DUCK"


def _some(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
