"""What a policy opens, and what is kept of it, on the real thing. The hosts that are reached are servers of this machine's own."""

from __future__ import annotations

import http.server
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import BIN, Daemon
from names import Names, own_address

import pandastack

DEADLINE = 60.0
SECRET = "Bearer a-secret-that-never-enters"


class Server:
    """Answers with the headers that it was sent, or only keeps them in `heard`."""

    def __init__(self, tls: ssl.SSLContext | None = None, *, says: bool = True) -> None:
        heard: list[dict[str, str]] = []
        self.heard = heard

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                heard.append({k.lower(): v for k, v in self.headers.items()})
                body = json.dumps({"path": self.path, "headers": heard[-1]}).encode() if says else b"ok"
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler)
        if tls:
            self.http.socket = tls.wrap_socket(self.http.socket, server_side=True)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


NAME = "inside.test"  # leads to this machine


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    n = Names({NAME: own_address()})
    yield n
    n.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    s = Server()
    yield s
    s.http.shutdown()


@pytest.fixture(scope="module")
def host(names: Names) -> Iterator[Daemon]:
    d = Daemon(under=names.under, network_policies=json.dumps({"here": {"allow": [f"{own_address()}/32"]}})).start()
    yield d
    if d.process.poll() is not None:
        d.start()
    for sb in pandastack.Sandbox.list(api_url=d.url, api_key=d.key):
        sb.kill()
    code, tail = d.stop(), d.tail()
    d.remove()
    assert code == 0, tail


def client(d: Daemon) -> pandastack.Client:
    return pandastack.Client(api_url=d.url, api_key=d.key)


def make(d: Daemon, **options: object) -> pandastack.Sandbox:
    return pandastack.Sandbox.create("code-interpreter", ttl_seconds=900, api_url=d.url, api_key=d.key, **options)


def get(sb: object, url: str) -> dict[str, object] | str:
    """What a program inside hears, or why not."""
    done = sb.run_code(f"import json, urllib.request\ntry:\n    print(urllib.request.urlopen({url!r}, timeout=20).read().decode())\nexcept Exception as e:\n    print(json.dumps(repr(e)))", timeout_seconds=60)
    assert done.error is None, done.error
    return json.loads(done.stdout)


def test_a_sandbox_reaches_what_its_policy_names_and_no_more(host: Daemon, server: Server) -> None:
    address = own_address()
    with make(host, network={"allow": [f"{address}:{server.port}"]}) as sb:
        assert sb.info.network.policy == {"mode": "allow-list", "allow": [f"{address}:{server.port}"]} or sb.info.network.policy["allow"] == [f"{address}:{server.port}"]
        got = get(sb, f"http://{address}:{server.port}/x")
        assert isinstance(got, dict) and got["path"] == "/x", got
        assert "refused" in get(sb, f"http://{address}:{host.port}/healthz")  # the daemon itself, and any other port
        lines = until_logged(sb, 2)
        allowed = [e for e in lines if e.verdict == "allowed"]
        refused = [e for e in lines if e.verdict == "refused"]
        assert allowed[0].address == address and allowed[0].port == server.port and allowed[0].bytes_in > 0 and allowed[0].rule, lines
        assert refused[0].port == host.port and refused[0].reason, lines
        shown = subprocess.run([BIN, "sandbox", "net", sb.id], env=host.env, capture_output=True, text=True, check=True).stdout
        assert "allowed" in shown and "refused" in shown and address in shown


def until_logged(sb: pandastack.Sandbox, n: int) -> list[pandastack.NetworkEvent]:
    end = time.monotonic() + DEADLINE
    while True:
        lines = sb.network.log()
        if len({(e.verdict, e.port) for e in lines}) >= n:
            return lines
        assert time.monotonic() < end, lines
        time.sleep(0.05)


def test_names_are_reached_by_name(host: Daemon, server: Server) -> None:
    with make(host, network={"allow": [NAME, own_address()]}) as sb:
        got = get(sb, f"http://{NAME}:{server.port}/")
        assert isinstance(got, dict) and got["headers"]["host"] == f"{NAME}:{server.port}", (got, sb.network.log())
        assert any(e.name == NAME and e.verdict == "allowed" for e in until_logged(sb, 1))
        assert "not known" in get(sb, "http://other.example/")
        inside = sb.run_code(f"import socket; socket.gethostbyname({NAME!r})").text
        assert inside.strip("'").startswith("198.18."), inside


def test_policies_change_while_it_runs(host: Daemon, server: Server) -> None:
    url = f"http://{own_address()}:{server.port}/"
    with make(host) as sb:
        assert "refused" in get(sb, url)
        assert sb.network.set({"allow": [f"{own_address()}/32"]}).policy["allow"]
        assert isinstance(get(sb, url), dict)
        sb.run_code(f"import socket; s = socket.create_connection(({own_address()!r}, {server.port})); s.settimeout(30)")
        sb.network.set({"mode": "deny"})
        assert sb.run_code("try:\n    print(repr(s.recv(1)))\nexcept OSError as e:\n    print('cut')").stdout.strip() in ("cut", "b''")
        assert "refused" in get(sb, url)
        assert "network_changed" in [e.type for e in sb.events()]
        with pytest.raises(pandastack.BadRequestError) as e:
            sb.network.set({"allow": ["a.*.example"]})
        assert e.value.field == "network.allow[0]"
        with pytest.raises(pandastack.BadRequestError):
            sb.network.set({"alow": []})
    with pytest.raises(pandastack.BadRequestError):
        make(host, network={"policy": "nothing"})
    with make(host, network={"policy": "here"}) as sb:
        assert isinstance(get(sb, url), dict)


def test_policies_go_with_forks_sleep_and_snapshots(host: Daemon, server: Server) -> None:
    url = f"http://{own_address()}:{server.port}/"
    with make(host, persistent=True, network={"allow": [f"{own_address()}/32"]}) as sb:
        assert isinstance(get(sb, url), dict)
        with sb.fork() as copy:
            assert isinstance(get(copy, url), dict)
            end = time.monotonic() + 30  # it is told when the connection is over
            while not [e for e in copy.network.log() if e.verdict == "allowed"]:
                assert time.monotonic() < end, copy.network.log()
        snapshot = sb.snapshot()
        with make_from(host, snapshot) as restored:
            assert isinstance(get(restored, url), dict)
        with make_from(host, snapshot, network={"mode": "deny"}) as closed:
            assert "refused" in get(closed, url)
        sb.hibernate()
        assert isinstance(get(sb, url), dict)
        host.kill9()
        host.start()
        assert isinstance(get(sb, url), dict)
        assert len([e for e in sb.network.log() if e.verdict == "allowed"]) >= 3  # of the daemon before, too
    client(host).snapshots.delete(snapshot)


def make_from(d: Daemon, snapshot: str, **options: object) -> pandastack.Sandbox:
    return pandastack.Sandbox.create(from_snapshot=snapshot, ttl_seconds=900, api_url=d.url, api_key=d.key, **options)


def test_secrets_are_kept_and_not_shown(host: Daemon) -> None:
    c = client(host)
    c.secrets.set("model", SECRET)
    assert c.secrets.list() == ["model"]
    done = subprocess.run([BIN, "secret", "set", "cli"], env=host.env, input=SECRET + "\n", text=True, capture_output=True, check=True)
    assert SECRET not in done.stdout + done.stderr
    listed = subprocess.run([BIN, "secret", "ls", "--json"], env=host.env, text=True, capture_output=True, check=True).stdout
    assert {s["name"] for s in json.loads(listed)} == {"model", "cli"} and SECRET not in listed
    runs = pandastack.Client(api_url=host.url, api_key=c.tokens.create("runs").token)
    with pytest.raises(pandastack.AuthError):
        runs.secrets.set("x", "y")
    other = pandastack.Client(api_url=host.url, api_key=c.tokens.create("other", workspace="other", scopes=["admin"]).token)
    assert other.secrets.list() == []
    with pytest.raises(pandastack.BadRequestError):
        make(host, network={"allow": ["api.example.com"]}, secrets={"api.example.com": {"header": "Authorization", "ref": "nothing"}})
    with pytest.raises(pandastack.BadRequestError):  # for what is closed
        make(host, secrets={"api.example.com": {"header": "Authorization", "value": SECRET}})
    with make(host, network={"allow": ["api.example.com"]}, secrets={"api.example.com": {"header": "Authorization", "value": SECRET}, "api.example.com:8443": {"header": "X-Key", "ref": "model"}}) as sb:
        shown = json.dumps(pandastack.Sandbox.get(sb.id, api_url=host.url, api_key=host.key).info.raw) + json.dumps(sb.network.get().secrets)
        assert SECRET not in shown and '"X-Key"' in shown
        trusted = sb.exec("cat /etc/ssl/certs/ca-certificates.crt | grep -c BEGIN; echo $SSL_CERT_FILE $NODE_EXTRA_CA_CERTS; python3 -c 'import ssl; print(any(\"PandaStack\" in str(c) for c in ssl.create_default_context().get_ca_certs()))'").stdout.splitlines()
        assert int(trusted[0]) >= 1 and trusted[1] == "/etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/pandastack.pem" and trusted[2] == "True", trusted
    for f in Path(host.data).glob("*"):
        if f.is_file():
            assert SECRET.encode() not in f.read_bytes(), f
    assert SECRET not in host.log.read_text()
    c.secrets.delete("model")
    with pytest.raises(pandastack.NotFoundError):
        c.secrets.delete("model")


def test_logs_are_followed_and_workspaces_apart(host: Daemon, server: Server) -> None:
    other = client(host).tokens.create("apart", workspace="apart").token
    with make(host) as sb:
        heard: list[pandastack.NetworkEvent] = []
        follower = threading.Thread(target=lambda: heard.append(next(iter(sb.network.follow()))), daemon=True)
        follower.start()
        assert "refused" in get(sb, f"http://{own_address()}:{server.port}/")
        follower.join(DEADLINE)
        assert heard and heard[0].verdict == "refused" and heard[0].raw["sandbox_id"] == sb.id and heard[0].raw["workspace"] == "local"
        with pytest.raises(pandastack.NotFoundError):
            pandastack.Sandbox.get(sb.id, api_url=host.url, api_key=host.key).network.__class__(pandastack.Client(api_url=host.url, api_key=other), sb.id).log()


CLIENTS = r"""
import json, os, subprocess, urllib.request
url = URL
out = {}
def attempt(name, f):
    try:
        out[name] = json.loads(f())["headers"].get("authorization")
    except Exception as e:
        out[name] = repr(e)[:300]
attempt("urllib", lambda: urllib.request.urlopen(url, timeout=20).read())
def requests_():
    import requests
    return requests.get(url, timeout=20, headers={"Authorization": "placeholder"}).text
attempt("requests", requests_)
import shutil
if shutil.which("curl"):
    attempt("curl", lambda: subprocess.run(["curl", "-sS", "--max-time", "20", url], capture_output=True, text=True, check=True).stdout)
print(json.dumps(out))
"""


def certified(tmp_path: Path, n: int) -> tuple[Path, list[ssl.SSLContext]]:
    """Certificates for NAME of n authorities of their own, and the file of the first one's."""
    contexts = []
    for i in range(n):
        pair = tmp_path / f"pair.{i}.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={NAME}",
                        "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", f"{pair}.key", "-out", str(pair)], check=True, capture_output=True)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair, f"{pair}.key")
        contexts.append(tls)
    return tmp_path / "pair.0.pem", contexts


def test_a_secret_that_was_used_is_in_no_snapshot(names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted, (tls,) = certified(tmp_path, 1)
    server = Server(tls, says=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    d = Daemon(under=names.under, pool_ready=0, pool_prepared=0).start()
    try:
        with make(d, persistent=True, network={"allow": [NAME, own_address()]}, secrets={f"{NAME}:{server.port}": {"header": "Authorization", "value": SECRET}}) as sb:
            use = f"import urllib.request\nurllib.request.urlopen('https://{NAME}:{server.port}/', timeout=20).read()"
            assert sb.run_code(use, timeout_seconds=60).text == "b'ok'"
            assert [h["authorization"] for h in server.heard] == [SECRET], "it was used"
            # What the sandbox does hold is found, so that the secret would be.
            sb.run_code("held = ''.join(chr(c - 1) for c in b'nfnpsz.pg.uif.tboecpy')")
            sb.filesystem.write("/workspace/held", b"file-of-the-sandbox")
            snapshot = sb.snapshot()
            found = held_in(d, b"memory-of-the-sandbox", b"file-of-the-sandbox", SECRET.partition(" ")[2].encode())
            assert found == {b"memory-of-the-sandbox", b"file-of-the-sandbox"}, found
            with sb.fork() as copy:
                assert copy.run_code(use, timeout_seconds=60).text == "b'ok'" and server.heard[-1]["authorization"] == SECRET
                copy.kill()
            sb.hibernate()
            assert held_in(d, SECRET.partition(" ")[2].encode()) == set()
            client(d).snapshots.delete(snapshot)
    finally:
        d.stop()
        d.remove()
        server.http.shutdown()


def held_in(d: Daemon, *texts: bytes) -> set[bytes]:
    """Those that are found in what the daemon keeps on its disk, images of sandboxes among it."""
    files = [f for f in d.data.rglob("*") if f.is_file() and not f.is_symlink() and "runtime" not in f.parts]
    return {text for text in texts if subprocess.run(["grep", "-lF", "--binary-files=text", "-e", text.decode(), *map(str, files)], capture_output=True, text=True).stdout.strip()}


def test_a_secret_is_added_outside_over_verified_tls(names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted, contexts = certified(tmp_path, 2)  # the second is of nobody whom the host trusts
    servers = [Server(tls) for tls in contexts]
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))  # whom the daemon trusts
    d = Daemon(under=names.under, pool_ready=0, pool_prepared=0).start()
    try:
        client(d).secrets.set("model", SECRET)
        secrets = {f"{NAME}:{s.port}": {"header": "Authorization", "ref": "model"} for s in servers}
        with make(d, network={"allow": [NAME, own_address()]}, secrets=secrets) as sb:
            got = json.loads(sb.run_code(f"URL = 'https://{NAME}:{servers[0].port}/'" + CLIENTS, timeout_seconds=100).stdout)
            assert set(got.values()) == {SECRET}, (got, sb.network.log())  # this server says what it got, which is why we know
            line = next(e for e in sb.network.log() if e.verdict == "allowed" and e.secret)
            assert (line.protocol, line.secret, line.path) == ("https", "Authorization", "/")
            # Not to whom the host does not trust, whatever the sandbox would.
            got = sb.run_code(f"import ssl, urllib.request\ntry:\n    print(urllib.request.urlopen('https://{NAME}:{servers[1].port}/', timeout=20, context=ssl._create_unverified_context()).read())\nexcept Exception as e:\n    print(repr(e), getattr(e, 'read', bytes)())", timeout_seconds=60).stdout
            assert SECRET not in got, got
            # A changed one holds at once, a deleted one fails.
            client(d).secrets.set("model", "Bearer changed")
            assert "Bearer changed" in sb.run_code(f"urllib.request.urlopen('https://{NAME}:{servers[0].port}/', timeout=20).read().decode()").text
            client(d).secrets.delete("model")
            assert sb.run_code(f"urllib.request.urlopen('https://{NAME}:{servers[0].port}/', timeout=20).read().decode()").error
    finally:
        d.stop()
        d.remove()
        for s in servers:
            s.http.shutdown()
