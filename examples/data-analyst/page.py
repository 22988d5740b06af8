"""A small web page that shows the analyst at work. Steps are sent as they happen, as server-sent events."""

from __future__ import annotations

import json
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

PAGE = Path(__file__).resolve().parent / "page.html"
MAX_QUESTION = 4000  # bytes


class Page:
    """Serves the page on loopback. A context manager.

    A browser that comes later, or comes back, is sent what it missed.
    """

    def __init__(self, port: int = 0) -> None:
        self._steps: List[Dict[str, Any]] = []
        self._changed = threading.Condition()
        self._questions: "queue.Queue[Optional[str]]" = queue.Queue()
        self._closed = False
        page = self

        class Handler(_Handler):
            served = page

        self._http = _Server(("127.0.0.1", port), Handler)
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def publish(self, step: Dict[str, Any]) -> None:
        """Shows a step in every browser."""
        with self._changed:
            self._steps.append(step)
            self._changed.notify_all()

    def put(self, question: str) -> None:
        self._questions.put(question)

    def questions(self) -> Iterator[str]:
        """What is asked, in order, until the page is closed."""
        while True:
            question = self._questions.get()
            if question is None:
                return
            yield question

    def after(self, number: int) -> Iterator["tuple[int, Optional[Dict[str, Any]]]"]:
        """The steps behind a number, then each as it comes; None now and then while there is none."""
        while not self._closed:
            with self._changed:
                if number >= len(self._steps):
                    self._changed.wait(15)
                new = self._steps[number:]
            if not new:
                yield number, None
            for step in new:
                number += 1
                yield number, step

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._questions.put(None)
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to write a traceback for."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    served: Page

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if not self._from_here():
            return
        if self.path == "/":
            self._send(200, "text/html; charset=utf-8", PAGE.read_bytes())
        elif self.path == "/events":
            self._events()
        else:
            self._send(404, "text/plain", b"not here")

    def do_POST(self) -> None:
        if not self._from_here():
            return
        size = int(self.headers.get("Content-Length") or 0)
        if self.path != "/ask" or self.headers.get("Content-Type") != "application/json" or not 0 < size <= MAX_QUESTION:
            return self._send(400, "text/plain", b'POST {"question": "..."} as JSON to /ask')
        try:
            question = json.loads(self.rfile.read(size))["question"].strip()
        except (ValueError, KeyError, TypeError, AttributeError):
            question = ""
        if not question:
            return self._send(400, "text/plain", b"the question is empty")
        self.served.put(question)
        self._send(202, "text/plain", b"asked")

    def _from_here(self) -> bool:
        """Refuses other sites' pages: they reach loopback under names of their own."""
        port = self.served.port
        ours = {f"127.0.0.1:{port}", f"localhost:{port}"}
        origin = self.headers.get("Origin")
        if self.headers.get("Host") in ours and (origin is None or origin.partition("://")[2] in ours):
            return True
        self._send(403, "text/plain", b"only from this machine")
        return False

    def _events(self) -> None:
        last = self.headers.get("Last-Event-ID") or "0"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        try:
            for number, step in self.served.after(int(last) if last.isdigit() else 0):
                text = ": still here\n\n" if step is None else f"id: {number}\ndata: {json.dumps(step)}\n\n"
                self.wfile.write(text.encode())
                self.wfile.flush()
        except OSError:
            pass  # the browser went away

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        # Charts are data URLs; tables of the sandbox are framed without scripts.
        self.send_header("Content-Security-Policy", "default-src 'self' 'unsafe-inline'; img-src data:; frame-src 'self'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)
