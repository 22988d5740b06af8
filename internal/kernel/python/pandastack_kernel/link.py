"""A context's line to the guest agent: frames on the control socket, order on the sync socket."""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import threading
from typing import Any

from .interrupts import shield

#: The largest frame either side may send, in bytes (PROTOCOL.md).
FRAME_LIMIT = 24 << 20

#: Room for as many descriptors as one message may carry.
_ANCILLARY = socket.CMSG_SPACE(253 * array.array("i").itemsize)

_NOTHING, _FRAME = 0, -1


class Link:
    """Sends and receives frames, and keeps the two output streams and the frames in order.

    Until :meth:`connect` it is mute: frames and output vanish, which is what the rehearsal of a spare needs. In a
    process that the user's code forked it is mute for frames, and output goes straight to the pipes.

    ``last`` tells what went out last: a stream's number, a frame, or nothing yet.
    """

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._sync: socket.socket | None = None
        self._lock = threading.Lock()
        self._held: list[bytes] = []
        self._received = bytearray()
        self.last = _NOTHING
        self.mute = True
        self.interrupted = ""  # the cell that the agent last asked to interrupt
        self._descriptors = array.array("i")  # that came with frames

    @property
    def connected(self) -> bool:
        """Whether frames reach the agent: false in a fork of the user's."""
        return self._control is not None

    def connect(self, control: socket.socket, sync: socket.socket) -> None:
        """Speak over these from now on."""
        self._received.clear()
        self._control, self._sync = control, sync

    def disconnect(self) -> None:
        """Forget the sockets: the process is a fork."""
        for sock in (self._control, self._sync):
            if sock is not None:
                sock.close()
        self._control = self._sync = None
        self._lock = threading.Lock()  # another thread may have held the old one

    def own_sockets(self) -> set[int]:
        """The descriptors that are the kernel's, not the user's."""
        return {sock.fileno() for sock in (self._control, self._sync) if sock is not None}

    def send(self, frame: dict[str, Any]) -> None:
        """Send one frame whole: an interrupt waits until it is out."""
        self.send_encoded(encode(frame))

    def send_encoded(self, body: bytes) -> None:
        if self.mute or self._control is None:
            return
        with shield(), self._lock:
            self._held.append(struct.pack(">I", len(body)) + body)
            self._release()

    def hold(self, body: bytes) -> None:
        """Send a frame together with whatever is next: the last result of a cell goes out with its end."""
        if self.mute or self._control is None:
            return
        with shield(), self._lock:
            self._release()
            self._held.append(struct.pack(">I", len(body)) + body)
            self.last = _FRAME

    def _release(self) -> None:
        if self._held and self._control is not None:
            held, self._held = self._held, []
            self._control.sendall(held[0] if len(held) == 1 else b"".join(held))
            self.last = _FRAME

    def receive(self) -> dict[str, Any] | None:
        """The next frame, or None when the agent has closed the line."""
        while (frame := self._next()) is None:
            if not self._fill():
                return None
        return frame

    def take(self) -> dict[str, Any] | None:
        """The next frame, if a whole one has been received."""
        with shield():
            return self._next()

    def refill(self) -> bool:
        """Receive what is there; false when the agent has closed the line."""
        return self._fill()

    def fileno(self) -> int:
        """The descriptor that may be read when there is more to receive."""
        assert self._control is not None
        return self._control.fileno()

    def _next(self) -> dict[str, Any] | None:
        """Take the next frame out of what has been received, if it is whole."""
        length = self._awaited()
        if length < 0 or len(self._received) < 4 + length:
            return None
        body = bytes(self._received[4 : 4 + length])
        del self._received[: 4 + length]
        return json.loads(body)

    def _awaited(self) -> int:
        """The length of the frame that has begun to come, -1 if that is not known yet."""
        if len(self._received) < 4:
            return -1
        (length,) = struct.unpack(">I", self._received[:4])
        if length > FRAME_LIMIT:
            raise SystemExit(f"a frame of {length} bytes is over the limit of {FRAME_LIMIT}")
        return length

    def interrupts(self, run: str) -> bool:
        """Whether the agent has asked to interrupt this cell, which it is about to run, looking at what has come by now."""
        if self._control is not None and not self.mute:
            with shield():
                try:
                    self._received += self._control.recv(64 << 10, socket.MSG_DONTWAIT)
                except OSError:  # nothing is there, or the agent has gone, which receive() will see
                    pass
                while (frame := self._next()) is not None:
                    if frame["op"] == "interrupt":
                        self.interrupted = frame["id"]  # an answer to an earlier cell's input() is for nobody
        return self.interrupted == run

    def new_cell(self) -> None:
        """Nothing was written yet, so the first write needs no order."""
        self.last = _NOTHING

    def turn_to(self, stream: int) -> None:
        """Let the agent catch up before writing to another stream than last time, or after a frame."""
        if self.last == stream:
            return
        if self.last == _NOTHING or self._sync is None:
            self.last = stream
            return
        with shield(), self._lock:
            self._catch_up()
            self.last = stream

    def before_spawn(self) -> None:
        """A child process is about to write by itself, to either stream: what was sent or written must not come after it."""
        if self.last == _NOTHING or self._sync is None:
            return
        with shield(), self._lock:
            self._catch_up()
            self.last = _NOTHING

    def _catch_up(self) -> None:
        assert self._sync is not None
        self._release()
        try:
            self._sync.sendall(b"s")
            self._sync.recv(1)
        except OSError:
            pass  # the agent is gone; its end of the control socket says so too

    def take_descriptors(self) -> list[int]:
        """The descriptors that came with frames since the last call; they are the caller's to close."""
        taken, self._descriptors = list(self._descriptors), array.array("i")
        return taken

    def _fill(self) -> bool:
        assert self._control is not None
        size = 64 << 10 if self._awaited() < 64 << 10 else 1 << 20
        try:
            chunk, ancillary, _, _ = self._control.recvmsg(size, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            return False
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._descriptors.frombytes(data[: len(data) - len(data) % self._descriptors.itemsize])
        self._received += chunk
        return bool(chunk)


def encode(frame: dict[str, Any]) -> bytes:
    """The JSON of a frame. Lone surrogates, which UTF-8 has no bytes for, become U+FFFD."""
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"), default=str)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def high_descriptor(fd: int) -> int:
    """Move ``fd`` out of the way of code that closes or reuses small numbers; closed on exec.

    The new number is below the limit on open files and below 1024, so that select() could hold it.
    """
    import fcntl
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    floor = 1000 if soft == resource.RLIM_INFINITY or soft > 1024 else max(3, soft - 24)
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, floor)
    os.close(fd)
    return moved
