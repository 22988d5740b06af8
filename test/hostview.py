"""What a daemon may leave on the host: processes, mounts, cgroups, sockets, files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def processes() -> dict[int, str]:
    """Every runsc process by its command line."""
    found = {}
    for p in Path("/proc").iterdir():
        if p.name.isdigit():
            try:
                cmd = (p / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if "runsc" in cmd:
                found[int(p.name)] = cmd
    return found


def mounts() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def cgroups(data: Path) -> set[str]:
    """Those under the name that the driver gives to its folder: daemons never share one."""
    group = hashlib.sha256(f"{data}/gvisor".encode()).hexdigest()[:8]
    return {d for base, dirs, _ in os.walk("/sys/fs/cgroup") for d in (os.path.join(base, x) for x in dirs) if f"pandastack/{group}" in d}


def files(root: Path) -> set[str]:
    return {os.path.join(base, f) for base, dirs, fs in os.walk(root) for f in fs + dirs}


def sockets() -> set[str]:
    return {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "/" in line.split()[-1]}


def interfaces() -> set[str]:
    """Of the host itself."""
    return set(os.listdir("/sys/class/net"))


def namespace_mounts() -> int:
    """How many namespaces are pinned by a mount."""
    return sum(" - nsfs " in line for line in Path("/proc/self/mountinfo").read_text().splitlines())


def namespaces(data: Path) -> set[str]:
    """Network namespaces that processes of the daemon with this data folder are in or hold."""
    found = set()
    for p in Path("/proc").iterdir():
        if not p.name.isdigit():
            continue
        try:
            if str(data).encode() not in (p / "cmdline").read_bytes():
                continue
            links = [p / "ns/net", *(p / "fd").iterdir()]
        except OSError:
            continue
        for link in links:
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target.startswith("net:["):
                found.add(target)
    return found - {os.readlink("/proc/self/ns/net")}


def view(data: Path) -> dict[str, set[str]]:
    """All of it that belongs to the daemon with this data folder."""
    d = str(data)
    return {
        "processes": {f"{pid} {cmd}" for pid, cmd in processes().items() if d in cmd},
        "mounts": {m for m in mounts() if d in m},
        "cgroups": cgroups(data),
        "sockets": {s for s in sockets() if d in s},
        "namespaces": {f"namespace {n}" for n in range(len(namespaces(data)))},
        "files": {f for f in files(data) if not f.endswith(("-wal", "-shm"))},
    }
