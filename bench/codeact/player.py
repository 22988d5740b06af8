"""A model that plays what it is given, over the HTTP of chat completions, and keeps what it was asked.

Many runs share one server: each has an address of its own. Unlike `pandastack agent script` it decides what to say by what it was
told, so an answer is read off an observation and is not known before.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .counting import Message, Reply, Request

# Says something, is sent what it is told of it, and so on.
Play = Callable[[], "Iterator[Reply]"]


@dataclass
class Game:
    """One run: what is played, and what was asked and said so far."""

    play: Any  # a generator of replies, which is sent the last message
    requests: list[Request] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    error: str = ""

    def answer(self, request: Request) -> Reply:
        last = request.messages[-1].text
        try:
            reply: Reply = self.play.send(last if self.replies else None)
        except StopIteration:
            self.error = f"it was asked for more than it has to say; the last it was told is {last!r}"
            raise ValueError(self.error) from None
        self.requests.append(request)
        self.replies.append(reply)
        return reply


class Player:
    """Serves games on loopback. A context manager."""

    def __init__(self) -> None:
        games: dict[str, Game] = {}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    reply = games[self.path.split("/")[1]].answer(from_wire(body))
                except (KeyError, ValueError) as error:
                    return self.send(400, "application/json", json.dumps({"error": {"message": str(error)}}).encode())
                chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas(reply)]
                chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if reply.calls else "stop"}]})
                events = [json.dumps({"id": "played", "model": "player", **chunk}) for chunk in chunks] + ["[DONE]"]
                self.send(200, "text/event-stream", "".join(f"data: {event}\n\n" for event in events).encode())

            def send(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._games = games
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def game(self, play: Any) -> tuple[Game, str]:
        """A game, and the base URL at which it is played."""
        name = f"game-{len(self._games)}"
        self._games[name] = Game(play)
        return self._games[name], f"http://127.0.0.1:{self._server.server_port}/{name}/v1"

    def __enter__(self) -> "Player":
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()


def deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    """A reply in pieces, as a stream has it."""
    if reply.text:
        yield {"role": "assistant", "content": reply.text}
    for i, (name, arguments) in enumerate(reply.calls):
        yield {"tool_calls": [{"index": i, "id": f"call_{i}_{abs(hash(arguments))}", "type": "function", "function": {"name": name, "arguments": arguments}}]}


def from_wire(body: dict[str, Any]) -> Request:
    """A request of chat completions, as it is counted."""
    system = "".join(m["content"] for m in body["messages"] if m["role"] == "system")
    messages = []
    for m in body["messages"]:
        if m["role"] != "system":
            calls = [(c["function"]["name"], c["function"]["arguments"]) for c in m.get("tool_calls") or []]
            content = m["content"] if isinstance(m["content"], str) else "".join(part.get("text", "") for part in m["content"] or [])
            messages.append(Message(m["role"], content, calls))
    tools = [tool["function"] for tool in body.get("tools") or []]
    return Request(system, tools, messages)
