"""Draws plotly and altair charts as pictures, in a helper process that is started when the first one is needed.

A browser and a JavaScript engine bring threads, and a process with threads cannot be forked safely, so they live in
``render_worker`` instead. It stays for the next chart and ends by itself after a while without any.
"""

from __future__ import annotations

import json
import os
import select
import struct
import subprocess
import sys
import time
from typing import Any

from .link import high_descriptor

#: Seconds until the first picture, which includes starting the browser; and seconds for each later one.
START_SECONDS = 60.0
PICTURE_SECONDS = 30.0

_WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "render_worker.py")


class RenderError(Exception):
    """A chart could not be drawn as a picture."""


class Renderer:
    """One worker, asked one picture at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._requests = self._answers = -1
        self._owner = 0
        self._number = 0
        self._warm = False
        self._buffer = bytearray()

    def draw(self, kind: str, chart: str, **options: Any) -> bytes:
        """The picture of a chart.

        Args:
            kind: ``plotly`` or ``vegalite``.
            chart: its JSON.
            options: ``format`` ("png", "svg", …) and what the kind knows beside it: ``width`` and ``height`` in
                pixels, ``scale``, ``version`` of Vega-Lite.

        Raises:
            RenderError: the worker cannot start, or has not answered in time, or reports an error.
        """
        if self._owner and self._owner != os.getpid():
            raise RenderError("charts are not drawn in a forked process")
        if self._process is None or self._process.poll() is not None:
            self._start()
        self._number += 1
        request = json.dumps({"id": self._number, "kind": kind, "chart": chart, **options}).encode()
        limit = PICTURE_SECONDS if self._warm else START_SECONDS
        deadline = time.monotonic() + limit
        try:
            self._write(struct.pack(">I", len(request)) + request, deadline)
            while True:
                head, body = self._answer(deadline)
                if head["id"] == self._number:  # an answer to a request that was interrupted is passed over
                    break
        except TimeoutError:
            self.stop()
            raise RenderError(f"no picture after {limit:.0f} s") from None
        except OSError as error:
            self.stop()
            raise RenderError(f"the drawing process ended ({error})") from None
        if "error" in head:
            raise RenderError(head["error"])
        self._warm = True
        return body

    def stop(self) -> None:
        """End the worker; the next chart starts another."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        for fd in (self._requests, self._answers):
            os.close(fd)
        try:
            process.wait(5)  # it ends when its input does
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def forget(self) -> None:
        """In a fork that becomes a context of its own: leave the worker to the original."""
        process, self._process, self._owner = self._process, None, 0
        if process is None:
            return
        for fd in (self._requests, self._answers):
            os.close(fd)
        process.returncode = 0  # nobody's to wait for here

    def _start(self) -> None:
        self.stop()
        self._buffer.clear()
        self._warm = False
        their_requests, requests = os.pipe()
        answers, their_answers = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", _WORKER],
                stdin=their_requests,
                stdout=their_answers,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt of the cell is not for it
                cwd="/",
            )
        except OSError as error:
            os.close(requests)
            os.close(answers)
            raise RenderError(f"the drawing process cannot start: {error}") from None
        finally:
            os.close(their_requests)
            os.close(their_answers)
        self._owner = os.getpid()
        self._requests, self._answers = high_descriptor(requests), high_descriptor(answers)
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)

    def _write(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            _, ready, _ = select.select([], [self._requests], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            view = view[os.write(self._requests, view) :]

    def _answer(self, deadline: float) -> tuple[dict[str, Any], bytes]:
        while True:
            if len(self._buffer) >= 8:
                head_size, body_size = struct.unpack(">II", self._buffer[:8])
                end = 8 + head_size + body_size
                if len(self._buffer) >= end:
                    head = json.loads(bytes(self._buffer[8 : 8 + head_size]))
                    body = bytes(self._buffer[8 + head_size : end])
                    del self._buffer[:end]
                    return head, body
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            chunk = os.read(self._answers, 1 << 20)
            if not chunk:
                raise BrokenPipeError("it closed its output")
            self._buffer += chunk
