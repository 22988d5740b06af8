"""Runs cells with top-level ``await``, all in one loop, in which the user's tasks go on whenever such a cell runs.

What breaks a cell off, mostly an interrupt, cancels its task and waits until that has ended, so that no cell goes on within
the next.
"""

from __future__ import annotations

import time
from asyncio import BaseEventLoop, Handle, Task, TimerHandle
from asyncio.base_events import _run_until_complete_cb as _stop_when_done  # libraries know a loop's main task by it
from collections.abc import Coroutine, Generator
from typing import Any

from IPython.core.async_helpers import get_asyncio_loop

from . import interrupts

CLEAN_UP = 1.0  # seconds; after two, the agent sends SIGTERM

# An interrupt in the loop's own steps could lose one of a task, which then would wait for ever, or leave the loop running.
for _name in ("run_forever", "_run_once"):
    interrupts.exposing(getattr(BaseEventLoop, _name))
interrupts.exposing(Handle._run)
for _name in ("_run_forever_setup", "_run_forever_cleanup"):  # of Python 3.13 and newer
    if _step := getattr(BaseEventLoop, _name, None):
        interrupts.whole(_step)
interrupts.whole(_stop_when_done)


class _Cell(Coroutine[Any, Any, Any]):
    """The coroutine of a cell, which can be left for good, whatever may still wake its task."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._left = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)  # its frame, its state: for who looks at tasks

    @interrupts.exposing
    def send(self, value: Any) -> Any:
        if self._left:
            raise StopIteration
        return self._coroutine.send(value)

    @interrupts.exposing
    def throw(self, *error: Any) -> Any:
        if self._left:
            raise StopIteration
        return self._coroutine.throw(*error)

    @interrupts.exposing
    def close(self) -> None:
        if not self._left:
            self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    @interrupts.whole
    def leave(self) -> None:
        self._left = True
        _refusing.append(self._coroutine)  # to close or collect it would be to ask it again, and it may loop on that


_refusing: list[Any] = []


@interrupts.exposing
def run(_: Any, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """IPython's runner, in place of its own."""
    loop = get_asyncio_loop()
    if loop.is_running():
        return loop.run_until_complete(coroutine)  # that refuses, unless the user has patched it
    cell = _Cell(coroutine)
    task = loop.create_task(cell)
    task.add_done_callback(_stop_when_done)
    try:
        while not task.done():
            loop.run_forever()
    except BaseException:
        _end(cell, task)
        raise
    return task.result()


@interrupts.exposing
def _end(cell: _Cell, task: Task[Any]) -> None:
    """Cancel a cell, and let it clean up. What comes meanwhile cancels what it cleans up with."""
    until = time.monotonic() + CLEAN_UP
    broken_off = True
    try:
        while not task.done() and time.monotonic() < until:
            timer = _resume(task, until, broken_off)
            broken_off = False
            try:
                task.get_loop().run_forever()
            except RuntimeError:  # the loop cannot be run any more
                break
            except BaseException:
                broken_off = True
            timer.cancel()
    finally:
        _close(cell, task)


@interrupts.whole
def _resume(task: Task[Any], until: float, cancel: bool) -> TimerHandle:
    if cancel:
        task.cancel()
    loop = task.get_loop()
    return loop.call_later(max(until - time.monotonic(), 0), loop.stop)


@interrupts.whole
def _close(cell: _Cell, task: Task[Any]) -> None:
    if not task.done():
        cell.leave()
        task.remove_done_callback(_stop_when_done)
    elif not task.cancelled():
        task.exception()  # nobody else will ask for it
