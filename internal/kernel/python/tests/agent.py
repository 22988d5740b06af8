"""Plays the guest agent for tests: starts a zygote, forks contexts, answers the sync channel, runs cells."""

from __future__ import annotations

import array
import base64
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).resolve().parent.parent
PATIENCE = 120.0  # seconds after which a test fails; nothing is expected to take that long


@dataclass
class Event:
    """One thing that a context did, in the order the agent saw it."""

    kind: str  # stdout, stderr, result, end, ready, rehearsed
    text: str = ""
    frame: dict[str, Any] = field(default_factory=dict)


@dataclass
class Ran:
    """A finished cell."""

    events: list[Event]

    def _joined(self, kind: str) -> str:
        return "".join(event.text for event in self.events if event.kind == kind)

    @property
    def stdout(self) -> str:
        return self._joined("stdout")

    @property
    def stderr(self) -> str:
        return self._joined("stderr")

    @property
    def results(self) -> list[dict[str, Any]]:
        return [event.frame for event in self.events if event.kind == "result"]

    @property
    def data(self) -> list[dict[str, str]]:
        return [frame["data"] for frame in self.results]

    @property
    def end(self) -> dict[str, Any]:
        return self.events[-1].frame

    @property
    def ok(self) -> bool:
        return self.end.get("status") == "ok"

    @property
    def text(self) -> str | None:
        """text/plain of the value of the last expression."""
        for frame in self.results:
            if frame["last"]:
                return frame["data"].get("text/plain")
        return None

    @property
    def transcript(self) -> str:
        """Kinds and texts in order, neighbours of one kind joined."""
        parts: list[tuple[str, str]] = []
        for event in self.events:
            if event.kind in ("stdout", "stderr"):
                if parts and parts[-1][0] == event.kind:
                    parts[-1] = (event.kind, parts[-1][1] + event.text)
                else:
                    parts.append((event.kind, event.text))
            elif event.kind == "result":
                parts.append(("result", event.frame["data"].get("text/plain", "")))
        return " ".join(f"{kind}:{text.strip()}" for kind, text in parts)


class Died(Exception):
    """The context ended in the middle of a cell."""

    def __init__(self, events: list[Event]) -> None:
        super().__init__("the context ended")
        self.ran = Ran(events)


class Zygote:
    """A running zygote."""

    def __init__(self, imports: list[str] | None = None, warmup: str = "", env: dict[str, str] | None = None) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {
            **os.environ,
            "PYTHONPATH": str(PROGRAM),
            "PANDASTACK_WARMUP": warmup,
            "PYTHONDONTWRITEBYTECODE": "1",
            **(env or {}),
        }
        environment.pop("PYTHONUNBUFFERED", None)  # it unbuffers C's output too, which is for the kernel to do
        if imports is not None:
            environment["PANDASTACK_IMPORTS"] = json.dumps(imports)
        read = theirs.fileno()

        def place() -> None:
            os.dup2(read, 3, inheritable=True)
            if read != 3:
                os.close(read)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "pandastack_kernel.zygote"],
            env=environment,
            pass_fds=(3, read) if read != 3 else (3,),
            preexec_fn=place,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.socket = ours
        self.socket.settimeout(PATIENCE)
        self.exits: dict[int, dict[str, Any]] = {}
        self.ready = self.receive()
        assert self.ready["op"] == "ready", self.ready

    def receive(self) -> dict[str, Any]:
        body = self.socket.recv(64 << 10)
        if not body:
            raise EOFError("the zygote ended")
        return json.loads(body)

    def fork(self, token: str = "t", *, ahead: bool = True) -> Context:
        context = Context(self)
        descriptors = array.array("i", context.handed)
        self.socket.sendmsg(
            [json.dumps({"op": "fork", "id": token, "ahead": ahead}).encode()],
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)],
        )
        message = self._until(lambda message: message["op"] in ("forked", "fork_failed"))
        context.close_handed()
        assert message["op"] == "forked" and message["id"] == token, message
        context.pid = message["pid"]
        return context

    def context(self, **init: Any) -> Context:
        context = self.fork()
        context.init(**init)
        return context

    def exited(self, pid: int) -> dict[str, Any]:
        """How a context ended; waits for it."""
        if pid not in self.exits:
            self._until(lambda message: message.get("pid") == pid and message["op"] == "exited")
        return self.exits[pid]

    def _until(self, wanted: Any) -> dict[str, Any]:
        while True:
            message = self.receive()
            if message["op"] == "exited":
                self.exits[message["pid"]] = message
            if wanted(message):
                return message

    def close(self) -> None:
        self.socket.close()
        self.process.wait(PATIENCE)


class Context:
    """The agent's end of one context."""

    def __init__(self, zygote: Zygote) -> None:
        self.zygote = zygote
        self.pid = 0
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sync, sync = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        for fd in (self.out, self.err):
            os.set_blocking(fd, False)
        self._kept = (control, sync)
        self.handed = [control.fileno(), sync.fileno(), out, err]
        self._buffer = bytearray()
        self._runs = 0
        self._open = {self.out: "stdout", self.err: "stderr"}

    def close_handed(self) -> None:
        for sock in self._kept:
            sock.close()
        for fd in self.handed[2:]:
            os.close(fd)

    def send(self, frame: dict[str, Any]) -> None:
        self.send_all([frame])

    def send_all(self, frames: list[dict[str, Any]]) -> None:
        """Send several frames that arrive together."""
        bodies = [json.dumps(frame).encode() for frame in frames]
        self.control.sendall(b"".join(struct.pack(">I", len(body)) + body for body in bodies))

    def init(
        self,
        cwd: str = "/tmp",
        envs: dict[str, str] | None = None,
        reseed: bool = False,
        entropy: bytes = b"",
        memory_limit: int = 0,
    ) -> dict[str, Any]:
        self.send(
            {
                "op": "init",
                "context_id": "c",
                "cwd": cwd,
                "envs": envs or {},
                "reseed": reseed,
                "entropy": base64.b64encode(entropy).decode(),
                "memory_limit": memory_limit,
            }
        )
        for event in self.events():
            if event.kind == "ready":
                return event.frame
        raise AssertionError("unreachable")

    def copies(self, count: int = 1) -> tuple[list[Context], list[str]]:
        """Fork this context; gives the copies, each after its `init`, and the warnings."""
        made = [Context(self.zygote) for _ in range(count)]
        body = json.dumps({"op": "fork", "id": "f", "count": count}).encode()
        descriptors = array.array("i", [fd for copy in made for fd in copy.handed])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
        self.control.sendmsg([struct.pack(">I", len(body)) + body], rights)
        answer = next(iter(self.events())).frame
        for copy in made:
            copy.close_handed()
        if answer["op"] == "fork_failed":
            raise RuntimeError(answer["error"])
        assert answer["id"] == "f"
        for copy in made:
            copy.pid = next(iter(copy.events())).frame["pid"]
            copy.init(cwd="")
        return made, answer["warnings"]

    def leave(self) -> None:
        """Close the line of a copy, which is nobody's child here."""
        self.control.close()
        self.sync.close()
        for fd in (self.out, self.err):
            os.close(fd)

    def rehearse(self) -> None:
        """Let a spare rehearse once more, as the agent does after a restore."""
        self.send({"op": "rehearse"})
        assert [event.kind for event in self.events()] == ["rehearsed"]

    def start(self, code: str, notebook: dict[str, Any] | None = None) -> str:
        self._runs += 1
        run = f"r{self._runs}"
        self.send({"op": "run", "id": run, "code": code, **({} if notebook is None else {"notebook": notebook})})
        return run

    def ask(self, kind: str, content: dict[str, Any], buffers: tuple[bytes, ...] = ()) -> Ran:
        """Ask what a notebook asks, to its end."""
        self._runs += 1
        encoded = [base64.b64encode(each).decode() for each in buffers]
        self.send({"op": "ask", "id": f"r{self._runs}", "type": kind, "content": content, "metadata": {}, "buffers": encoded})
        return self.finish()

    def run(self, code: str) -> Ran:
        """Run a cell to its end. Raises Died if the context ends first."""
        self.start(code)
        return self.finish()

    def finish(self) -> Ran:
        return Ran(list(self.events()))

    def interrupt(self, run: str) -> None:
        """Ask to end a cell, whether it has begun or not."""
        self.send({"op": "interrupt", "id": run})
        os.killpg(self.pid, signal.SIGINT)

    def run_interrupted(self, code: str, marker: str, times: int = 1) -> Ran:
        """Run a cell and interrupt it once its output holds ``marker``."""
        run = self.start(code)
        seen, events = "", []
        for event in self.events():
            events.append(event)
            seen += event.text
            if times and marker in seen:
                self.interrupt(run)
                times -= 1
        return Ran(events)

    def events(self) -> Iterator[Event]:
        """What happens until the cell (or `init`) has ended, as the agent of PROTOCOL.md sees it."""
        deadline = time.monotonic() + PATIENCE
        gathered: list[Event] = []
        while True:
            left = deadline - time.monotonic()
            assert left > 0, f"nothing ended; so far: {gathered}"
            ready, _, _ = select.select([self.control, self.sync, *self._open], [], [], left)
            new: list[Event] = []
            if self.sync in ready and self.sync.recv(1):
                self._control(new)
                self._drain(new)
                self.sync.sendall(b"k")
            elif self.control in ready:
                alive = self._control(new)
                if not alive:
                    self._drain(new)
                    gathered += new
                    raise Died(gathered)
            else:
                self._drain(new)
            for event in new:
                gathered.append(event)
                yield event
                if event.kind in ("end", "ready", "rehearsed", "forked", "fork_failed"):
                    return

    def _drain(self, events: list[Event]) -> None:
        for fd, kind in list(self._open.items()):
            while True:
                try:
                    chunk = os.read(fd, 1 << 16)
                except BlockingIOError:
                    break
                if not chunk:
                    del self._open[fd]
                    break
                events.append(Event(kind, chunk.decode(errors="replace")))

    def _control(self, events: list[Event]) -> bool:
        while True:
            try:
                chunk = self.control.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                chunk = None
            except ConnectionError:
                return False
            if chunk == b"":
                return False
            if chunk:
                self._buffer += chunk
            while len(self._buffer) >= 4:
                (length,) = struct.unpack(">I", self._buffer[:4])
                if len(self._buffer) < 4 + length:
                    break
                frame = json.loads(bytes(self._buffer[4 : 4 + length]))
                del self._buffer[: 4 + length]
                self._drain(events)
                events.append(Event(frame["op"], frame=frame))
            if chunk is None and not self._partial():
                return True

    def _partial(self) -> bool:
        if len(self._buffer) == 0:
            return False
        select.select([self.control], [], [], 1)
        return True

    def close(self) -> dict[str, Any]:
        """Close the line and wait for the context to end."""
        self.control.close()
        self.sync.close()
        for fd in (self.out, self.err):
            os.close(fd)
        try:
            return self.zygote.exited(self.pid)
        except TimeoutError:
            os.killpg(self.pid, signal.SIGKILL)  # leave nothing behind, whatever the test was about
            raise


@contextmanager
def zygote(**options: Any) -> Iterator[Zygote]:
    made = Zygote(**options)
    try:
        yield made
    finally:
        made.close()
