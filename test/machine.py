"""A small Debian with systemd as its first process, in namespaces of its own: what a package is tried on."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from daemon import ROOT

CACHE = ROOT / ".cache" / "machine"
CGROUPS = Path("/sys/fs/cgroup")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def release() -> str:
    return platform.freedesktop_os_release()["VERSION_CODENAME"]


def base() -> Path:
    """The machine's files before anything is installed, from the archives that apt uses here. Made once."""
    tar = CACHE / f"{release()}.tar"
    if tar.exists():
        return tar
    CACHE.mkdir(parents=True, exist_ok=True)
    sources = set()
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)", "Created-By: Packages"],
        check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        uri, suite, component = line.split("|")
        if suite == release() or suite.startswith(release() + "-"):
            sources.add(f"deb {uri} {suite} {component}")
    assert sources, f"apt knows no archive of {release()}"
    acquire = subprocess.run(["apt-config", "dump", "--no-empty", "Acquire"], check=True, capture_output=True, text=True).stdout
    options = [f"--aptopt={line.rstrip(';')}" for line in acquire.splitlines() if line.lower().startswith(("acquire::http", "acquire::retries"))]
    fresh = tar.with_suffix(".new")
    subprocess.run(["mmdebstrap", "--variant=minbase", "--format=tar", "--include=systemd", *options, release(), str(fresh), *sorted(sources)],
                   check=True)
    fresh.rename(tar)
    return tar


def controllers() -> dict[str, Path]:
    """Where each tree of cgroups is mounted on this host, by the options that mount it; "" for the one of version 2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return {"": CGROUPS}
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        kind, options = fields[fields.index("-") + 1], fields[-1]
        if kind == "cgroup" and Path(fields[4]).parent == CGROUPS:
            names = [o for o in options.split(",") if o not in ("rw", "ro")]
            found[",".join(["none"] + names if names[0].startswith("name=") else names)] = Path(fields[4])
    return found


class Machine:
    """`start` unpacks and boots it; `run` runs a program in it; `remove` ends it with everything in it."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="pst-", dir="/var/tmp"))
        self.dir.chmod(0o711)  # sandboxes are nobody on this host, and pass through
        self.root = self.dir / "root"
        self.cgroup = self.dir.name
        self.outer: subprocess.Popen[bytes] | None = None
        self.pid = 0

    def unpack(self) -> "Machine":
        self.root.mkdir()
        subprocess.run(["tar", "-xpf", base(), "--numeric-owner", "-C", self.root], check=True)
        return self

    def boot(self) -> "Machine":
        for tree in controllers().values():
            group = tree / self.cgroup
            group.mkdir()
            for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group of version 1, which no process can then join
                if (tree / file).exists():
                    (group / file).write_text((tree / file).read_text())
        for unit in ("systemd-sysctl", "systemd-modules-load"):  # the kernel is the host's
            (self.root / "etc/systemd/system" / f"{unit}.service").symlink_to("/dev/null")
        root = shlex.quote(str(self.root))
        mounts = [
            f"mount --bind {root} {root}", f"cd {root}", "mount -t proc proc proc", "mount -t sysfs -o ro sysfs sys",
            "mount -t tmpfs -o mode=755 tmpfs run", "mount -t tmpfs -o mode=1777 tmpfs tmp", "mount -t tmpfs -o mode=755 tmpfs dev",
            "mkdir dev/pts dev/shm", "mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts", "ln -s pts/ptmx dev/ptmx",
            "mount -t tmpfs -o mode=1777 tmpfs dev/shm", "ln -s /proc/self/fd dev/fd",
            *(f"mknod -m 666 dev/{n} c 1 {minor}" for n, minor in {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}.items()),
            "mknod -m 666 dev/tty c 5 0", "mkdir dev/net", "mknod -m 666 dev/net/tun c 10 200",
        ]
        if "" in controllers():
            mounts.append("mount -t cgroup2 cgroup2 sys/fs/cgroup")
        else:
            mounts.append("mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup")
            for options, tree in controllers().items():
                mounts += [f"mkdir sys/fs/cgroup/{tree.name}", f"mount -t cgroup -o {options} cgroup sys/fs/cgroup/{tree.name}"]
        inside = " && ".join([*mounts, "pivot_root . .", "umount -l .",
                              f"exec env -i container=test PATH={PATH} /lib/systemd/systemd --log-target=console --log-level=warning --show-status=no"])
        join = " && ".join(f"echo $$ >{shlex.quote(str(tree / self.cgroup / 'cgroup.procs'))}" for tree in controllers().values())
        log = open(self.dir / "console", "wb")
        self.outer = subprocess.Popen(
            ["sh", "-c", f"{join} && exec unshare --mount --pid --net --ipc --uts --cgroup --propagation private --fork --kill-child sh -c {shlex.quote(inside)}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._until("its first process", lambda: bool(self._first()))
        self.pid = self._first()
        for tree in controllers().values():  # what watches over the machine is not part of it
            (tree / "cgroup.procs").write_text(str(self.outer.pid))
        self._until("systemd", lambda: self.run("systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded"))
        return self

    def _first(self) -> int:
        assert self.outer
        try:
            children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children").read_text().split()
            return int(children[0]) if children and b"systemd" in Path(f"/proc/{children[0]}/cmdline").read_bytes().split(b"\0")[0] else 0
        except OSError:
            return 0

    def _until(self, what: str, ok) -> None:
        deadline = time.monotonic() + 60
        while not ok():
            assert self.outer and self.outer.poll() is None and time.monotonic() < deadline, f"{what} did not start:\n{self.console()}"
            time.sleep(0.05)

    def console(self) -> str:
        return (self.dir / "console").read_text(errors="replace")[-4000:]

    def command(self, *argv: str, user: str = "root", env: dict[str, str] | None = None) -> list[str]:
        """What runs a program in the machine, as a user who has just logged in."""
        home = "/root" if user == "root" else f"/home/{user}"
        become = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        settings = {"PATH": PATH, "HOME": home, "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **(env or {})}
        return ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--root", "--wd",
                "--", "env", "-i", *(f"{k}={v}" for k, v in settings.items()), *become, *argv]

    def run(self, *argv: str, check: bool = True, timeout: float = 120, **how) -> subprocess.CompletedProcess[str]:
        p = subprocess.run(self.command(*argv, **how), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        assert not check or p.returncode == 0, f"{' '.join(argv)}: {p.returncode}\n{p.stdout}{p.stderr}"
        return p

    def line(self, line: str, **how) -> subprocess.CompletedProcess[str]:
        """As somebody types it who is at home."""
        return self.run("sh", "-c", f"cd && {line}", **how)

    def outside(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of the host's in the machine's network."""
        return subprocess.run(["nsenter", f"--target={self.pid}", "--net", *argv], check=True, capture_output=True, text=True, timeout=120)

    # What there is in it

    def processes(self) -> dict[int, str]:
        """All that descend from its first one, by their number on the host. Sandboxes are among them, in namespaces of their own."""
        parents, commands = {}, {}
        for p in Path("/proc").iterdir():
            if p.name.isdigit():
                try:
                    parents[int(p.name)] = int((p / "stat").read_text().rpartition(")")[2].split()[1])
                    commands[int(p.name)] = (p / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                except OSError:
                    continue

        def ours(pid: int) -> bool:
            while pid not in (0, self.pid):
                pid = parents.get(pid, 0)
            return pid == self.pid

        return {pid: cmd for pid, cmd in commands.items() if ours(pid)}

    def mounts(self) -> list[str]:
        return sorted(line.split()[4] for line in Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines())

    def cgroups(self) -> set[str]:
        """Those of sandboxes."""
        return {os.path.join(b, d) for tree in controllers().values() for b, ds, _ in os.walk(tree / self.cgroup) for d in ds if "pandastack" in d and not d.endswith(".service")}

    def files(self) -> set[str]:
        """Those on its disk."""
        return {os.path.relpath(os.path.join(b, f), self.root) for b, ds, fs in os.walk(self.root) for f in ds + fs}

    def remove(self) -> None:
        if self.outer:
            if self.pid:
                os.kill(self.pid, signal.SIGKILL)  # and with the first process every other of its namespace
            self.outer.kill()
            self.outer.wait()
            for tree in controllers().values():
                for b, _, _ in os.walk(tree / self.cgroup, topdown=False):
                    _rmdir(b)
        shutil.rmtree(self.dir)


def _rmdir(group: str) -> None:
    """The kernel keeps a group busy for a moment after its last process ended."""
    deadline = time.monotonic() + 20
    while True:
        try:
            os.rmdir(group)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
