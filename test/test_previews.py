"""Servers in sandboxes, seen from outside, on the real thing.

Names below localhost are not looked up: requests go to the daemon's own address with the name in their Host header.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from daemon import BIN, ROOT, Daemon

import pandastack

DEADLINE = 60.0
KEYS = 'pds_00112233445566778899aabbccddeeff'  # of the form of a key, and nobody's

# What runs inside: says back what it was asked, streams events, takes bodies of any size, speaks WebSocket.
SERVER = r'''
import base64, hashlib, http.server, json, struct, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            left -= len(piece)
            yield piece
    def answer(self, status, body, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
    def do(self):
        path = self.path.partition("?")[0]
        if path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            with open("/tmp/go-on", "r+b", buffering=0) as go_on:  # a FIFO, both of whose ends stay open: nobody's leaving is an end
                for n in range(3):
                    self.wfile.write(b"data: %d\n\n" % n)
                    go_on.readline()  # the next comes when somebody says so
        elif path == "/sum":
            digest, size = hashlib.sha256(), 0
            for piece in self.body():
                digest.update(piece)
                size += len(piece)
            self.answer(200, json.dumps([digest.hexdigest(), size]).encode())
        elif path == "/many":
            n = int(self.path.partition("?")[2])
            self.send_response(200)
            self.send_header("Content-Length", str(n))
            self.end_headers()
            while n:
                n -= self.wfile.write(bytes(min(n, 1 << 20)))
        elif path == "/ws":
            accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
            while True:
                head = self.rfile.read(2)
                if len(head) < 2 or head[0] & 15 == 8:
                    break
                mask, data = self.rfile.read(4), self.rfile.read(head[1] & 127)
                data = b"heard " + bytes(b ^ mask[i % 4] for i, b in enumerate(data))
                self.wfile.write(bytes([0x81, len(data)]) + data)
            self.close_connection = True
        else:
            body = b"".join(self.body()).decode()
            told = {"method": self.command, "path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}, "body": body}
            self.answer(200, json.dumps(told).encode(), Set_Cookie="pandastack_preview=forged", X_Mine="kept")
    do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = do

http.server.ThreadingHTTPServer((sys.argv[2], int(sys.argv[1])), Handler).serve_forever()
'''


@pytest.fixture(scope="module")
def host() -> Iterator[Daemon]:
    d = Daemon(pool_ready=1, pool_prepared=1, preview_domain="preview.example").start()
    yield d
    for sb in pandastack.Sandbox.list(api_url=d.url, api_key=d.key):
        sb.kill()
    code, tail = d.stop(), d.tail()
    d.remove()
    assert code == 0, tail


def make(d: Daemon, **options: object) -> pandastack.Sandbox:
    return pandastack.Sandbox.create("code-interpreter", ttl_seconds=900, api_url=d.url, api_key=d.key, **options)


def serve(sb: pandastack.Sandbox, port: int = 8000, address: str = "127.0.0.1") -> None:
    sb.filesystem.write("/workspace/server.py", SERVER)
    sb.exec("rm -f /tmp/go-on && mkfifo /tmp/go-on", check=True)
    sb.commands.run(["python3", "/workspace/server.py", str(port), address], background=True)
    end = time.monotonic() + DEADLINE
    while port not in [p for p in sb.ports() if p.listening]:
        assert time.monotonic() < end, "it never listens"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def sb(host: Daemon) -> Iterator[pandastack.Sandbox]:
    box = make(host)
    serve(box)
    yield box
    box.kill()


def ask(d: Daemon, target: str, *, name: str = "", method: str = "GET", body: object = None, **headers: str):
    """A request to the daemon, by a port's own name or another, and its answer as (status, headers, bytes)."""
    conn = http.client.HTTPConnection("127.0.0.1", d.port, timeout=DEADLINE)
    conn.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    conn.putheader("Host", name or f"127.0.0.1:{d.port}")
    for key, value in headers.items():
        conn.putheader(key.replace("_", "-"), value)
    if isinstance(body, bytes):
        conn.putheader("Content-Length", str(len(body)))
        conn.endheaders(body)
    elif body is not None:
        conn.putheader("Transfer-Encoding", "chunked")
        conn.endheaders(body, encode_chunked=True)
    else:
        conn.endheaders()
    answer = conn.getresponse()
    data = answer.read()
    conn.close()
    return answer.status, answer.headers, data


def name_of(sb: pandastack.Sandbox, port: int = 8000, domain: str = "localhost") -> str:
    return f"{port}-{sb.id}.{domain}"


def client(d: Daemon) -> pandastack.Client:
    return pandastack.Client(api_url=d.url, api_key=d.key)


def bearer(d: Daemon) -> dict[str, str]:
    return {"Authorization": f"Bearer {d.key}"}


def token(sb: pandastack.Sandbox, port: int = 8000, ttl_seconds: int = 600, **options: object) -> str:
    return urlsplit(sb.signed_preview_url(port, ttl_seconds, **options)).path.split("/")[3]


def test_a_server_is_seen_with_the_key(host: Daemon, sb: pandastack.Sandbox) -> None:
    assert sb.preview_url(8000) == f"http://8000-{sb.id}.preview.example/"
    assert sb.preview_urls() == {8000: sb.preview_url(8000)}
    for domain in ("localhost", f"localhost:{host.port}", "preview.example"):
        status, headers, body = ask(host, "/a%20b/?q=1", name=name_of(sb, domain=domain), **bearer(host))
        assert status == 200 and json.loads(body)["path"] == "/a%20b/?q=1", body
    status, headers, body = ask(host, f"/v1/sandboxes/{sb.id}/proxy/8000/a//../b%2f?x", **bearer(host))
    told = json.loads(body)
    assert told["path"] == "/a//../b%2f?x" and told["headers"]["x-forwarded-prefix"].endswith("/proxy/8000"), told
    assert headers["X-Mine"] == "kept" and headers["Set-Cookie"] is None and headers["Content-Security-Policy"].startswith("sandbox")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_every_method_comes_through(host: Daemon, sb: pandastack.Sandbox, method: str) -> None:
    status, _, body = ask(host, "/", name=name_of(sb), method=method, body=b"x" if method != "GET" else None, **bearer(host))
    assert status == 200 and json.loads(body)["method"] == method


def test_nobody_sees_a_private_port(host: Daemon, sb: pandastack.Sandbox) -> None:
    status, headers, body = ask(host, "/", name=name_of(sb))
    assert status == 401 and json.loads(body)["code"] == "unauthenticated"
    status, headers, page = ask(host, "/", name=name_of(sb), Accept="text/html")
    assert status == 401 and headers["Content-Type"].startswith("text/html") and b"<h1>this port is private" in page
    assert ask(host, "/", name=name_of(sb).replace(sb.id, "sb-0000000000000000"))[0] == 401
    assert ask(host, f"/v1/sandboxes/{sb.id}/proxy/8000/")[0] == 401
    assert ask(host, "/", name=f"8000-{sb.id}.evil.example", **bearer(host))[0] == 403
    other = client(host).tokens.create("other", workspace="other").token
    assert ask(host, "/", name=name_of(sb), Authorization=f"Bearer {other}")[0] == 404
    assert ask(host, f"/v1/sandboxes/{sb.id}/proxy/8000/", Authorization=f"Bearer {other}")[0] == 404
    looks = client(host).tokens.create("reads", scopes=["read"]).token
    assert ask(host, "/", name=name_of(sb), Authorization=f"Bearer {looks}")[0] == 403


def test_no_key_and_no_cookie_of_ours_is_passed_on(host: Daemon, sb: pandastack.Sandbox) -> None:
    link = token(sb)
    carried = dict(Cookie=f"a=1; pandastack_preview={link}; b={KEYS}", X_Api_Key=KEYS, X_Other=f"Bearer {host.key}", Referer=f"http://x/?pandastack_token={link}")
    for target, name, more in (
        (f"/?x=1&pandastack_token={link}&k={KEYS}", name_of(sb), {"Authorization": "Basic bWluZQ=="}),
        (f"/?x=1&k={KEYS}", name_of(sb), bearer(host)),
        (f"/v1/p/{link}/?x=1", "", {"Authorization": "Basic bWluZQ=="}),
        (f"/v1/sandboxes/{sb.id}/proxy/8000/?x=1", "", bearer(host)),
    ):
        status, headers, body = ask(host, target, name=name, **carried, **more)
        told = json.loads(body)
        said = json.dumps(told)
        assert status == 200 and "pds_" not in said and link not in said and "pandastack_" not in said, said
        assert told["headers"]["cookie"] == "a=1" and told["path"] == "/?x=1"
        assert told["headers"].get("authorization") == (more["Authorization"] if "Basic" in more["Authorization"] else None)


def test_links_end_and_are_not_forged(host: Daemon, sb: pandastack.Sandbox) -> None:
    link = token(sb)
    head, _, mac = link.partition(".")
    claims = json.loads(base64.urlsafe_b64decode(head + "=="))
    claims["p"] = 22
    other = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    assert ask(host, f"/v1/p/{link}/")[0] == 200
    for bad in (link[:-4] + "AAAA", f"{other}.{mac}", head + ".", "x", head):
        status, _, body = ask(host, f"/v1/p/{bad}/")
        assert status == 401 and "not valid" in json.loads(body)["error"], body
    short = token(sb, ttl_seconds=1)
    end = time.monotonic() + DEADLINE
    status = 200
    while status == 200:
        assert time.monotonic() < end
        try:
            answer = ask(host, f"/v1/p/{short}/")
            status = answer[0]
        except http.client.IncompleteRead:  # it ended in the middle of an answer, which is cut
            continue
    assert answer[0] == 401 and "expired" in json.loads(answer[2])["error"]
    maker = client(host).tokens.create("maker")
    mine = pandastack.Sandbox.get(sb.id, api_url=host.url, api_key=maker.token)
    link = token(mine)
    assert ask(host, f"/v1/p/{link}/")[0] == 200
    client(host).tokens.delete(maker.prefix)
    assert ask(host, f"/v1/p/{link}/")[0] == 401
    for port, ttl, paths in ((0, 60, None), (80, 604801, None), (80, 0, None), (80, 60, ["/a|b"]), (80, 60, ["/a,b"]), (80, 60, ["a"]), (80, 60, ["/../a"])):
        with pytest.raises((pandastack.BadRequestError, ValueError)):
            sb.signed_preview_url(port, ttl, paths)


def test_links_open_their_paths_alone(host: Daemon, sb: pandastack.Sandbox) -> None:
    link = token(sb, paths=["/api"])
    for path in ("/api", "/api/", "/api/x?y=/../z"):
        assert ask(host, f"/v1/p/{link}{path}")[0] == 200, path
    for path in ("/", "/apix", "/api/../admin", "/api/%2e%2e/admin", "/api/%252e%252e/admin", "/api%2f..%2fadmin", "/api/..;/admin", "/api//x", "/api\\..\\x", "/API"):
        assert ask(host, f"/v1/p/{link}{path}")[0] == 403, path
        assert ask(host, path, name=name_of(sb), Cookie=f"pandastack_preview={link}")[0] == 403, path


def test_a_browser_comes_by_a_link_and_stays(host: Daemon, sb: pandastack.Sandbox) -> None:
    link = token(sb)
    status, headers, _ = ask(host, f"/v1/p/{link}/a?b=c", Accept="text/html")
    to = urlsplit(headers["Location"])
    assert status == 303 and to.netloc == f"8000-{sb.id}.preview.example"
    status, headers, _ = ask(host, f"{to.path}?{to.query}", name=to.netloc, Accept="text/html")
    assert status == 303 and headers["Location"] == "/a?b=c" and "HttpOnly" in headers["Set-Cookie"]
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert ask(host, "/a?b=c", name=to.netloc, Cookie=cookie)[0] == 200
    assert ask(host, "/a", name=f"8001-{sb.id}.preview.example", Cookie=cookie)[0] == 401
    assert ask(host, "/a", name=to.netloc, method="POST", Cookie=cookie, Origin="http://evil.example")[0] == 403


def test_public_ports(host: Daemon, sb: pandastack.Sandbox) -> None:
    named = sb.name_port(8000, "web", public=True)
    assert named.public and named.label == "web"
    assert ask(host, "/", name=name_of(sb))[0] == 200
    copy = sb.fork()
    copy = copy[0] if isinstance(copy, list) else copy
    try:
        assert ask(host, "/", name=name_of(copy))[0] == 401
    finally:
        copy.kill()
    sb.forget_port(8000)
    assert ask(host, "/", name=name_of(sb))[0] == 401


def test_events_are_not_held_back(host: Daemon, sb: pandastack.Sandbox) -> None:
    conn = http.client.HTTPConnection("127.0.0.1", host.port, timeout=DEADLINE)
    conn.request("GET", f"/v1/p/{token(sb)}/events")
    answer = conn.getresponse()
    for n in range(3):
        assert answer.readline() == b"data: %d\n" % n
        assert answer.readline() == b"\n"
        sb.exec("echo > /tmp/go-on", check=True)  # only now does it send the next
    assert answer.read() == b""


def test_big_bodies_both_ways(host: Daemon, sb: pandastack.Sandbox) -> None:
    piece = os.urandom(1 << 20)
    digest = hashlib.sha256(piece * 64).hexdigest()
    status, _, body = ask(host, "/sum", name=name_of(sb), method="POST", body=(piece for _ in range(64)), **bearer(host))
    assert status == 200 and json.loads(body) == [digest, 64 << 20]
    status, _, body = ask(host, f"/many?{64 << 20}", name=name_of(sb), **bearer(host))
    assert status == 200 and len(body) == 64 << 20


def web_socket(d: Daemon, target: str, name: str, **headers: str) -> socket.socket:
    conn = socket.create_connection(("127.0.0.1", d.port), timeout=DEADLINE)
    lines = [f"GET {target} HTTP/1.1", f"Host: {name}", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    lines += [f"{k}: {v}" for k, v in headers.items()]
    conn.sendall("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = conn.recv(1)
        assert byte, head
        head += byte
    assert head.startswith(b"HTTP/1.1 101 ") and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, head
    return conn


def say(conn: socket.socket, text: bytes) -> bytes:
    conn.sendall(bytes([0x81, 0x80 | len(text)]) + bytes(4) + text)
    head = conn.recv(2, socket.MSG_WAITALL)
    return conn.recv(head[1], socket.MSG_WAITALL) if len(head) == 2 else b""


def test_web_sockets(host: Daemon, sb: pandastack.Sandbox) -> None:
    conn = web_socket(host, "/ws", name_of(sb), **bearer(host))
    for text in (b"one", b"two"):
        assert say(conn, text) == b"heard " + text
    conn.close()


def test_http_2_reaches_the_server(host: Daemon, sb: pandastack.Sandbox) -> None:
    done = subprocess.run(
        ["curl", "-sS", "--http2-prior-knowledge", "-H", f"Authorization: Bearer {host.key}", "-w", "\n%{http_version}",
         "--resolve", f"{name_of(sb)}:{host.port}:127.0.0.1", f"http://{name_of(sb)}:{host.port}/x"], capture_output=True, text=True)
    body, _, version = done.stdout.rpartition("\n")
    assert version == "2" and json.loads(body)["path"] == "/x", done


def test_a_visit_wakes_a_sandbox(host: Daemon) -> None:
    box = make(host, persistent=True)
    try:
        serve(box)
        link = token(box)
        box.hibernate()
        assert [int(p) for p in box.ports()] == [] and pandastack.Sandbox.get(box.id, api_url=host.url, api_key=host.key).status == "hibernated"
        assert ask(host, f"/v1/p/{link}/")[0] == 200
        assert pandastack.Sandbox.get(box.id, api_url=host.url, api_key=host.key).status == "running"
        box.pause()
        status, _, body = ask(host, f"/v1/p/{link}/")
        assert status == 409 and "paused" in json.loads(body)["error"]
        box.resume()
        assert ask(host, f"/v1/p/{link}/")[0] == 200
    finally:
        box.kill()
    assert ask(host, f"/v1/p/{link}/")[0] == 404


def test_an_open_connection_is_life(host: Daemon) -> None:
    box = make(host, persistent=True, idle_timeout_seconds=2)
    try:
        serve(box)
        conn = web_socket(host, f"/v1/p/{token(box)}/ws", f"127.0.0.1:{host.port}")
        until = time.monotonic() + 6  # three times what it may be idle
        while time.monotonic() < until:
            assert conn.fileno() > 0
            time.sleep(0.5)
        assert say(conn, b"still") == b"heard still"
        kinds = [e.type for e in box.events()]
        assert "hibernated" not in kinds, kinds
        conn.close()
    finally:
        box.kill()


def test_a_snapshot_breaks_connections_and_the_next_works(host: Daemon, sb: pandastack.Sandbox) -> None:
    link = token(sb)
    conn = web_socket(host, f"/v1/p/{link}/ws", f"127.0.0.1:{host.port}")
    assert say(conn, b"x") == b"heard x"
    sb.snapshot()
    try:
        assert say(conn, b"y") == b""
    except OSError:
        pass
    conn.close()
    assert ask(host, f"/v1/p/{link}/")[0] == 200


def test_nothing_listens(host: Daemon, sb: pandastack.Sandbox) -> None:
    status, _, body = ask(host, "/", name=name_of(sb, 81), **bearer(host))
    failure = json.loads(body)
    assert status == 502 and failure["code"] == "unreachable" and "nothing listens on port 81" in failure["error"], failure


def test_servers_are_found_wherever_they_listen(host: Daemon) -> None:
    box = make(host)
    try:
        for port, address in ((9001, "0.0.0.0"), (9002, "127.0.0.1")):
            serve(box, port, address)
            assert ask(host, "/", name=name_of(box, port), **bearer(host))[0] == 200
        box.commands.run(["python3", "-c", "import http.server, socket\nclass S(http.server.HTTPServer): address_family = socket.AF_INET6\nS(('::1', 9003), http.server.SimpleHTTPRequestHandler).serve_forever()"], background=True)
        end = time.monotonic() + DEADLINE
        while 9003 not in box.ports():
            assert time.monotonic() < end
        assert ask(host, "/", name=name_of(box, 9003), **bearer(host))[0] == 200
    finally:
        box.kill()


# A server may do what it likes on its own port. It holds up its visitors, and nobody else.
HOSTILE = r'''
import socket, sys, threading
def endless(c):
    c.sendall(b"HTTP/1.1 200 OK\r\n")
    while True: c.sendall(b"X-Header: " + b"x" * 1000 + b"\r\n")
def garbage(c): c.sendall(b"\x00\xff\n" * 1000)
def silent(c): c.recv(1 << 16); threading.Event().wait()
def upgrade(c): c.recv(1 << 16); c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: evil\r\nConnection: Upgrade\r\n\r\n")
def short(c): c.recv(1 << 16); c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"); c.close()
def smuggle(c): c.recv(1 << 16); c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsecond"); c.close()
for n, f in enumerate((endless, garbage, silent, upgrade, short, smuggle)):
    s = socket.create_server(("127.0.0.1", 7000 + n))
    def run(s=s, f=f):
        while True:
            c, _ = s.accept()
            threading.Thread(target=f, args=(c,), daemon=True).start()
    threading.Thread(target=run).start()
'''


def test_a_hostile_server_harms_its_visitors_alone(host: Daemon) -> None:
    box = make(host)
    try:
        box.filesystem.write("/workspace/hostile.py", HOSTILE)
        box.commands.run(["python3", "/workspace/hostile.py"], background=True)
        end = time.monotonic() + DEADLINE
        while 7005 not in box.ports():
            assert time.monotonic() < end
        for port in (7000, 7001, 7003):
            status, _, body = ask(host, "/", name=name_of(box, port), **bearer(host))
            assert status == 502, (port, status, body)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            ask(host, "/", name=name_of(box, 7004), **bearer(host))
        for _ in range(3):  # what it says too much is nobody's answer
            assert ask(host, "/", name=name_of(box, 7005), **bearer(host))[2] == b"ok"
        stuck = [web_less(host, name_of(box, 7002)) for _ in range(60)]
        big = box.filesystem.write("/workspace/big", bytes(8 << 20))
        assert big.bytes == 8 << 20 and box.exec("echo still here").stdout == "still here\n"
        for conn in stuck:
            conn.close()
    finally:
        box.kill()


def web_less(d: Daemon, name: str) -> socket.socket:
    """A visitor who uploads to a server that does not read."""
    conn = socket.create_connection(("127.0.0.1", d.port), timeout=DEADLINE)
    conn.sendall(f"POST / HTTP/1.1\r\nHost: {name}\r\nAuthorization: Bearer {d.key}\r\nContent-Length: 100000000\r\n\r\n".encode())

    def push() -> None:
        try:
            while True:
                conn.sendall(bytes(1 << 16))
        except OSError:
            pass

    threading.Thread(target=push, daemon=True).start()
    return conn


RUNTIMES = ROOT / "sdk" / "typescript" / "runtimes" / "node_modules" / ".bin"
FORWARDERS = {
    "command line": [BIN, "sandbox", "forward", "--json"],
    "node": ["node", ROOT / "test" / "forward.mjs"],
    "bun": [RUNTIMES / "bun", "run", ROOT / "test" / "forward.mjs"],
    "deno": [RUNTIMES / "deno", "run", "--allow-all", ROOT / "test" / "forward.mjs"],
}


SERVERS = """
import socket, threading
def reverse(c):  # is told something, and says it backwards when that has ended
    told = b""
    while piece := c.recv(65536): told += piece
    c.sendall(told[::-1])
def rude(c):  # goes away in the middle
    c.recv(1)
def serve(port, talk):
    listening = socket.create_server(("127.0.0.1", port))
    while True:
        c, _ = listening.accept()
        talk(c)
        c.close()
threading.Thread(target=serve, args=(7778, rude)).start()
serve(7777, reverse)
"""


@pytest.fixture(scope="module")
def servers(sb: pandastack.Sandbox) -> None:
    sb.filesystem.write("/workspace/servers.py", SERVERS)
    sb.commands.run(["python3", "/workspace/servers.py"], background=True)
    end = time.monotonic() + DEADLINE
    while not {7777, 7778} <= set(sb.ports()):
        assert time.monotonic() < end


@pytest.mark.parametrize("by", FORWARDERS)
def test_forward_carries_any_protocol(host: Daemon, sb: pandastack.Sandbox, servers: None, by: str) -> None:
    ports = [port if by != "command line" else f"0:{port}" for port in ("7777", "7778", "81")]
    forward = subprocess.Popen([*FORWARDERS[by], sb.id, *ports], env=host.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def tell(address: str, sent: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=DEADLINE) as conn:
            def say() -> None:
                with suppress(OSError):  # what it says is what counts, and the other side may have had enough
                    conn.sendall(sent)
                    conn.shutdown(socket.SHUT_WR)

            threading.Thread(target=say, daemon=True).start()
            got = b""
            with suppress(ConnectionError):
                while piece := conn.recv(1 << 16):
                    got += piece
            return got

    try:
        address, rude, nobody = (json.loads(forward.stdout.readline())["local"] for _ in ports)
        for size in (3, 5 << 20):
            sent = os.urandom(size)
            assert tell(address, sent) == sent[::-1]
        assert tell(rude, os.urandom(5 << 20)) == b""
        assert tell(address, b"still there")[::-1] == b"still there"
        with pytest.raises(ConnectionError), socket.create_connection(("127.0.0.1", int(nobody.rpartition(":")[2])), timeout=DEADLINE) as conn:
            assert conn.recv(1) == b"", "somebody answers"
            raise ConnectionError("closed")
        listed = subprocess.run([BIN, "sandbox", "ports", sb.id], env=host.env, capture_output=True, text=True, check=True).stdout
        assert "7777" in listed and "listens" in listed
    finally:
        forward.terminate()
        assert forward.wait(timeout=30) == 0
        said = forward.stderr.read()
    assert "nothing listens on port 81" in said


def test_links_are_good_after_a_restart_of_the_daemon(own_daemon: Daemon) -> None:
    box = make(own_daemon)
    serve(box)
    box.name_port(8000, public=True)
    link = token(box)
    own_daemon.kill9()
    own_daemon.start()
    assert ask(own_daemon, f"/v1/p/{link}/")[0] == 200
    assert ask(own_daemon, "/", name=name_of(box))[0] == 200
    assert link not in own_daemon.log.read_text()
