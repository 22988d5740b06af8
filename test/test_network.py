"""What a sandbox reaches: nothing, at once, until something is opened."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import hostview
import pytest
from daemon import BIN, Daemon
from pandastack import Sandbox

# Connects to each place and says how that ended, in one word.
CONNECT = """
import errno, json, socket
def attempt(family, address):
    s = socket.socket(family); s.settimeout(10)
    try:
        s.connect(address); return "connected"
    except OSError as e:
        return errno.errorcode.get(e.errno, type(e).__name__)
    finally:
        s.close()
print(json.dumps([attempt(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port)) for host, port in PLACES]))
"""


def ends(sb: Sandbox, places: list[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """How connections from inside end."""
    ex = sb.run_code(f"PLACES = {places!r}\n" + CONNECT, timeout_seconds=60)
    assert ex.error is None, ex.error
    return dict(zip(places, json.loads(ex.stdout)))


class Heard:
    """Listeners on every address of this host, and how often anybody reached one."""

    def __init__(self) -> None:
        self.count = 0
        self.sockets: list[socket.socket] = []
        self.ports: set[int] = set()

    def listen(self, family: int, kind: int, host: str) -> None:
        s = socket.socket(family, kind)
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind((host, 0))
        if kind == socket.SOCK_STREAM:
            s.listen(64)
        self.sockets.append(s)
        self.ports.add(s.getsockname()[1])
        threading.Thread(target=self._take, args=(s, kind), daemon=True).start()

    def _take(self, s: socket.socket, kind: int) -> None:
        while True:
            try:
                s.accept() if kind == socket.SOCK_STREAM else s.recvfrom(100)
            except OSError:
                return
            self.count += 1


@contextmanager
def listening() -> Iterator[Heard]:
    heard = Heard()
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        heard.listen(socket.AF_INET, kind, "0.0.0.0")
        heard.listen(socket.AF_INET, kind, "127.0.0.1")
        heard.listen(socket.AF_INET6, kind, "::")
    try:
        yield heard
    finally:
        for s in heard.sockets:
            s.close()


def host_addresses() -> list[str]:
    """Those of this machine by which a program on it reaches itself."""
    found = {"127.0.0.1", "::1"}
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            try:
                s.connect((far, 9))  # sends nothing
                found.add(s.getsockname()[0])
            except OSError:
                pass
    return sorted(found)


def test_a_sandbox_has_one_interface_and_every_sandbox_the_same(shared_sandbox: Sandbox) -> None:
    out = shared_sandbox.exec("cat /proc/net/dev | tail -n +3 | cut -d: -f1; cat /etc/resolv.conf; hostname -I 2>/dev/null").stdout
    assert {"lo", "eth0"} == {line.strip() for line in out.splitlines()[:2]}
    assert "nameserver 10.255.255.1" in out


def test_connections_are_refused_at_once(shared_sandbox: Sandbox) -> None:
    places = [("192.0.2.1", 81), ("198.18.0.1", 443), ("2001:db8::1", 443), ("169.254.169.254", 81), ("10.0.0.1", 22), ("10.255.255.1", 8080),
              ("10.255.255.1", 1), ("fd70:616e:6461::1", 81), ("fe80::1", 81)]
    got = ends(shared_sandbox, places)
    assert set(got.values()) <= {"ECONNREFUSED", "ENETUNREACH", "EINVAL", "EHOSTUNREACH"}, got
    assert got["192.0.2.1", 81] == got["2001:db8::1", 443] == got["169.254.169.254", 81] == "ECONNREFUSED"


def test_names_are_not_found_at_once(shared_sandbox: Sandbox) -> None:
    ex = shared_sandbox.run_code("import socket\nsocket.getaddrinfo('example.com', 80)", timeout_seconds=30)
    assert ex.error_name == "gaierror" and "not known" in str(ex.error_value), ex.error
    ex = shared_sandbox.run_code("import socket\nsocket.getaddrinfo('localhost', 80)[0][4][0] in ('127.0.0.1', '::1')")
    assert ex.text == "True", ex.error


def test_programs_say_that_they_were_refused(shared_sandbox: Sandbox) -> None:
    ex = shared_sandbox.run_code("import urllib.request\nurllib.request.urlopen('http://192.0.2.1:81/', timeout=20)", timeout_seconds=30)
    assert "Connection refused" in str(ex.error_value), ex.error


# Root inside tries what it can think of. It prints what worked.
HOSTILE = r"""
import ctypes, fcntl, glob, json, os, socket, struct
ports, hosts, worked = PORTS, HOSTS, []
def attempt(name, do):
    try:
        do()
        worked.append(name)
    except OSError:
        pass
def tcp(family, host, port, **options):
    s = socket.socket(family); s.settimeout(2)
    s.connect((host, port)); s.send(b"GET / HTTP/1.0\r\n\r\n")
mapped = ["::ffff:" + h for h in hosts if ":" not in h]
for host in hosts + mapped + ["10.255.255.1", "10.255.255.3", "fd70:616e:6461::1", "0.0.0.0", "127.1", "192.0.0.2", "172.17.0.1", "169.254.169.254", "100.100.100.200"]:
    for port in ports:
        v6 = ":" in host
        attempt(f"tcp {host} {port}", lambda: tcp(socket.AF_INET6 if v6 else socket.AF_INET, host, port))
        u = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(3):
            try: u.sendto(b"hello", (host, port))
            except OSError: pass
# Several to many.
for group, port in (("224.0.0.1", ports[0]), ("239.255.255.250", 1900), ("255.255.255.255", ports[0]), ("10.255.255.3", ports[0])):
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    try: u.sendto(b"hello", (group, port))
    except OSError: pass
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for group in ("ff02::1", "ff05::1:3", "ff0e::1"):
    try: u.sendto(b"hello", (group, ports[0], 0, 2))
    except OSError: pass
# Packets of its own making.
attempt("raw IPv4", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
attempt("raw ICMP", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
attempt("raw IPv6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6))
attempt("packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
attempt("cooked packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM).connect((2, ports[0])))
attempt("tun", lambda: fcntl.ioctl(os.open("/dev/net/tun", os.O_RDWR), 0x400454ca, struct.pack("16sH", b"tap0", 2)))
# Another interface, address or route.
def netlink(kind, body):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.settimeout(2)
    s.send(struct.pack("IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
    code = struct.unpack_from("i", s.recv(4096), 16)[0]
    if code: raise OSError(-code, "netlink")
attribute = lambda kind, data: struct.pack("HH", 4 + len(data), kind) + data
attempt("address", lambda: netlink(20, struct.pack("BBBBI", 2, 24, 0, 0, 2) + attribute(2, socket.inet_aton("192.0.2.77"))))
attempt("route", lambda: netlink(24, struct.pack("BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + attribute(4, struct.pack("I", 1))))
libc = ctypes.CDLL(None, use_errno=True)
def syscall(result):
    if result < 0: raise OSError(ctypes.get_errno(), "")
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    try:
        if os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"): worked.append("sees another namespace")
    except OSError: pass
# The link's socket is the sandbox's own: it leads to the daemon's end of it and no further.
s = socket.socket(socket.AF_UNIX); s.settimeout(5)
try:
    s.connect("/run/pandastack/link/link.sock")
    s.send(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % ports[0])
    s.recv(4096)
except OSError:
    pass
for path in glob.glob("/run/**/*.sock", recursive=True) + glob.glob("/tmp/**/*.sock", recursive=True):
    if not path.startswith("/run/pandastack/link/"): worked.append(path)
print(json.dumps(worked))
"""


def test_a_hostile_script_reaches_no_listener(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    with listening() as heard:
        for host in host_addresses():  # the listeners hear what does reach them
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
                s.settimeout(10)
                port = next(x.getsockname()[1] for x in heard.sockets if x.family == s.family and x.type == socket.SOCK_STREAM and x.getsockname()[0] in ("0.0.0.0", "::"))
                s.connect((host, port))
        while heard.count < len(host_addresses()):
            threading.Event().wait(0.01)
        before = heard.count
        ports = sorted(heard.ports) + [daemon.port]
        ex = shared_sandbox.run_code(f"PORTS, HOSTS = {ports!r}, {host_addresses()!r}\n" + HOSTILE, timeout_seconds=300)
        assert ex.error is None, ex.error
        assert json.loads(ex.stdout) == []
        assert heard.count == before
    assert shared_sandbox.run_code("1+1").text == "2", "the sandbox is still well"


def test_two_sandboxes_do_not_reach_each_other(daemon: Daemon, sandbox: Sandbox) -> None:
    with Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=daemon.url, api_key=daemon.key) as other:
        serve = "import socket, threading\nl = socket.create_server(('', 8000))\nhits = []\ndef run():\n    while True: hits.append(l.accept())\nthreading.Thread(target=run, daemon=True).start()"
        assert other.run_code(serve).error is None
        assert ends(other, [("10.255.255.2", 8000)]) == {("10.255.255.2", 8000): "connected"}, "the server is there"
        got = ends(sandbox, [("10.255.255.2", 8000), ("10.255.255.1", 8000), ("fd70:616e:6461::2", 8000), ("127.0.0.1", 8000)])
        assert set(got.values()) == {"ECONNREFUSED"}, got
        assert other.run_code("len(hits)").text == "1"


def test_copies_and_woken_sandboxes_are_closed_too(daemon: Daemon) -> None:
    with Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=daemon.url, api_key=daemon.key) as sb:
        sb.run_code("x = 1")
        fork = sb.fork()
        fork = fork[0] if isinstance(fork, list) else fork
        assert ends(fork, [("192.0.2.1", 81)]) == {("192.0.2.1", 81): "ECONNREFUSED"}
        fork.kill()
        sb.hibernate()
        sb.wake()
        assert ends(sb, [("192.0.2.1", 81)]) == {("192.0.2.1", 81): "ECONNREFUSED"}
        sb.pause()
        sb.resume()
        assert ends(sb, [("192.0.2.1", 81)]) == {("192.0.2.1", 81): "ECONNREFUSED"}


def test_a_killed_daemon_leaves_sandboxes_that_the_next_one_closes(own_daemon: Daemon) -> None:
    sb = Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=own_daemon.url, api_key=own_daemon.key)
    assert ends(sb, [("192.0.2.1", 81)]) == {("192.0.2.1", 81): "ECONNREFUSED"}
    # One that is being made while there is nobody waits for its next try, and is refused then.
    trying = sb.run_code("import socket, threading\nend = []\ndef run():\n    s = socket.socket(); s.settimeout(60)\n    try: s.connect(('192.0.2.2', 81))\n"
                         "    except OSError as e: end.append(type(e).__name__)\ntimer = threading.Timer(1.5, run); timer.start()")
    assert trying.error is None
    own_daemon.kill9()
    threading.Event().wait(2)
    own_daemon.start()
    assert ends(sb, [("192.0.2.1", 81)]) == {("192.0.2.1", 81): "ECONNREFUSED"}
    assert sb.run_code("timer.join(50); end", timeout_seconds=60).text == "['ConnectionRefusedError']"
    sb.kill()


def test_networks_leave_nothing() -> None:
    before = hostview.interfaces(), hostview.namespace_mounts()
    d = Daemon(pool_ready=1, pool_prepared=1).start()
    try:
        sandboxes = [Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=d.url, api_key=d.key) for _ in range(2)]
        assert len(hostview.namespaces(d.data)) >= 2
        assert (hostview.interfaces(), hostview.namespace_mounts()) == before, "nothing of the host's own changes"
        d.kill9()
        d.start()
        for sb in sandboxes:
            sb.kill()
        d.stop()
        assert hostview.namespaces(d.data) == set()
        assert (hostview.interfaces(), hostview.namespace_mounts()) == before
    finally:
        d.stop()
        d.remove()


def test_without_interfaces_there_is_loopback_alone() -> None:
    d = Daemon(pool_ready=0, pool_prepared=0, network_interface="false").start()
    try:
        with Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=d.url, api_key=d.key) as sb:
            assert sb.exec("tail -n +3 /proc/net/dev | cut -d: -f1").stdout.split() == ["lo"]
            assert ends(sb, [("192.0.2.1", 81)]) == {("192.0.2.1", 81): "ENETUNREACH"}
            assert "network" not in sb.info.capabilities
    finally:
        d.stop()
        d.remove()


# What runs a program without the right to have networks of its own.
WITHOUT = ("setpriv", "--bounding-set", "-net_admin,-net_raw")


def test_a_host_that_cannot_says_so_at_the_start_and_does_without_when_told() -> None:
    d = Daemon(under=WITHOUT)
    try:
        with pytest.raises(RuntimeError, match="CAP_NET_ADMIN.*network_interface = false"):
            d.start()
    finally:
        d.remove()
    d = Daemon(under=WITHOUT, pool_ready=0, pool_prepared=0, network_interface="false").start()
    try:
        found = subprocess.run([*WITHOUT, BIN, "doctor", "--data-dir", d.data, "--json"], env=d.env, capture_output=True, text=True).stdout
        check = next(c for c in json.loads(found) if c["id"] == "network")
        assert not check["ok"] and "CAP_NET_ADMIN" in check["fix"], check
        with Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=d.url, api_key=d.key) as sb:
            assert sb.run_code("1+1").text == "2"
    finally:
        d.stop()
        d.remove()
