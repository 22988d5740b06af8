"""Hosts of the tests' own that real clients speak to: an index of wheels, a registry of npm's, git repositories, a database, WebSockets."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import os
import platform
import pwd
import shutil
import ssl
import subprocess
import tarfile
import threading
from pathlib import Path
from urllib.parse import quote, urlsplit

from daemon import ROOT, free_port


class JSONHandler(http.server.BaseHTTPRequestHandler):
    """Answers with JSON, and says nothing of it."""

    def answer(self, status: int, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


WHEELS = ROOT / ".cache" / "client-wheels"
WANTED = Path(__file__).parent / "clients.txt"


def wheels() -> Path:
    """The client libraries as the template's Python takes them, fetched once by this machine's pip."""
    done = WHEELS / hashlib.sha256(WANTED.read_bytes()).hexdigest()[:16]
    if not done.exists():
        shutil.rmtree(WHEELS, ignore_errors=True)
        WHEELS.mkdir(parents=True)
        tags = [f"--platform=manylinux_2_{minor}_{platform.machine()}" for minor in (39, 34, 28, 26, 24, 17)] + [f"--platform=manylinux2014_{platform.machine()}"]
        subprocess.run(["python3", "-m", "pip", "download", "-q", "--disable-pip-version-check", "--only-binary=:all:", "--python-version=3.13",
                        "--implementation=cp", *tags, "-r", WANTED, "-d", WHEELS], check=True)
        done.touch()
    return WHEELS


def certificate(folder: Path, name: str, *others: str) -> Path:
    """A certificate for these names, of an authority that nobody but the test knows; its key stands beside it, as .key."""
    pem = folder / "site.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=" + ",".join(f"DNS:{n}" for n in (name, *others)), "-keyout", f"{pem}.key", "-out", pem], check=True, capture_output=True)
    return pem


class Site:
    """One web server. What it was asked is in `asked`: method, path, and the header Authorization."""

    def __init__(self, name: str, folder: Path, tls: Path | None = None, password: str = "", token: str = "") -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.folder = folder
        self.wheels = {w.name: w for w in wheels().glob("*.whl")}
        self.basic = "Basic " + base64.b64encode(f"ann:{password}".encode()).decode() if password else ""
        self.bearer = f"Bearer {token}" if token else ""
        self.packages: dict[str, bytes] = {}
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.answer(self)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # clients go away when they have what they want

        self.http = Server(("0.0.0.0", 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls, f"{tls}.key")
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.http.server_address[1]
        self.url = f"http{'s' if tls else ''}://{name}:{self.port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def answer(self, r: http.server.BaseHTTPRequestHandler) -> None:
        body = r.rfile.read(int(r.headers.get("Content-Length") or 0))
        path, said = urlsplit(r.path).path, r.headers.get("Authorization", "")
        self.asked.append((r.command, path, said))
        status, kind, out = 404, "text/plain", b"there is no such thing"
        if path.startswith(("/simple/", "/wheels/", "/upload")) and said != self.basic or path.startswith("/npm/") and said != self.bearer:
            status, out = 401, b"who are you?"
        elif path.startswith("/simple/"):
            project = path.removeprefix("/simple/").strip("/")
            found = [w for w in self.wheels if w.split("-")[0].lower().replace("_", "-").replace(".", "-") == project]
            if found:
                links = "".join(f'<a href="../../wheels/{w}">{w}</a>' for w in found)
                status, kind, out = 200, "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
        elif path.startswith("/wheels/") and path.removeprefix("/wheels/") in self.wheels:
            status, kind, out = 200, "application/octet-stream", self.wheels[path.removeprefix("/wheels/")].read_bytes()
        elif path.startswith("/npm/") and path.endswith(".tgz") and path.rpartition("/")[2] in self.packages:
            status, kind, out = 200, "application/octet-stream", self.packages[path.rpartition("/")[2]]
        elif path.startswith("/npm/"):
            name = path.removeprefix("/npm/")
            if f"{name}-1.0.0.tgz" in self.packages:
                dist = {"tarball": f"{self.url}/npm/{name}/-/{name}-1.0.0.tgz", "shasum": hashlib.sha1(self.packages[f"{name}-1.0.0.tgz"]).hexdigest()}
                status, kind = 200, "application/json"
                out = json.dumps({"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": name, "version": "1.0.0", "dist": dist}}}).encode()
        elif path.startswith("/git/"):
            status, kind, out = self.git(r, path.removeprefix("/git"), body)
        elif path in ("/open", "/closed", "/upload"):
            status, out = 200, f"hello from {path}".encode()
        r.send_response(status)
        r.send_header("Content-Type", kind)
        r.send_header("Content-Length", str(len(out)))
        r.end_headers()
        r.wfile.write(out)

    def git(self, r: http.server.BaseHTTPRequestHandler, path: str, body: bytes) -> tuple[int, str, bytes]:
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.folder), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": urlsplit(r.path).query,
               "REQUEST_METHOD": r.command, "CONTENT_TYPE": r.headers.get("Content-Type", ""), "HTTP_CONTENT_ENCODING": r.headers.get("Content-Encoding", ""),
               "HTTP_GIT_PROTOCOL": r.headers.get("Git-Protocol", ""), "GIT_PROTOCOL": r.headers.get("Git-Protocol", ""), "CONTENT_LENGTH": str(len(body)), "REMOTE_ADDR": "127.0.0.1"}
        said = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True).stdout
        head, _, out = said.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return int(fields.get("Status", "200").split()[0]), fields.get("Content-Type", "text/plain"), out

    def add_repository(self, name: str) -> None:
        """A bare repository with one commit, at /git/NAME."""
        work = self.folder / f"{name}.work"
        git = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "init.defaultBranch=main"]
        subprocess.run([*git, "init", "-q", work], check=True)
        (work / "README").write_text(f"this is {name}\n")
        subprocess.run([*git, "-C", work, "add", "."], check=True)
        subprocess.run([*git, "-C", work, "commit", "-q", "-m", "first"], check=True)
        subprocess.run([*git, "clone", "-q", "--bare", work, self.folder / name], check=True)

    def add_package(self, name: str) -> None:
        """A package of npm's with one file."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for path, text in {"package.json": json.dumps({"name": name, "version": "1.0.0", "main": "index.js"}), "index.js": f"module.exports = 'this is {name}'\n"}.items():
                info = tarfile.TarInfo(f"package/{path}")
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
        self.packages[f"{name}-1.0.0.tgz"] = out.getvalue()


class Postgres:
    """A PostgreSQL server with TLS and a password, in a folder of its own."""

    def __init__(self, folder: Path, tls: Path, password: str) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
        assert found, "PostgreSQL is missing: scripts/deps test installs it"
        self.bin, self.data, self.port, self.password = found[-1], folder / "pg", free_port(), password
        self.data.mkdir()
        (folder / "pg-password").write_text(password)
        for name, source in {"server.crt": tls, "server.key": Path(f"{tls}.key")}.items():
            shutil.copy(source, folder / name)
            (folder / name).chmod(0o600)
        self.user = "postgres" if os.getuid() == 0 else None  # it does not run as root
        if self.user:
            uid, gid = pwd.getpwnam(self.user)[2:4]
            for path in (self.data, folder / "server.crt", folder / "server.key", folder / "pg-password"):
                os.chown(path, uid, gid)
        self.run("initdb", "-D", self.data, "-A", "scram-sha-256", "-U", "ann", f"--pwfile={folder / 'pg-password'}", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")
        with open(self.data / "pg_hba.conf", "a") as hba:
            hba.write("host all all 0.0.0.0/0 scram-sha-256\n")
        self.run("pg_ctl", "-D", self.data, "-w", "-l", self.data / "log", "-o",
                 f"-p {self.port} -c listen_addresses=* -c unix_socket_directories= -c fsync=off -c ssl=on -c ssl_cert_file={folder / 'server.crt'} -c ssl_key_file={folder / 'server.key'}", "start")

    def run(self, program: str, *args: object) -> None:
        # In a session of its own, without our pipes, which the server would keep.
        done = subprocess.run([self.bin / program, *map(str, args)], user=self.user, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL, text=True, start_new_session=True)
        assert done.returncode == 0, (program, done.stderr, (self.data / "log").read_text() if (self.data / "log").exists() else "")

    def close(self) -> None:
        self.run("pg_ctl", "-D", self.data, "-m", "immediate", "stop")


def with_user(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{parts.netloc}").geturl()
