"""The published clients work against this server unchanged. docs/published-clients.md says what they do. Our own TypeScript
SDK takes the place of the published one: it passes the same checks, but for those in DIFFERENT.

What is checked stands in published/check.mjs and published/check.py, each check under the same name in both and in CHECKS.
A new one goes into all three; a route that is served now also leaves "what is not here".
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import ROOT, Daemon

HERE = Path(__file__).parent / "published"
CACHE = ROOT / ".cache" / "published"
PYTHON = "pandastack==0.10.0"  # TypeScript's version is in published/package.json

CHECKS = """
create
list
get
get unknown
create of an unknown template
create with a bad field
create with a volume
files of text
files of bytes
upload and download
list of a folder
stat
file errors
assignment
table
chart
table before chart
kinds of results
output
error of a cell
deadline of a cell
empty cell
two contexts
context of another language
exec
exec with much output
exec checked
exec of nothing
deadline of a command
stream
deadline of a stream
run code of a sandbox
lifecycle
pause
hibernation
snapshot
fork
fork tree
explore
logs
templates
from the client
me
tokens
wrong key
nobody there
key of the file
preview url
preview of a port
what is not here
kill
every call
""".strip().splitlines()


# What our own TypeScript SDK does otherwise, as docs/typescript.md says.
DIFFERENT = {
    "preview url": "it gives the address where this server shows a port",
    "what is not here": "it has no calls for what this server does not have",
}


# Checks that only some clients have.
ONLY_TYPESCRIPT = {"every call"}


def install_own() -> list[str]:
    run(["make", "-s", "ts"], ROOT)
    folder = CACHE / "own"
    scope = folder / "node_modules" / "@pandastack"
    scope.mkdir(parents=True, exist_ok=True)
    if not (scope / "sdk").is_symlink():
        (scope / "sdk").symlink_to(ROOT / "sdk" / "typescript")
    shutil.copy(HERE / "check.mjs", folder)
    return ["node", str(folder / "check.mjs")]


def install_typescript() -> list[str]:
    folder = CACHE / "typescript"
    wanted = (HERE / "package.json").read_text()
    if not (folder / "done").exists() or (folder / "done").read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(wanted)
        run(["npm", "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--no-update-notifier"], folder)
        (folder / "done").write_text(wanted)
    shutil.copy(HERE / "check.mjs", folder)  # modules are looked for beside who imports them
    return ["node", str(folder / "check.mjs")]


def install_python() -> list[str]:
    folder = CACHE / f"python-{sys.version_info.major}.{sys.version_info.minor}"
    if not (folder / "done").exists() or (folder / "done").read_text() != PYTHON:
        shutil.rmtree(folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(folder)], ROOT)  # of its own: our SDK has the same name
        run([str(folder / "bin" / "pip"), "install", "-q", PYTHON], ROOT)
        (folder / "done").write_text(PYTHON)
    return [str(folder / "bin" / "python"), "-I", str(HERE / "check.py")]


def run(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=[install_typescript, install_python, pytest.param(install_own, marks=pytest.mark.slow)], ids=["typescript", "python", "own typescript"])
def seen(request: pytest.FixtureRequest, daemon: Daemon) -> dict[str, str]:
    """What came of each check: "" or what went wrong."""
    printed = run(request.param(), daemon.dir, {**daemon.env, "PANDASTACK_API": daemon.url})  # the name that both read
    return json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize("name", CHECKS)
def test_published_client(seen: dict[str, str], name: str, request: pytest.FixtureRequest) -> None:
    if name in ONLY_TYPESCRIPT and "typescript" not in request.node.name:
        pytest.skip("of the TypeScript clients")
    if name in DIFFERENT and "own" in request.node.name:
        assert seen[name] != "", "it is the same now: take it off DIFFERENT"
        return
    assert seen.get(name, "there is no such check") == ""


def test_every_check_is_listed(seen: dict[str, str], request: pytest.FixtureRequest) -> None:
    assert list(seen) == [name for name in CHECKS if name not in ONLY_TYPESCRIPT or "typescript" in request.node.name]
