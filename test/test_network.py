"""What a sandbox reaches: nothing, at once, until something is opened."""

from __future__ import annotations

import json
import subprocess
import threading

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
