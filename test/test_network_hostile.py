"""Root inside tries every way out that it knows, behind a gate that is closed, one that is open, and one that leads inwards."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest
from daemon import Daemon, free_port
from names import Names, own_address
from pandastack import Sandbox

DEADLINE = 60.0
NAMES = {"loop.test": "127.0.0.1", "loop6.test": "::1", "zero.test": "0.0.0.0", "mapped.test": "::ffff:127.0.0.1", "other.test": "127.0.0.2"}


class Heard:
    """Listeners of this machine, and which of them heard anything."""

    def __init__(self) -> None:
        self.by: dict[str, int] = {}
        self.sockets: dict[str, socket.socket] = {}

    def listen(self, name: str, family: int, kind: int, at: object) -> int:
        s = socket.socket(family, kind)
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind(at)
        if kind == socket.SOCK_STREAM:
            s.listen(64)
        self.by[name], self.sockets[name] = 0, s
        threading.Thread(target=self._take, args=(name, s, kind), daemon=True).start()
        return s.getsockname()[1] if family != socket.AF_UNIX else 0

    def _take(self, name: str, s: socket.socket, kind: int) -> None:
        while True:
            try:
                if kind == socket.SOCK_STREAM:
                    s.accept()[0].close()
                else:
                    s.recvfrom(100)
            except OSError:
                return
            self.by[name] += 1

    def close(self) -> None:
        for s in self.sockets.values():
            s.close()


# In a network namespace of its own: says which port it has, and then of each who comes.
APART = """
import socket
l = socket.create_server(("0.0.0.0", PORT)); print("listens", flush=True)
while True: l.accept(); print("heard", flush=True)
"""


class World:
    """What there is to be reached, and the daemon that must not let it be."""

    def __init__(self) -> None:
        self.own = own_address()
        self.names = Names({**NAMES, "nic.test": self.own})
        self.heard = Heard()
        self.ports = {
            name: self.heard.listen(name, family, kind, (at, 0)) for name, family, kind, at in (
                ("any tcp", socket.AF_INET, socket.SOCK_STREAM, "0.0.0.0"), ("loopback tcp", socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1"),
                ("any udp", socket.AF_INET, socket.SOCK_DGRAM, "0.0.0.0"), ("loopback udp", socket.AF_INET, socket.SOCK_DGRAM, "127.0.0.1"),
                ("any tcp6", socket.AF_INET6, socket.SOCK_STREAM, "::"), ("any udp6", socket.AF_INET6, socket.SOCK_DGRAM, "::"))}
        self.heard.listen("abstract", socket.AF_UNIX, socket.SOCK_STREAM, "\0pandastack-hostile")
        self.apart_port = free_port()
        self.apart = subprocess.Popen(["unshare", "--net", "sh", "-c", 'ip link set lo up 2>/dev/null; exec "$0" -c "$1"', sys.executable, APART.replace("PORT", str(self.apart_port))],
                                      stdout=subprocess.PIPE, text=True)
        assert self.apart.stdout and self.apart.stdout.readline() == "listens\n"
        self.metrics_port = free_port()
        self.daemon = Daemon(under=self.names.under, metrics_listen=f"localhost:{self.metrics_port}").start()
        self.other = self.make()
        serve = "import socket, threading\nl = socket.create_server(('', 8000))\nhits = []\ndef run():\n    while True: hits.append(l.accept())\nthreading.Thread(target=run, daemon=True).start()"
        assert self.other.run_code(serve).error is None

    def make(self, **options: object) -> Sandbox:
        return Sandbox.create("code-interpreter", ttl_seconds=900, api_url=self.daemon.url, api_key=self.daemon.key, **options)

    def all_ports(self) -> list[int]:
        return [*self.ports.values(), self.daemon.port, self.metrics_port, self.apart_port, 8000, 53]

    def close(self) -> None:
        for sb in Sandbox.list(api_url=self.daemon.url, api_key=self.daemon.key):
            sb.kill()
        code, tail = self.daemon.stop(), self.daemon.tail()
        self.daemon.remove()
        self.heard.close()
        self.apart.kill()
        said, _ = self.apart.communicate()
        self.names.close()
        assert said == "", "somebody came to another namespace"
        assert code == 0, tail


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    w = World()
    yield w
    w.close()


# What worked is printed. All of it ends: each wait is bounded, and so is the number of tries.
SCRIPT = r"""
import ctypes, fcntl, glob, json, os, socket, struct
worked = []
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, do):
    try:
        do()
        worked.append(name)
    except (OSError, OverflowError, ValueError):
        pass
def quietly(do):
    try: return do()
    except (OSError, OverflowError, ValueError): return None
def addresses(host):
    try: return sorted({a[4][0] for a in socket.getaddrinfo(host, 1)})
    except (OSError, UnicodeError): return []
silent = set() # addresses from which nothing came: one wait for each is enough
def tcp(host, port, before=None, bound=None):
    if host in silent: raise OSError("nobody answers")
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET); s.settimeout(0.5)
    try:
        if before: before(s)
        if bound: s.bind((bound, 0))
        s.connect((host, port)); s.send(b"GET / HTTP/1.0\r\n\r\n")
    except TimeoutError:
        silent.add(host); raise
    finally: s.close()

# Every spelling of this machine, of others, and of nobody.
literal = HOSTS + ["::ffff:" + h for h in HOSTS if ":" not in h] + ["::" + h for h in HOSTS if ":" not in h] + ["64:ff9b::" + h for h in HOSTS if ":" not in h] + [
    "10.255.255.1", "10.255.255.3", "10.255.255.0", "fd70:616e:6461::1", "fd70:616e:6461::3", "127.0.0.2", "127.255.255.254", "192.0.0.2", "172.17.0.1", "169.254.169.254",
    "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "198.18.0.1", "198.18.0.53", "198.19.255.255", "2002:7f00:1::", "fe80::1", "255.255.255.255", "224.0.0.1"]
spelled = {n: addresses(n) for n in NAMES + ["localhost.", "LOCALHOST", "a.localhost", "ip6-localhost", "metadata.google.internal", "0x7f.1", "2130706433", "0177.0.0.1", "127.1", "0",
                                             "loop.test.", "LOOP.TEST", "ⓛoop.test", "loop。test"]}
places = {(a, p): n for n, found in [*((h, [h]) for h in literal), *spelled.items()] for a in found for p in PORTS}
for (a, p), n in places.items():
    if not (p == 53 and a in ("10.255.255.1", "fd70:616e:6461::1")): # the resolver
        attempt(f"tcp {n} {a} {p}", lambda: tcp(a, p))
    u = socket.socket(socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_DGRAM)
    quietly(lambda: u.sendto(b"hello", (a, p))); u.close()

# By other options of a socket: from another address or interface, along a route, with the first packet.
for a in HOSTS:
    if ":" in a: continue
    for p in PORTS[:2] + PORTS[6:7]:
        for name, option in {
            "source route": (socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x83\x07\x04" + socket.inet_aton(a) + b"\x00"),
            "strict route": (socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x89\x07\x04" + socket.inet_aton(a) + b"\x00"),
            "transparent": (socket.IPPROTO_IP, 19, 1), "freebind": (socket.IPPROTO_IP, 15, 1), "mark": (socket.SOL_SOCKET, 36, 1),
            "device": (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0\0"), "unchecked": (socket.SOL_SOCKET, 11, 1), "dontroute": (socket.SOL_SOCKET, socket.SO_DONTROUTE, 1),
        }.items():
            attempt(f"{name} {a} {p}", lambda: tcp(a, p, before=lambda s: quietly(lambda: s.setsockopt(*option))))
        for bound in ("127.0.0.1", "10.255.255.1", a, "10.255.255.2"):
            attempt(f"from {bound} to {a} {p}", lambda: tcp(a, p, bound=bound))
        def fast():
            s = socket.socket(); s.settimeout(0.5)
            try: s.sendto(b"hello", 0x20000000, (a, p)); s.recv(1)
            finally: s.close()
        quietly(fast)
        s = socket.socket(); s.settimeout(0.5); quietly(lambda: (s.connect((a, p)), s.send(b"!", socket.MSG_OOB), worked.append(f"urgent {a} {p}"))); s.close()

# Several to many, pings, other protocols, QUIC.
for group, port in (("224.0.0.1", PORTS[0]), ("224.0.0.251", 5353), ("239.255.255.250", 1900), ("255.255.255.255", PORTS[2]), ("10.255.255.3", PORTS[2])):
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    quietly(lambda: u.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + b"\0" * 4))
    quietly(lambda: u.sendto(b"hello", (group, port))); u.close()
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for group in ("ff02::1", "ff02::fb", "ff05::1:3", "ff0e::1"):
    for scope in (0, 1, 2, 3): quietly(lambda: u.sendto(b"hello", (group, PORTS[0], 0, scope)))
for a in HOSTS:
    family = socket.AF_INET6 if ":" in a else socket.AF_INET
    for kind, proto in ((socket.SOCK_DGRAM, 1), (socket.SOCK_DGRAM, 58), (socket.SOCK_STREAM, 132), (socket.SOCK_SEQPACKET, 132), (6, 33), (socket.SOCK_DGRAM, 136), (socket.SOCK_STREAM, 262)):
        def other():
            s = socket.socket(family, kind, proto); s.settimeout(0.5)
            try: s.sendto(b"\x08\0\xf7\xff\0\0\0\0", (a, PORTS[0])); s.recv(100)
            finally: s.close()
        if a == HOSTS[-1]: attempt(f"protocol {proto} to {a}", other) # the others are the sandbox itself
    u = socket.socket(family, socket.SOCK_DGRAM); quietly(lambda: u.sendto(b"\xc3\0\0\0\x01" + bytes(1200), (a, 443)))

# Packets of its own making, and every other family of sockets there is.
for family in range(1, 64):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        if family not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
            attempt(f"family {family}", lambda: socket.socket(family, kind, socket.htons(3) if family == 17 else 0))
for family, proto in ((socket.AF_INET, socket.IPPROTO_RAW), (socket.AF_INET, 1), (socket.AF_INET, 6), (socket.AF_INET, 17), (socket.AF_INET6, 58), (socket.AF_INET6, 255)):
    attempt(f"raw {family} {proto}", lambda: socket.socket(family, socket.SOCK_RAW, proto))
def tun(path):
    with open(path, "r+b", buffering=0) as f: fcntl.ioctl(f, 0x400454ca, struct.pack("16sH", b"tap0", 2))
attempt("tun", lambda: tun("/dev/net/tun"))
quietly(lambda: os.mknod("/tmp/tun", 0o20666, os.makedev(10, 200)))
attempt("tun of its own", lambda: tun("/tmp/tun"))

# Another interface, address, route, neighbour; other settings; another namespace.
attribute = lambda kind, data: struct.pack("HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)
def netlink(kind, body, family=0):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family); s.settimeout(2)
    try:
        s.send(struct.pack("IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
        got = s.recv(4096)
        if len(got) < 20 or struct.unpack_from("H", got, 4)[0] != 2: raise OSError("no answer to it")
        code = struct.unpack_from("i", got, 16)[0]
        if code: raise OSError(-code, "netlink")
    finally: s.close()
attempt("an address", lambda: netlink(20, struct.pack("BBBBI", 2, 24, 0, 0, 2) + attribute(2, socket.inet_aton("192.0.2.77"))))
attempt("a route", lambda: netlink(24, struct.pack("BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + attribute(4, struct.pack("I", 1))))
attempt("an interface", lambda: netlink(16, struct.pack("BBHiII", 0, 0, 0, 0, 1, 1) + attribute(3, b"veth9\0") + attribute(18, attribute(1, b"veth\0"))))
attempt("a hardware address", lambda: netlink(19, struct.pack("BBHiII", 0, 0, 0, 2, 0, 0) + attribute(1, b"\x02\0\0\0\0\x09")))
for family in range(1, 24): quietly(lambda: netlink(18, bytes(16), family))
for name, code in (("SIOCSIFADDR", 0x8916), ("SIOCSIFFLAGS", 0x8914), ("SIOCSIFHWADDR", 0x8924), ("SIOCADDRT", 0x890b), ("SIOCSARP", 0x8955)):
    attempt(name, lambda: fcntl.ioctl(socket.socket(), code, struct.pack("16sH14s", b"eth0", 2, bytes(14)) + bytes(32)))
for path, text in (("/proc/sys/net/ipv4/ip_forward", "1"), ("/proc/sys/net/ipv4/conf/all/route_localnet", "1"), ("/proc/sys/kernel/core_pattern", "|/bin/sh")):
    def write():
        with open(path, "w") as f: f.write(text)
    quietly(write)
mine = quietly(lambda: os.readlink("/proc/self/ns/net"))
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    theirs = quietly(lambda: os.readlink(f"/proc/{pid}/ns/net"))
    if theirs and theirs != mine: worked.append(f"process {pid} is in another namespace")
    fd = quietly(lambda: os.open(f"/proc/{pid}/ns/net", os.O_RDONLY))
    if fd is not None: libc.setns(fd, 0x40000000); os.close(fd)
    for fd in quietly(lambda: os.listdir(f"/proc/{pid}/fd")) or []:
        to = quietly(lambda: os.readlink(f"/proc/{pid}/fd/{fd}")) or ""
        if "tun" in to or to.startswith("net:["): worked.append(f"process {pid} has {to}")
child = os.fork()
if child == 0: # in a namespace of its own it may do more, with what is in it
    libc.unshare(0x10000000 | 0x40000000)
    for a in HOSTS:
        for p in PORTS:
            quietly(lambda: tcp(a, p))
            quietly(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW).sendto(bytes(40), (a, p)))
    os._exit(0)
os.waitpid(child, 0)

# Sockets of files, and of the abstract: the link's leads to the daemon's end of it, and no further.
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\0pandastack-hostile"))
attempt("abstract of the daemon", lambda: socket.socket(socket.AF_UNIX).connect("\0" + "/run/pandastack.sock"))
link = "/run/pandastack/link/link.sock"
for hello in (b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % PORTS[0], b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % PORTS[0],
              b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), b"\x05\x01\x00\x05\x01\x00\x01\x7f\0\0\x01" + struct.pack(">H", PORTS[0]), os.urandom(4096)):
    s = socket.socket(socket.AF_UNIX); s.settimeout(2)
    quietly(lambda: (s.connect(link), s.send(hello), s.recv(4096))); s.close()
s = socket.socket(socket.AF_UNIX); s.settimeout(2)
quietly(lambda: (s.connect(link), socket.send_fds(s, [b"x"], [0, 1, 2])))
for path in glob.glob("/run/**/*.sock", recursive=True) + glob.glob("/tmp/**/*.sock", recursive=True) + glob.glob("/var/**/*.sock", recursive=True):
    if os.path.realpath(path) != link: worked.append(path)

# Names: long, many, malformed, in both protocols. What comes back holds nothing but made-up addresses.
def question(name, kind=1):
    return struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(l)]) + l for l in name.split(b".")) + b"\0" + struct.pack(">2H", kind, 1)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(3); u.connect(("10.255.255.1", 53))
secret = os.urandom(90).hex().encode()
for q in [question(secret[i:i + 60] + b".evil.test", k) for i in (0, 60, 120) for k in (1, 28, 16, 10, 255, 252, 65, 15)] + [
        question(b".".join([secret[:60]] * 4)), question(b"loop.test") + bytes(60000), b"", b"\xff" * 512, question(b"x" * 63) + b"\xc0\x0c" * 100, question(b"loop.test")[:-1]]:
    quietly(lambda: u.send(q))
    got = quietly(lambda: u.recv(65535)) if len(q) < 512 and q[:2] == b"\0\x07" else None
    if got and secret[:20] in got[12 + len(q):]: worked.append("an answer holds more than was asked")
for size in (1, 3, 65535):
    s = socket.socket(); s.settimeout(3)
    quietly(lambda: (s.connect(("10.255.255.1", 53)), s.sendall(struct.pack(">H", size) + bytes(min(size, 70000))), s.recv(100))); s.close()

# Floods, of what is refused and of what hangs.
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(5000): quietly(lambda: u.sendto(b"x", ("192.0.2.9", 1 + i % 60000)))
half = []
for i in range(1500):
    s = socket.socket(); s.setblocking(False)
    quietly(lambda: s.connect(("192.0.2.%d" % (i % 250 + 1), 1000 + i)))
    half.append(s)
    if len(half) == 500:
        for s in half: s.close()
        half.clear()
for s in half: s.close()
print(json.dumps({"worked": worked, "places": len(places)}))
"""


def attack(w: World, sb: Sandbox) -> list[str]:
    """Runs the script, and gives what worked of it but what reaches the sandbox itself."""
    hosts = ["127.0.0.1", "::1", w.own]
    names = [*NAMES, "nic.test", socket.gethostname(), "localhost"]
    ex = sb.run_code(f"PORTS, HOSTS, NAMES = {w.all_ports()!r}, {hosts!r}, {names!r}\n" + SCRIPT, timeout_seconds=300)
    assert ex.error is None, ex.error
    out = json.loads(ex.stdout)
    assert out["places"] > 200, "it tried"
    assert sb.run_code("1+1").text == "2", "the sandbox is still well"
    assert urllib.request.urlopen(f"{w.daemon.url}/healthz", timeout=DEADLINE).status == 200
    return out["worked"]


def test_nothing_is_reached_from_a_closed_sandbox(world: World) -> None:
    with world.make() as sb:
        assert attack(world, sb) == []
    assert set(world.heard.by.values()) == {0}, world.heard.by
    assert world.other.run_code("len(hits)").text == "0", "another sandbox was reached"


def test_an_open_sandbox_reaches_the_internet_and_not_this_machine(world: World) -> None:
    with world.make(network={"mode": "open"}) as sb:
        assert attack(world, sb) == []
    assert set(world.heard.by.values()) == {0}, world.heard.by
    assert world.other.run_code("len(hits)").text == "0", "another sandbox was reached"


def test_one_that_may_reach_this_machine_does_not_reach_the_daemon(world: World) -> None:
    """The listeners hear it, which is how the tests above know that they would."""
    with world.make(network={"allow": ["loop.test", "loop6.test", "nic.test", "other.test", "127.0.0.0/8", "::1", world.own]}) as sb:
        worked = attack(world, sb)
        reached = {int(w.split()[-1]) for w in worked if w.startswith("tcp ")}
        assert world.ports["any tcp"] in reached and world.ports["loopback tcp"] in reached and world.ports["any tcp6"] in reached, worked
        assert not reached & {world.daemon.port, world.metrics_port, world.apart_port, world.ports["any udp"], world.ports["loopback udp"]}, worked
        for port in (world.daemon.port, world.metrics_port):
            end = time.monotonic() + DEADLINE  # after the flood above, not every line is written at once
            while True:
                assert "refused" in str(sb.run_code(f"socket.create_connection(('loop.test', {port}), 10)").error_value)
                if any(e.port == port and e.verdict == "refused" and "own server" in e.reason for e in sb.network.log()):
                    break
                assert time.monotonic() < end, sb.network.log()[-5:]
                time.sleep(0.2)
    end = time.monotonic() + DEADLINE
    while not (world.heard.by["any tcp"] and world.heard.by["loopback tcp"]):
        assert time.monotonic() < end, world.heard.by
        time.sleep(0.05)
    assert not any(world.heard.by[n] for n in ("any udp", "loopback udp", "any udp6", "abstract")), world.heard.by
    assert world.other.run_code("len(hits)").text == "0", "another sandbox was reached"


def test_a_limit_of_the_network_that_is_met_is_told(world: World) -> None:
    with world.make(network={"allow": [world.own], "flow_rate": 1}) as sb:
        ex = sb.run_code(f"import socket\nfor _ in range(10):\n    try: socket.create_connection(({world.own!r}, {world.ports['any tcp']}), 5).close()\n    except OSError: pass", timeout_seconds=60)
        assert ex.error is None, ex.error
        end = time.monotonic() + DEADLINE
        while not (hits := [e.payload for e in sb.events() if e.type == "limit_hit"]):
            assert time.monotonic() < end, "no event tells of it"
            time.sleep(0.05)
        assert hits[0]["limit"] == "network.flow_rate" and hits[0]["hits"] >= 1 and "too many connections a second" in hits[0]["detail"], hits
        assert any(e.verdict == "refused" and "too many connections a second" in e.reason for e in sb.network.log())
