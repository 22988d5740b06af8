"""A daemon of the tests' own: real gVisor, the baked template, a data folder that goes away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / "bin" / "pandastack"
TEMPLATES = Path(os.environ.get("PANDASTACK_DATA_DIR", "/var/lib/pandastack")) / "templates"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Daemon:
    """`pandastack serve` on a free port. Extra settings go in by keyword, as in the config file."""

    def __init__(self, *, templates: Path = TEMPLATES, under: tuple[str, ...] = (), **settings: object) -> None:
        # Short, because the path of a Unix socket holds 107 bytes.
        self.dir = Path(tempfile.mkdtemp(prefix="pst-", dir="/var/tmp"))
        self.dir.chmod(0o711)  # sandboxes are nobody on this host, and pass through
        self.data = self.dir / "data"
        self.home = self.dir / "home"
        self.home.mkdir()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = self.dir / "log"
        self.templates = templates
        self.under = under  # a command that runs the daemon, such as prlimit
        self.settings = settings
        self.program: Path = BIN  # another build takes its place in tests of upgrades
        self.process: subprocess.Popen[bytes] | None = None
        self.key = ""

    @contextmanager
    def takes_less_than(self, mib: int) -> Iterator[None]:
        """At no moment of the block it holds so much more memory than at the beginning, when others may have used it."""
        process = Path(f"/proc/{self.process.pid}")

        def held(field: str) -> int:
            return next(int(line.split()[1]) for line in (process / "status").read_text().splitlines() if line.startswith(field)) >> 10

        before = held("VmRSS")
        (process / "clear_refs").write_text("5")  # the most that it held is counted from here
        yield
        more = held("VmHWM") - before
        assert more < mib, f"the daemon took {more} MiB more"

    @property
    def env(self) -> dict[str, str]:
        """The environment in which a client finds this daemon."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("PANDASTACK_")}
        env.update(HOME=str(self.home), XDG_CONFIG_HOME=str(self.home / ".config"),
                   PANDASTACK_API_URL=self.url, PANDASTACK_API_KEY=self.key)
        return env

    def start(self, until: str = "readyz") -> "Daemon":
        """Returns when it is ready, or only answers, with "healthz"."""
        env = self.env
        del env["PANDASTACK_API_URL"], env["PANDASTACK_API_KEY"]
        env.update({f"PANDASTACK_{k.upper()}": str(v) for k, v in self.settings.items()})
        env.update(PANDASTACK_TEMPLATES_DIR=str(self.templates))
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.under, self.program, "serve", "--listen", f"127.0.0.1:{self.port}", "--data-dir", self.data],
                env=env, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 120
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"the daemon ended with {self.process.returncode}:\n{self.tail()}")
            try:
                urllib.request.urlopen(f"{self.url}/{until}", timeout=5).read()
                break
            except (urllib.error.URLError, OSError) as error:
                said = error.read().decode() if isinstance(error, urllib.error.HTTPError) else str(error)
                if "template_stale" in said or time.monotonic() > deadline:  # make template: nobody else will
                    self.stop()
                    raise RuntimeError(f"the daemon is not ready: {said}\n{self.tail(10)}") from None
                time.sleep(0.05)
        config = json.loads((self.home / ".config/pandastack/config.json").read_text())
        self.key = config.get("api_key") or config.get("token") or config["apiKey"]
        return self

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def kill9(self) -> None:
        """What a crash or the kernel's own killer does to it."""
        assert self.process
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        assert self.process
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=60)
        return self.process.returncode

    def remove(self) -> None:
        """End what a test that failed left running, for sandboxes outlive their daemon, and remove the folder."""
        for proc in Path("/proc").glob("[0-9]*"):
            try:
                if f"{self.data}/".encode() in (proc / "cmdline").read_bytes():
                    os.kill(int(proc.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
        shutil.rmtree(self.dir, ignore_errors=True)
