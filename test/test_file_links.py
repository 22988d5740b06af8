"""Signed links to files, for whoever has no key, on the real thing."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from daemon import BIN, Daemon
from pandastack import Client, Sandbox

sys.path.insert(0, str(Path(__file__).parent / "conformance"))
from sdks import CHROMIUM  # noqa: E402


@pytest.fixture(scope="module")
def sb(daemon: Daemon) -> Iterator[Sandbox]:
    made = Sandbox.create(template="code-interpreter", ttl_seconds=900, api_url=daemon.url, api_key=daemon.key)
    yield made
    made.kill()


def ask(url: str, method: str = "GET", body: object = None, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    """A request with nothing but the link."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), body, {k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    whole = answer.read()
    connection.close()
    return answer.status, answer.headers, whole


def test_both_directions(sb: Sandbox) -> None:
    data = os.urandom(3 << 20)
    status, _, body = ask(sb.filesystem.upload_url("/w/in/data.bin"), "PUT", data)
    assert (status, json.loads(body)) == (200, {"path": "/w/in/data.bin", "bytes": len(data)})
    assert sb.filesystem.read("/w/in/data.bin") == data
    status, headers, body = ask(sb.filesystem.download_url("/w/in/data.bin"))
    assert (status, body) == (200, data)
    assert headers["Content-Disposition"] == "attachment; filename=data.bin" and headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Type"] == "application/octet-stream"
    assert ask(sb.filesystem.download_url("/none"))[0] == 404
    assert ask(sb.filesystem.download_url("/w/in"))[0] == 400, "a folder"


def test_more_than_it_takes_is_told_and_changes_nothing(sb: Sandbox) -> None:
    sb.filesystem.write("/w/limited", "old")
    url = sb.filesystem.upload_url("/w/limited", max_bytes=1 << 20)

    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * (1 << 16)

    for body in (b"x" * ((1 << 20) + 1), chunks()):
        status, _, answer = ask(url, "PUT", body)
        assert status == 413 and b"1048576 bytes" in answer
    assert sb.filesystem.read("/w/limited") == b"old"
    assert sb.exec("ls -A /w | grep pandastack").stdout == "", "nothing is left of it"
    assert ask(url, "PUT", b"x" * (1 << 20))[0] == 200


def test_links_inside_lead_where_they_lead_inside(daemon: Daemon, sb: Sandbox) -> None:
    """A program may put a link in the place of the file: whatever it gives is the sandbox's own."""
    secret = daemon.dir / "host-only"
    secret.write_text("of the host")
    sb.exec(f"mkdir -p /w; ln -sf {secret} /w/link; ln -sf ../../../../etc/hostname /w/up")
    assert ask(sb.filesystem.download_url("/w/link"))[0] == 404
    assert ask(sb.filesystem.download_url("/w/up"))[2] == sb.exec("cat /etc/hostname").stdout.encode()


def test_a_link_wakes_a_sandbox(daemon: Daemon) -> None:
    sb = Sandbox.create(template="code-interpreter", ttl_seconds=900, api_url=daemon.url, api_key=daemon.key)
    sb.filesystem.write("/w/f", "kept")
    url = sb.filesystem.download_url("/w/f")
    sb.hibernate()
    assert ask(url, "HEAD")[0] == 200
    assert ask(url)[2] == b"kept"
    copy = sb.fork()
    copy.filesystem.write("/w/f", "of the copy")
    assert ask(url)[2] == b"kept", "it is of the sandbox, not of its copies"
    copy.kill()
    sb.kill()
    assert ask(url)[0] == 404


def test_links_end(daemon: Daemon, sb: Sandbox) -> None:
    sb.filesystem.write("/w/f", "x")
    client = Client(daemon.url, daemon.key)
    token = client.tokens.create("for a link", scopes=["run"])
    of_it = Client(daemon.url, token.token).sandboxes.get(sb.id)
    url, short = of_it.filesystem.download_url("/w/f"), sb.filesystem.download_url("/w/f", 1)
    assert ask(url)[0] == 200
    client.tokens.revoke(token.prefix)
    assert ask(url)[0] == 401
    deadline = time.monotonic() + 30
    while ask(short)[0] == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    status, _, body = ask(short)
    assert status == 401 and b"expired" in body and b"/fs/link" in body
    log = daemon.log.read_text()
    for link in (url, short):
        assert link.rsplit("/", 1)[-1][-20:] not in log, "the link is in the log"


def test_good_after_a_restart_of_the_daemon(own_daemon: Daemon) -> None:
    sb = Sandbox.create(template="code-interpreter", ttl_seconds=900, api_url=own_daemon.url, api_key=own_daemon.key)
    sb.filesystem.write("/w/f", "x")
    url = sb.filesystem.download_url("/w/f")
    own_daemon.kill9()
    own_daemon.start()
    assert ask(url)[2] == b"x"
    sb.kill()


def test_the_command_line(daemon: Daemon, sb: Sandbox) -> None:
    def cli(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([BIN, *args], env=daemon.env, capture_output=True, text=True, timeout=60)

    up = cli("sandbox", "link", sb.id, "/w/cli", "--upload", "--max-bytes", "10", "--ttl", "60")
    assert up.returncode == 0 and "at most 10 bytes" in up.stderr
    assert ask(up.stdout.strip(), "POST", b"0123456789")[0] == 200
    down = json.loads(cli("--json", "sandbox", "link", sb.id, "/w/cli").stdout)
    assert ask(down["url"])[2] == b"0123456789" and down["method"] == "GET"
    wrong = cli("sandbox", "link", sb.id, "/w/cli", "--ttl", "999999")
    assert wrong.returncode == 2 and "ttl_seconds" in wrong.stderr


PAGE = """<!doctype html><title>links</title><form method="post" enctype="multipart/form-data"></form><script type="module">
const { down, up, api } = await (await fetch("/links")).json();
const said = {};
try {
  said.put = (await fetch(up, { method: "PUT", body: new Blob(["from a page"]), headers: { "Content-Type": "text/plain" } })).status;
  const form = new FormData();
  form.set("file", new Blob(["of a form"]), "x.txt");
  said.post = (await fetch(up, { method: "POST", body: form })).status;
  const answer = await fetch(down, { headers: { Range: "bytes=0-8" } });
  said.get = [answer.status, await answer.text(), answer.headers.get("Content-Disposition")];
  said.error = (await (await fetch(down + "x")).json()).code;
} catch (error) {
  said.failed = String(error);
}
try {
  await fetch(api);
  said.api = "read";
} catch {
  said.api = "refused";
}
await fetch("/said", { method: "POST", body: JSON.stringify(said) });
</script>"""


def test_a_page_of_another_origin(daemon: Daemon, sb: Sandbox, tmp_path: Path) -> None:
    """Chromium itself: preflights, forms, ranges and errors by a link; the API stays closed to the page."""
    links = {"down": sb.filesystem.download_url("/w/page.txt"), "up": sb.filesystem.upload_url("/w/page.txt"), "api": f"{daemon.url}/v1/me"}
    said: dict[str, object] = {}
    done = threading.Event()

    class Site(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def give(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.give(json.dumps(links).encode(), "application/json") if self.path == "/links" else self.give(PAGE.encode(), "text/html")

        def do_POST(self) -> None:
            said.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.give(b"{}", "application/json")
            done.set()

    site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, args=(0.05,), daemon=True).start()
    browser = subprocess.Popen(
        [*CHROMIUM, f"--user-data-dir={tmp_path}/profile", f"http://127.0.0.1:{site.server_port}/"],
        env={**os.environ, "HOME": str(tmp_path)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        assert done.wait(120), "the page said nothing"
    finally:
        os.killpg(browser.pid, 15)
        browser.wait(30)
        site.shutdown()
        site.server_close()
    assert said == {"put": 200, "post": 200, "get": [206, "of a form", "attachment; filename=page.txt"], "error": "unauthenticated", "api": "refused"}
    assert sb.filesystem.read("/w/page.txt") == b"of a form"
