"""The HTTP server of the scripted model."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, List

from . import protocol, responses
from .script import Script, ScriptError

COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/responses"


class ScriptedModel:
    """Serves a script on loopback. A context manager.

    Attributes:
        base_url: what clients take as their base URL, ending in ``/v1``.
        requests: the bodies of all requests so far, in order; those of the Responses API as they would be for chat
            completions.
        refused: why requests were refused, in order; empty when all went as the script has it.
    """

    def __init__(self, script: Script, *, port: int = 0) -> None:
        self.requests: List[Dict[str, Any]] = []
        self.refused: List[str] = []
        self._script = script
        model = self

        class Handler(_Handler):
            scripted = model

        self._http = _Server(("127.0.0.1", port), Handler)
        self.base_url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> "ScriptedModel":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def answer(self, path: str, body: bytes) -> "tuple[Dict[str, Any], Any]":
        """The request and the reply to it. Raises ScriptError, ProtocolError or ValueError."""
        try:
            request = json.loads(body)
            if path == RESPONSES:
                request = responses.as_chat(request)
            else:
                protocol.check(request)
            self.requests.append(request)
            return request, self._script.reply(request)
        except (ScriptError, protocol.ProtocolError, ValueError) as error:
            self.refused.append(str(error))
            raise


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to write a traceback for."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scripted: ScriptedModel

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send(200, {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "script"}]})
        else:
            self._refuse(404, f"no route GET {self.path}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path not in (COMPLETIONS, RESPONSES):
            return self._refuse(404, f"no route POST {self.path}")
        if not self.headers.get("Authorization", "").startswith("Bearer "):
            return self._refuse(401, "you didn't provide an API key")
        try:
            request, reply = self.scripted.answer(self.path, body)
        except (ScriptError, protocol.ProtocolError, ValueError) as error:
            return self._refuse(400, str(error))
        if request.get("stream"):
            self._stream(request, reply)
        else:
            written = responses if self.path == RESPONSES else protocol
            self._send(200, written.whole(request, reply))

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, status: int, words: str) -> None:
        kind = "authentication_error" if status == 401 else "invalid_request_error"
        self._send(status, {"error": {"message": words, "type": kind, "param": None, "code": None}})

    def _stream(self, request: Dict[str, Any], reply: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in protocol.pieces(request, reply):
            self._chunk(f"data: {json.dumps(chunk)}\n\n".encode())
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
