"""The Debian package on a machine of its own: installed, used, upgraded, removed, purged, with the lines of docs/install.md. Nothing may be left."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import BIN, ROOT, TEMPLATES
from machine import Machine

sys.path.insert(0, str(ROOT / "scripts" / "docs"))

from pages import blocks  # noqa: E402

pytestmark = pytest.mark.slow
FIRST, SECOND = "1.0.0", "1.0.1"
DATA = "var/lib/pandastack"

# What dpkg and systemd keep of every package, and what time leaves.
KEPT = re.compile(r"^(var/(lib/(dpkg|apt|systemd)|log|cache|tmp|backups)|etc/(group-?|gshadow-?|passwd-|shadow-|subuid-?|subgid-?|\.pwd\.lock|machine-id|mtab)|run|tmp|root|home)(/|$)")


class Told:
    """The lines of a page that the test of this file runs, one after the other."""

    def __init__(self, page: str) -> None:
        of_ours = [block for block in blocks(ROOT / "docs" / page) if "test_package.py" in block.by]
        self.left = [line.partition("  #")[0].rstrip() for block in of_ours for line in block.text.splitlines()]

    def next(self, begins: str) -> str:
        line = self.left.pop(0)
        assert line.startswith(begins), f"the page goes on with: {line}"
        return line


def make_deb(folder: Path, version: str) -> Path:
    """As `make deb` does, of the programs that `make build` made, with another version in them."""
    programs = folder / f"bin-{version}"
    programs.mkdir()
    shutil.copy2(BIN.parent / "runsc", programs / "runsc")
    line = Told("install.md").next("make deb")
    subprocess.run([*shlex.split(line), f"BIN={programs}", f"VERSION=v{version}", f"DIST={folder}"], cwd=ROOT, check=True, capture_output=True,
                   env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")})
    return next(folder.glob(f"pandastack_{version}_*.deb"))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("packages")
    return make_deb(folder, FIRST), make_deb(folder, SECOND)


@pytest.fixture
def machine() -> Iterator[Machine]:
    m = Machine().unpack()
    yield m
    m.remove()


def install(m: Machine, deb: Path, line: str) -> None:
    dist = m.root / "root" / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    shutil.copy(deb, dist)
    m.line(line)


def give_template(m: Machine) -> None:
    """The files of the template that is baked here, which nobody writes to. Its memory is taken by the installed program, as after an upgrade of gVisor."""
    (m.root / DATA / "templates").mkdir(mode=0o711)
    for name in ("programs", "templates/rootfs"):
        there = m.root / DATA / name
        linked = subprocess.run(["cp", "-al", TEMPLATES.parent / name, there], capture_output=True)
        if linked.returncode != 0:  # on another disk
            shutil.rmtree(there, ignore_errors=True)
            subprocess.run(["cp", "-a", TEMPLATES.parent / name, there], check=True)


def service(m: Machine, *names: str) -> list[str]:
    said = m.run("systemctl", "show", "pandastack", *(f"--property={n}" for n in names)).stdout
    found = dict(line.split("=", 1) for line in said.splitlines())
    return [found[n] for n in names]


def until(what: str, ok, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not ok():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.1)


def test_install_use_upgrade_remove_purge(machine: Machine, packages: tuple[Path, Path]) -> None:
    m = machine.boot()
    # Nobody is there to be asked.
    (m.root / "etc/apt/apt.conf.d/90tests").write_text('APT::Get::Assume-Yes "true"; APT::Install-Recommends "false"; quiet "1";\n')
    files, mounts = m.files(), m.mounts()
    told = Told("install.md")
    told.next("make deb")

    # Installed, the daemon runs; what it lacks it says.
    install(m, packages[0], told.next("apt-get install"))
    lacking = m.line(told.next("pandastack doctor"), check=False)
    assert lacking.returncode == 1 and "pandastack template build" in lacking.stdout, lacking
    assert service(m, "ActiveState", "SubState", "StatusText") == ["active", "running", "listening on http://127.0.0.1:8080"]
    assert m.run("systemctl", "is-enabled", "pandastack").stdout == "enabled\n"
    assert m.run("systemd-analyze", "verify", "pandastack.service").stderr == ""
    assert FIRST in m.run("pandastack", "version").stdout
    assert (m.root / DATA).stat().st_mode & 0o777 == 0o711

    # The template: the recipe and runsc are found where the package put them.
    give_template(m)
    built = m.line(told.next("pandastack template build"))
    assert "code-interpreter is ready" in built.stdout, built
    doctor = m.run("pandastack", "doctor")
    assert "FAIL" not in doctor.stdout and "/usr/lib/pandastack/runsc" in doctor.stdout

    # A user of the group needs nothing else; another user gets nowhere.
    m.run("useradd", "--create-home", "alice")
    m.run("useradd", "--create-home", "bob")
    m.line(told.next("usermod"))
    assert m.line(told.next("pandastack run"), user="alice").stdout == "hello from a sandbox\n"
    refused = m.run("pandastack", "run", "-c", "print(6 * 7)", user="bob", check=False)
    assert refused.returncode == 4 and "/etc/pandastack/client.json" in refused.stderr
    sandbox = m.run("pandastack", "-q", "sandbox", "create", "--ttl", "3600", user="alice").stdout.strip()
    m.run("pandastack", "context", "run", sandbox, "-c", "x = 41", user="alice")

    # What a request was called leads to its lines in the journal.
    line = Told("operations.md").next("journalctl")
    key = json.loads((m.root / "etc/pandastack/client.json").read_text())["api_key"]
    m.outside("curl", "-sf", "-H", f"Authorization: Bearer {key}", "-H", f"X-Request-Id: {line.split()[-1]}", "http://127.0.0.1:8080/v1/sandboxes")
    assert json.loads(m.line(line).stdout)["request_id"] == line.split()[-1]

    # systemd starts it again when it dies, and when it hangs.
    drop_in = Path(f"/proc/{m.pid}/root/run/systemd/system/pandastack.service.d/test.conf")
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("[Service]\nWatchdogSec=3s\n")
    m.run("systemctl", "daemon-reload")
    m.run("systemctl", "restart", "pandastack")
    for signal in ("KILL", "STOP"):
        before, = service(m, "MainPID")
        m.run("sh", "-c", f"kill -{signal} {before}")
        until("another daemon runs", lambda: service(m, "MainPID", "ActiveState") not in ([before, "active"], ["0", "activating"])
              and service(m, "ActiveState") == ["active"])
        assert m.run("pandastack", "context", "run", sandbox, "-c", "print(x)", user="alice").stdout == "41\n"
    drop_in.unlink()
    m.run("systemctl", "daemon-reload")

    # Upgraded in the middle of a cell: it goes on, ran once, and who waits for it gets the result.
    waiting = subprocess.Popen(m.command("pandastack", "context", "run", sandbox, "-c",
                                         "import os, time\nwith open('/workspace/ran', 'a') as f: f.write('once ')\n"
                                         "while not os.path.exists('/workspace/go'): time.sleep(0.05)\nprint(x + 1)", "--timeout", "90", user="alice"),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until("the cell runs", lambda: m.run("pandastack", "sandbox", "exec", sandbox, "cat /workspace/ran", user="alice", check=False).returncode == 0)
    install(m, packages[1], told.next("apt-get install"))
    assert SECOND in m.run("pandastack", "version").stdout.split("server")[-1], "the new daemon runs"
    m.run("pandastack", "sandbox", "exec", sandbox, "touch /workspace/go", user="alice")
    out, err = waiting.communicate(timeout=60)
    assert (out, waiting.returncode) == ("42\n", 0), err
    assert m.run("pandastack", "sandbox", "exec", sandbox, "cat /workspace/ran", user="alice").stdout == "once "
    assert m.run("pandastack", "run", "-c", "print(6 * 7)", user="alice").stdout == "42\n"

    # Removed, also while one runs that somebody started by hand: nothing runs any more, what was kept stays.
    m.run("systemctl", "stop", "pandastack")
    by_hand = subprocess.Popen(m.command("pandastack", "serve"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until("it answers", lambda: m.run("pandastack", "context", "run", sandbox, "-c", "print(x)", user="alice", check=False).stdout == "41\n")
    assert any("runsc" in p for p in m.processes().values())
    m.line(told.next("apt-get remove"))
    assert by_hand.wait(timeout=10) == 0
    assert [p for p in m.processes().values() if "pandastack" in p or "runsc" in p] == []
    assert m.cgroups() == set()
    assert m.mounts() == mounts
    assert (m.root / DATA / "pandastack.db").exists() and (m.root / "etc/pandastack/pandastack.toml").exists()

    # Purged: nothing is there any more, and what a link leads to is.
    (m.root / "srv" / "mine").write_text("kept")
    (m.root / DATA / "link").symlink_to("/srv")
    m.line(told.next("apt-get purge"))
    assert told.left == []
    left = {f for f in m.files() - files if not KEPT.match(f)}
    assert left == {"srv/mine"}
    assert "pandastack" not in (m.root / "etc/group").read_text()
    # The baked template, of which this machine had links, is whole.
    assert (TEMPLATES / "names" / "code-interpreter.json").exists()


def test_in_a_chroot_nothing_is_started(machine: Machine, packages: tuple[Path, Path]) -> None:
    """As when an image of a machine is made: no systemd runs."""
    def chroot(*argv: str) -> str:
        return subprocess.run(["chroot", machine.root, *argv], check=True, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}).stdout

    shutil.copy(packages[0], machine.root / "root")
    chroot("dpkg", "-i", f"/root/{packages[0].name}")
    assert not (machine.root / DATA / "pandastack.db").exists()
    chroot("dpkg", "-r", "pandastack")
    chroot("dpkg", "-P", "pandastack")
    assert not (machine.root / DATA).exists()


def test_the_same_commit_gives_the_same_package(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    made = []
    for n in ("a", "b"):
        for name in ("pandastack", "runsc"):
            (programs / name).write_text("small")
            os.utime(programs / name, (len(made), len(made)))
        out = tmp_path / n / "p.deb"
        subprocess.run(["bash", "packaging/deb/build", str(programs), "amd64", FIRST, str(out)], cwd=ROOT, check=True, capture_output=True)
        made.append(out.read_bytes())
    assert made[0] == made[1]
