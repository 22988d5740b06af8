"""The SDKs as programs that take operations: one line of JSON in, one out."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from functools import cache
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUNTIMES = ROOT / "sdk" / "typescript" / "runtimes" / "node_modules"


def node(*, newest: bool) -> str:
    """The oldest Node that the TypeScript SDK is for, or the newest; the machine's where there is no package of one."""
    found = [RUNTIMES / name / "bin" / "node" for name in (["node-newest", "node-newest-arm64"] if newest else ["node-oldest"])]
    return str(next((program for program in found if program.exists()), "node"))


@cache
def command(name: str) -> list[str]:
    """The program of an SDK, built if need be. "typescript" is in the oldest Node that it is for, "node" in the newest, "bun" and "deno" in those."""
    match name:
        case "python":
            return [sys.executable, str(HERE / "sdk_python.py")]
        case "go":
            program = ROOT / ".cache" / "conformance" / "sdk_go"
            mine = program.with_name(f"sdk_go.{os.getpid()}")  # other tests may be running the other
            subprocess.run(["go", "build", "-o", mine, "./test/conformance/sdk_go"], cwd=ROOT, check=True)
            mine.replace(program)
            return [str(program)]
        case "typescript" | "node":
            if name == "typescript":
                subprocess.run(["make", "-s", "ts"], cwd=ROOT, check=True)
            return [node(newest=name == "node"), str(HERE / "sdk_typescript.mjs")]
        case "bun" | "deno":
            allowed = ["--allow-all"] if name == "deno" else []
            return [str(RUNTIMES / ".bin" / name), "run", *allowed, str(HERE / "sdk_typescript.mjs")]
    raise ValueError(name)


@cache
def operations(name: str) -> frozenset[str]:
    """What an SDK's program knows to do."""
    return frozenset(json.loads(subprocess.run([*command(name), "--ops"], capture_output=True, check=True).stdout))


@cache
def surface(name: str) -> dict[str, Any]:
    """The public verbs of an SDK's nouns, as its program finds them in it."""
    return json.loads(subprocess.run([*command(name), "--surface"], capture_output=True, check=True).stdout)


class Sdk:
    """One SDK at work. A context manager."""

    def __init__(self, name: str, env: dict[str, str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command(name), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def do(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        """The outcome: {"value": …} or {"error": …}."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"op": op, "args": args}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the program of the {self.name} SDK ended in {op}"
        return json.loads(line)

    def __enter__(self) -> "Sdk":
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        if self._process.wait(timeout=30) != 0:
            raise AssertionError(f"the program of the {self.name} SDK ended with {self._process.returncode}")


def present(value: Any) -> Any:
    """Without what is absent, empty, zero or false: SDKs say that each in their own way. Times in one form."""
    if isinstance(value, dict):
        kept = {name: present(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in (None, "", 0, False, [], {})}
    if isinstance(value, list):
        return [present(item) for item in value]
    if isinstance(value, str) and value.endswith("+00:00"):
        return value.removesuffix("+00:00") + "Z"
    return value


class Page(ThreadingHTTPServer):
    """Serves this tree to a browser, hands steps to the page in it, and takes their outcomes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _PageHandler)
        self.config: dict[str, str] = {}
        self.steps: queue.Queue[Any] = queue.Queue()
        self.outcomes: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _PageHandler(SimpleHTTPRequestHandler):
    server: Page
    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, directory=str(ROOT))

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/config":
            return self._json(self.server.config)
        if self.path == "/next":
            return self._json(self.server.steps.get())
        super().do_GET()

    def do_POST(self) -> None:
        self.server.outcomes.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._json(None)

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Browser:
    """The TypeScript SDK in headless Chromium, on a page of this folder. A context manager."""

    name = "chromium"

    def __init__(self, page: Page, env: dict[str, str], operations: str = "sdk_typescript.mjs") -> None:
        command("typescript")  # built
        page.config = {"apiUrl": env["PANDASTACK_API_URL"], "apiKey": env["PANDASTACK_API_KEY"]}
        self._page = page
        self._profile = tempfile.mkdtemp(prefix="pst-chromium-")
        self._log = open(Path(self._profile) / "log", "w+")  # noqa: SIM115  # for as long as the browser lives
        self._process = subprocess.Popen(
            [*CHROMIUM, f"--user-data-dir={self._profile}/profile", f"{page.origin}/test/conformance/page.html?{operations}"],
            env={**env, "HOME": self._profile}, stdout=self._log, stderr=self._log, start_new_session=True,
        )

    def do(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        self._page.steps.put({"op": op, "args": args})
        try:
            outcome = self._page.outcomes.get(timeout=180)
        except queue.Empty:
            self._log.seek(0)
            raise AssertionError(f"no outcome of {op} from the browser:\n{self._log.read()[-3000:]}") from None
        assert "broken" not in outcome, outcome["broken"]
        return outcome

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: Any) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(timeout=30)
        self._log.close()
        shutil.rmtree(self._profile, ignore_errors=True)


# Root needs --no-sandbox; the page is this tree's own.
CHROMIUM = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-port=0"]
