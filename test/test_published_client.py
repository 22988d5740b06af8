"""The published TypeScript client works against this server unchanged."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from daemon import Daemon

HERE = Path(__file__).parent / "published"


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js")
def test_published_typescript_client(daemon: Daemon, tmp_path: Path) -> None:
    shutil.copytree(HERE, tmp_path / "client")
    install = ["npm", "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund"]
    subprocess.run(install, cwd=tmp_path / "client", check=True, timeout=300, capture_output=True)
    env = {**daemon.env, "PANDASTACK_API": daemon.url}  # the name that this client reads
    done = subprocess.run(["node", "check.mjs"], cwd=tmp_path / "client", env=env, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
