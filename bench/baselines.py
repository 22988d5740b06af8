"""The same work on the bare host: importing in python3, ipykernel through jupyter_client, cp."""

from __future__ import annotations

import queue
import subprocess
import sys
from pathlib import Path

from figures import timed
from jupyter_client import KernelManager


def import_command(modules: list[str]) -> list[str]:
    return [sys.executable, "-c", "import " + ", ".join(modules)]


def imports(modules: list[str], times: int) -> list[float]:
    """python3 that imports the modules and ends; the first, which writes compiled files, does not count."""
    cmd = import_command(modules)
    subprocess.run(cmd, check=True)
    return [timed(lambda: subprocess.run(cmd, check=True)) for _ in range(times)]


class Jupyter:
    """An ipykernel on the host, as notebooks use it."""

    def __init__(self) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str) -> str:
        """Runs a cell to its idle message and gives what it showed."""
        sent = self.client.execute(code)
        shown = ""
        while True:
            try:
                m = self.client.get_iopub_msg(timeout=60)
            except queue.Empty:
                raise RuntimeError("the baseline kernel does not answer") from None
            if m["parent_header"].get("msg_id") != sent:
                continue
            if m["msg_type"] in ("execute_result", "display_data"):
                shown += " ".join(m["content"]["data"])
            if m["msg_type"] == "error":
                raise RuntimeError("\n".join(m["content"]["traceback"]))
            if m["msg_type"] == "status" and m["content"]["execution_state"] == "idle":
                return shown

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def copy(src: Path, dst: Path) -> float:
    """Milliseconds of cp."""
    ms = timed(lambda: subprocess.run(["cp", src, dst], check=True))
    dst.unlink()
    return ms


