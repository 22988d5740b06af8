"""Runs this test suite, or any command, inside gVisor over a template's root filesystem.

    python3 tests/in_sandbox.py --runsc RUNSC --rootfs ROOTFS --site DIR_WITH_PYTEST [pytest arguments]

The root filesystem stays untouched (writes go to memory), there is no network but loopback, and nothing is left behind.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent
CAPABILITIES = [
    f"CAP_{name}"
    for name in "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT".split()
]


def specification(rootfs: Path, command: list[str], binds: dict[str, Path], env: list[str]) -> dict:
    """The OCI description of a sandbox like the daemon's."""
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        *({"destination": at, "type": "tmpfs", "source": "tmpfs"} for at in ("/dev", "/dev/shm", "/tmp", "/workspace")),
        *(
            {"destination": at, "type": "bind", "source": str(source), "options": ["rbind", "ro"]}
            for at, source in binds.items()
        ),
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": command,
            "cwd": "/workspace",
            "env": [
                "PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                "HOME=/root",
                "LANG=C.UTF-8",
                *env,
            ],
            "capabilities": {kind: CAPABILITIES for kind in ("bounding", "effective", "permitted")},
        },
        "root": {"path": str(rootfs), "readonly": False},
        "hostname": "sandbox",
        "mounts": mounts,
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runsc", type=Path, required=True)
    parser.add_argument("--rootfs", type=Path, required=True, help="holds a Python environment at /opt/venv")
    parser.add_argument("--site", type=Path, required=True, help="a folder with pytest in it")
    parser.add_argument("--command", nargs=argparse.REMAINDER, help="run this instead of pytest")
    options, rest = parser.parse_known_args()
    command = options.command or [
        *"/opt/venv/bin/python -m pytest -p no:cacheprovider -q /kernel/tests".split(),
        *rest,
    ]
    name = f"kt{uuid.uuid4().hex[:12]}"
    bundle = Path(tempfile.mkdtemp(prefix="kernel-tests-"))
    env = ["PYTHONPATH=/site", "PYTHONDONTWRITEBYTECODE=1", "KERNEL_TESTS_FULL=1"]
    binds = {"/kernel": PROGRAM, "/site": options.site.resolve()}
    (bundle / "config.json").write_text(json.dumps(specification(options.rootfs.resolve(), command, binds, env)))
    runsc = [options.runsc, "--root", bundle / "state", "--network=none", "--ignore-cgroups", "--overlay2=root:memory"]
    try:
        return subprocess.run([*runsc, "run", "--bundle", bundle, name], check=False).returncode
    finally:
        subprocess.run([*runsc, "delete", "--force", name], stderr=subprocess.DEVNULL, check=False)
        # runsc keeps an empty network namespace mounted in its state folder.
        subprocess.run(["umount", bundle / "state" / "null-netns"], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(bundle)


if __name__ == "__main__":
    sys.exit(main())
