"""Times what leaves a sandbox through the daemon's stack, each line beside the same without a sandbox, in one run.

    python bench/network.py [--quick]

Prints a table and writes bench/results/*.json, as run.py does. The other end is a server of its own on this machine, in a process of its
own; nothing leaves the machine. The same Python code is the client on both sides, in turns.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "test")]

from daemon import Daemon  # noqa: E402
from figures import Figure, Line, save, show, timed  # noqa: E402
from pandastack import Sandbox  # noqa: E402

# Takes a line and does what it says: "pull N" sends N MB, "push N" takes them and says so, "GET …" is answered as HTTP, again and again, "echo" echoes.
SERVER = r"""
import socket, threading
l = socket.create_server(("0.0.0.0", 0), backlog=2000)
print(l.getsockname()[1], flush=True)
block = bytes(1 << 20)
def serve(c):
    with c:
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        f = c.makefile("rb")
        while line := f.readline():
            what = line.split()
            if what[0] == b"pull":
                for _ in range(int(what[1])): c.sendall(block)
                return
            if what[0] == b"push":
                left = int(what[1]) << 20
                while left > 0: left -= len(f.read1(1 << 20))
                c.sendall(b"ok\n")
                return
            if what[0] == b"echo":
                c.sendall(f.readline())
                continue
            while f.readline().strip(): pass
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
"""

CLIENT = r"""
import http.client, json, socket, time
def kept(n):
    c, out = http.client.HTTPConnection(HOST, PORT), []
    for _ in range(n + 5):
        began = time.perf_counter()
        c.request("GET", "/"); assert c.getresponse().read() == b"ok"
        out.append((time.perf_counter() - began) * 1000)
    return out[5:]
def fresh(n):
    out = []
    for _ in range(n):
        began = time.perf_counter()
        c = http.client.HTTPConnection(HOST, PORT); c.request("GET", "/"); assert c.getresponse().read() == b"ok"; c.close()
        out.append((time.perf_counter() - began) * 1000)
    return out
def pull(mb):
    s, left, buffer = socket.create_connection((HOST, PORT)), mb << 20, bytearray(1 << 20)
    began = time.perf_counter()
    s.sendall(b"pull %d\n" % mb)
    while left > 0: left -= s.recv_into(buffer)
    return [mb / (time.perf_counter() - began)]
def push(mb):
    s, block = socket.create_connection((HOST, PORT)), bytes(1 << 20)
    began = time.perf_counter()
    s.sendall(b"push %d\n" % mb)
    for _ in range(mb): s.sendall(block)
    assert s.recv(3) == b"ok\n"
    return [mb / (time.perf_counter() - began)]
def many(n):
    began = time.perf_counter()
    flows = [socket.create_connection((HOST, PORT)) for _ in range(n)]
    for i, s in enumerate(flows): s.sendall(b"echo\n%d\n" % i)
    good = sum(s.recv(20) == b"%d\n" % i for i, s in enumerate(flows))
    for s in flows: s.close()
    assert good == n, good
    return [(time.perf_counter() - began) * 1000]
"""


class Bench:
    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.lines: list[Line] = []
        self.server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
        assert self.server.stdout
        self.port = int(self.server.stdout.readline())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("192.0.2.1", 9))  # sends nothing; says which address is this machine's
            self.host = s.getsockname()[0]
        self.outside: dict[str, object] = {"HOST": self.host, "PORT": self.port}
        exec(CLIENT, self.outside)

    def add(self, line: Line, met: bool | None = None) -> None:
        line.met = met
        self.lines.append(line)
        print(show([line]).splitlines()[-1], flush=True)

    def both(self, sb: Sandbox, what: str, n: int, rounds: int) -> tuple[list[float], list[float]]:
        ours, theirs = [], []
        for _ in range(rounds):
            ex = sb.run_code(f"print(json.dumps({what}({n})))", timeout_seconds=300)
            assert ex.error is None, ex.error
            ours += json.loads(ex.stdout)
            theirs += self.outside[what](n)
        return ours, theirs

    def network(self, d: Daemon) -> None:
        with Sandbox.create("code-interpreter", ttl_seconds=1800, network={"allow": [f"{self.host}:{self.port}"]}, api_url=d.url, api_key=d.key) as sb:
            assert sb.run_code(f"HOST, PORT = {self.host!r}, {self.port}\n{CLIENT}").error is None
            rounds = 2 if self.quick else 5
            for what, n, name in (("kept", 200, "a request on an open connection"), ("fresh", 100, "a connection and a request on it")):
                ours, theirs = self.both(sb, what, n, rounds)
                line = Line(name, Figure(ours), "the same outside", Figure(theirs), "≤ 1 ms more" if what == "kept" else "")
                self.add(line, line.ours.median - line.baseline.median <= 1 if what == "kept" else None)
            for what, name in (("pull", "data into the sandbox"), ("push", "data out of it")):
                ours, theirs = self.both(sb, what, 100 if self.quick else 400, rounds)
                line = Line(name, Figure(ours, "MB/s"), "the same outside", Figure(theirs, "MB/s"), "≥ 20 %")
                line.ratio = line.ours.median / line.baseline.median
                self.add(line, line.ratio >= 0.2)
            ours, theirs = self.both(sb, "many", 1000, 1)
            self.add(Line("1,000 connections, open at once, and a line back on each", Figure(ours), "the same outside", Figure(theirs)), True)

    def creates(self) -> None:
        """Creates that no pool serves, with an interface and without, in turns."""
        with_one, without = Daemon(pool_ready=0, pool_prepared=0).start(), None
        try:
            without = Daemon(pool_ready=0, pool_prepared=0, network_interface="false").start()
            samples: dict[Daemon, list[float]] = {with_one: [], without: []}
            for round in range(4 if self.quick else 12):
                for d, took in samples.items():
                    made: list[Sandbox] = []
                    ms = timed(lambda: made.append(Sandbox.create("code-interpreter", ttl_seconds=300, api_url=d.url, api_key=d.key)))
                    made[0].kill()
                    if round > 0:
                        took.append(ms)
            self.add(Line("a create that no pool serves", Figure(samples[with_one]), "without an interface", Figure(samples[without])))
        finally:
            for d in (with_one, without):
                if d:
                    d.stop()
                    d.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    bench = Bench(parser.parse_args().quick)
    try:
        d = Daemon(pool_ready=1, pool_prepared=0).start()
        try:
            bench.network(d)
        finally:
            d.stop()
            d.remove()
        bench.creates()
    finally:
        bench.server.kill()
    print()
    print(show(bench.lines))
    print(f"\nwritten to {save(bench.lines, Path(__file__).parent / 'results')}")
    sys.exit(0 if all(line.met is not False for line in bench.lines) else 1)


if __name__ == "__main__":
    main()
