"""Names of the tests' own: a view of this machine with another hosts file, in which a daemon can run."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from pathlib import Path


def own_address() -> str:
    """This machine's, by which it reaches itself; not loopback, which a sandbox has of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("192.0.2.1", 9))  # sends nothing
        return s.getsockname()[0]


class Names:
    """`under` runs a program, such as a daemon, where each of these names leads to its address. Ends with `close`."""

    def __init__(self, names: dict[str, str]) -> None:
        self.file = tempfile.NamedTemporaryFile("w", prefix="pst-hosts-", dir="/var/tmp")
        self.file.write(Path("/etc/hosts").read_text() + "\n" + "".join(f"{address} {name}\n" for name, address in names.items()))
        self.file.flush()
        # Daemons that follow each other share it, so that the mounts of one are there for the next.
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount --bind "$0" /etc/hosts && echo ready && exec sleep infinity', self.file.name],
            stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout and self.holder.stdout.readline() == "ready\n"

    @property
    def under(self) -> tuple[str, ...]:
        return ("nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt")

    def close(self) -> None:
        self.holder.kill()
        self.holder.wait()
        self.file.close()
