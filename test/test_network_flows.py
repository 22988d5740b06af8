"""Connections that are open when something happens to the sandbox, or to the daemon that carries them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest
from daemon import Daemon
from names import own_address
from pandastack import Sandbox


class Peer:
    """Says one byte and then nothing ("idle"), or ever more ("flood"), or what it hears ("echo")."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("0.0.0.0", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    @staticmethod
    def _serve(conn: socket.socket) -> None:
        with conn:
            try:
                kind = conn.recv(16)
                conn.sendall(b".")
                while kind == b"flood\n":
                    conn.sendall(bytes(1 << 16))
                while data := conn.recv(1 << 16):
                    conn.sendall(data)
            except OSError:
                pass


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    p = Peer()
    yield p
    p.socket.close()


# Two connections, one that waits for data and one in the middle of it, and how they end.
FOLLOW = r"""
import json, socket, threading
def connect(kind):
    s = socket.create_connection((ADDRESS, PORT)); s.settimeout(60); s.sendall(kind)
    assert s.recv(1) == b"."
    return s
def follow(kind):
    s, end = connect(kind), []
    def run():
        try:
            while s.recv(1 << 16): pass
            end.append("closed")
        except OSError as e:
            end.append(type(e).__name__)
    t = threading.Thread(target=run, daemon=True); t.start()
    return t, end
def ends():
    for t, _ in flows: t.join(50)
    return json.dumps([end for _, end in flows])
flows = [follow(b"idle\n"), follow(b"flood\n")]
"""

# One more, which must work.
AGAIN = "s = connect(b'echo\\n'); s.sendall(b'hello'); s.recv(5)"


def run(sb: Sandbox, code: str) -> str | None:
    ex = sb.run_code(code, timeout_seconds=120)
    assert ex.error is None, ex.error
    return ex.text


def make(d: Daemon, peer: Peer) -> Sandbox:
    address = own_address()
    sb = Sandbox.create("code-interpreter", ttl_seconds=900, network={"allow": [f"{address}:{peer.port}"]}, api_url=d.url, api_key=d.key)
    run(sb, f"ADDRESS, PORT = {address!r}, {peer.port}\n" + FOLLOW)
    assert run(sb, "[end for _, end in flows]") == "[[], []]", "both are open"
    assert run(sb, AGAIN) == "b'hello'"
    return sb


def ends(sb: Sandbox) -> list[list[str]]:
    ex = sb.run_code("print(ends())", timeout_seconds=150)
    assert ex.error is None, ex.error
    return json.loads(ex.stdout)


def test_a_killed_daemon_resets_what_it_carried(own_daemon: Daemon, peer: Peer) -> None:
    sb = make(own_daemon, peer)
    own_daemon.kill9()
    own_daemon.start()
    assert ends(sb) == [["ConnectionResetError"], ["ConnectionResetError"]]
    assert run(sb, AGAIN) == "b'hello'"


def test_a_stopped_daemon_resets_what_it_carried(own_daemon: Daemon, peer: Peer) -> None:
    sb = make(own_daemon, peer)
    assert own_daemon.stop() == 0
    own_daemon.start()
    assert ends(sb) == [["ConnectionResetError"], ["ConnectionResetError"]]
    assert run(sb, AGAIN) == "b'hello'"


def test_a_copy_hears_that_its_connections_are_gone_and_the_original_keeps_them(daemon: Daemon, peer: Peer) -> None:
    with make(daemon, peer) as sb:
        copied = sb.fork()
        copied = copied[0] if isinstance(copied, list) else copied
        with copied:
            got = ends(copied)
            assert got == [["ConnectionResetError"], ["ConnectionResetError"]]
            assert run(copied, AGAIN) == "b'hello'"
        assert run(sb, "[end for _, end in flows]") == "[[], []]"
        assert run(sb, "s.sendall(b'still'); s.recv(5)") == "b'still'"


def test_a_woken_sandbox_hears_that_its_connections_are_gone(daemon: Daemon, peer: Peer) -> None:
    with make(daemon, peer) as sb:
        sb.hibernate()
        sb.wake()
        got = ends(sb)
        assert got == [["ConnectionResetError"], ["ConnectionResetError"]]
        assert run(sb, AGAIN) == "b'hello'"


def test_a_pause_keeps_connections(daemon: Daemon, peer: Peer) -> None:
    with make(daemon, peer) as sb:
        sb.pause()
        sb.resume()
        assert run(sb, "s.sendall(b'still'); s.recv(5)") == "b'still'"
        assert run(sb, "[end for _, end in flows]") == "[[], []]"
