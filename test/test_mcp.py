"""The Model Context Protocol, with its official clients, over standard input and output and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from daemon import BIN, ROOT, Daemon
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pandastack import Sandbox
from test_processes import eventually

sys.path.insert(0, str(ROOT / "scripts" / "docs"))

from pages import blocks  # noqa: E402

RUNTIMES = ROOT / "sdk" / "typescript" / "runtimes"
TRANSPORTS = ["stdio", "http"]
CHART = "import matplotlib.pyplot as plt\nprint('drawing')\nplt.plot([1, 4, 9]); plt.show()\nkept = 41\nkept + 1"


@asynccontextmanager
async def connected(daemon: Daemon, transport: str, key: str | None = None, path: str = "/mcp", url: str | None = None) -> AsyncIterator[Client]:
    key = daemon.key if key is None else key
    if transport == "stdio":
        server = StdioServerParameters(command=str(BIN), args=["mcp"], env={**daemon.env, "PANDASTACK_API_KEY": key})
        async with Client(stdio_client(server)) as client:
            yield client
        return
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=httpx2.Timeout(30, read=300)) as http:
        async with Client(streamable_http_client(f"{url or daemon.url}{path}", http_client=http, max_sse_event_size=None)) as client:
            yield client


def kinds(result: Any) -> list[str]:
    return [block.type for block in result.content]


def words(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def made_by_mcp(daemon: Daemon) -> list[str]:
    return [sb.id for sb in Sandbox.list(metadata={"made_by": "mcp"}, api_url=daemon.url, api_key=daemon.key)]


def new_key(daemon: Daemon, scope: str) -> str:
    request = urllib.request.Request(f"{daemon.url}/v1/me/tokens", method="POST", data=json.dumps({"label": scope, "scopes": [scope]}).encode(),
                                     headers={"Authorization": f"Bearer {daemon.key}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(json.load(answer)["token"])


# --- what tools do --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_session_works_in_its_sandbox(daemon: Daemon, transport: str) -> None:
    async def work() -> None:
        async with connected(daemon, transport) as client:
            tools = (await client.list_tools()).tools
            assert {t.name for t in tools} == {
                "run_code", "run_command", "read_file", "write_file", "list_dir", "create_sandbox", "list_sandboxes", "delete_sandbox",
                "fork_sandbox", "snapshot_sandbox", "list_templates"}
            assert all(len(t.description or "") < 450 for t in tools)
            assert not made_by_mcp(daemon)  # nothing is made before it is needed

            drawn = await client.call_tool("run_code", {"code": CHART})
            assert kinds(drawn) == ["text", "image", "text"] and not drawn.is_error
            assert drawn.content[0].text == "drawing" and drawn.content[2].text == "42"
            assert drawn.content[1].mime_type == "image/png" and len(drawn.content[1].data) > 1000
            (mine,) = made_by_mcp(daemon)

            figure = (await client.list_resources()).resources[0]
            assert (await client.read_resource(str(figure.uri))).contents[0].blob == drawn.content[1].data

            table = await client.call_tool("run_code", {"code": "import pandas as pd\npd.DataFrame({'n': [1, 2]})"})
            assert kinds(table) == ["text", "resource_link"] and table.content[0].text.split() == ["n", "0", "1", "1", "2"]
            assert "<table" in (await client.read_resource(str(table.content[1].uri))).contents[0].text

            raised = await client.call_tool("run_code", {"code": "kept = 7\n{}['missing']"})
            assert raised.is_error and "KeyError: 'missing'" in words(raised) and "variables are still there" in words(raised)
            assert words(await client.call_tool("run_code", {"code": "kept"})) == "7"
            assert words(await client.call_tool("run_code", {"code": "'apart' if 'kept' not in dir() else 'shared'", "context": "other"})) == "'apart'"
            late = await client.call_tool("run_code", {"code": "while True: pass", "timeout_seconds": 1})
            assert late.is_error and "end: timeout; variables are still there" in words(late)
            flood = words(await client.call_tool("run_code", {"code": "for i in range(100_000): print('line', i)"}))
            assert flood.startswith("line 0\n") and "line 99999" in flood and "bytes left out" in flood and len(flood) < 32_000

            wrote = await client.call_tool("write_file", {"path": "notes/täglich.txt", "content": "eins\n"})
            await client.call_tool("write_file", {"path": "notes/täglich.txt", "content": "zwei\n", "append": True})
            assert words(await client.call_tool("read_file", {"path": "notes/täglich.txt"})) == "eins\nzwei\n"
            assert (await client.read_resource(str(wrote.content[1].uri))).contents[0].text == "eins\nzwei\n"
            assert "täglich.txt\t10 bytes" in words(await client.call_tool("list_dir", {"path": "notes"}))
            ran = await client.call_tool("run_command", {"command": "cat täglich.txt; echo oops >&2; exit 3", "cwd": "/workspace/notes"})
            assert words(ran) == "eins\nzwei\n\n[stderr]\noops\n[exit code 3]" and not ran.is_error
            started = words(await client.call_tool("run_command", {"command": "echo on; sleep 600", "background": True}))
            assert "process id" in started
            await client.call_tool("run_code", {"code": "plt.plot([2, 1]); plt.savefig('/workspace/p.png')"})
            assert kinds(await client.call_tool("read_file", {"path": "p.png"})) == ["image"]
            missing = await client.call_tool("read_file", {"path": "no/such"})
            assert missing.is_error and missing.content[0].text.startswith("not_found: ")

            snapshot = words(await client.call_tool("snapshot_sandbox", {"name": "here"})).split()[1]
            copy = words(await client.call_tool("fork_sandbox", {})).splitlines()[1]
            await client.call_tool("run_code", {"code": "kept = 'changed'"})
            assert words(await client.call_tool("run_code", {"code": "kept", "sandbox_id": copy})) == "7"
            back = words(await client.call_tool("create_sandbox", {"from_snapshot": snapshot})).split(",")[0]
            assert words(await client.call_tool("run_code", {"code": "kept"})) == "7"
            assert set(made_by_mcp(daemon)) == {mine, copy, back}
            assert f"{back}, " in words(await client.call_tool("list_sandboxes", {}))
            assert "code-interpreter: " in words(await client.call_tool("list_templates", {}))

            # It has ended: the next call makes another one, and says what that means.
            Sandbox.get(back, api_url=daemon.url, api_key=daemon.key).kill()
            fresh = await client.call_tool("run_code", {"code": "'kept' in dir()"})
            assert f"The sandbox {back} has ended" in fresh.content[0].text and "variables" in fresh.content[0].text
            assert fresh.content[1].text == "False"
            await client.call_tool("delete_sandbox", {"sandbox_id": copy})
            assert copy not in made_by_mcp(daemon)

    asyncio.run(work())
    eventually("sandboxes of a session that has ended are there", lambda: not made_by_mcp(daemon))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_cancelled_cell_leaves_the_kernel_as_it_was(daemon: Daemon, transport: str) -> None:
    async def work() -> None:
        async with connected(daemon, transport) as client:
            await client.call_tool("run_code", {"code": "kept = 1"})
            for tool, arguments in (("run_code", {"code": "kept += 1\nprint('begun', flush=True)\nwhile True: pass", "timeout_seconds": 600}),
                                    ("run_command", {"command": "echo begun; sleep 4242", "timeout_seconds": 600})):
                begun = asyncio.Event()

                async def told(progress: float, total: float | None, message: str | None) -> None:
                    if message == "begun":
                        begun.set()  # noqa: B023  # awaited in this turn

                call = asyncio.create_task(client.call_tool(tool, arguments, progress_callback=told))
                await asyncio.wait_for(begun.wait(), 60)
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await call
            # What was cancelled has ended when the next call runs: a cell would wait for its 600 s.
            assert words(await asyncio.wait_for(client.call_tool("run_code", {"code": "kept"}), 60)) == "2"
            gone = {"code": "import subprocess; subprocess.run(['pgrep', '-f', 'sleep 424[2]'], capture_output=True).returncode"}
            for _ in range(100):
                if words(await client.call_tool("run_code", gone)) == "1":
                    return
            raise AssertionError("a command that was cancelled goes on")

    asyncio.run(work())


# --- connections ----------------------------------------------------------------------------------------------------------


class Proxy:
    """A way to the daemon that can be cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            with self._lock:
                self._open += [client, server]
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(a, b), daemon=True).start()

    @staticmethod
    def _pass(a: socket.socket, b: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)
        for each in (a, b):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        with self._lock:
            cut, self._open = self._open, []
        for each in cut:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()


@pytest.fixture
def proxy(daemon: Daemon) -> Iterator[Proxy]:
    p = Proxy(daemon.port)
    yield p
    p.close()


def test_a_connection_that_breaks_loses_nothing(daemon: Daemon, proxy: Proxy) -> None:
    async def work() -> None:
        async with connected(daemon, "http", url=f"http://127.0.0.1:{proxy.port}") as client:
            await client.call_tool("run_code", {"code": "runs = 0"})
            cut = asyncio.Event()

            async def told(progress: float, total: float | None, message: str | None) -> None:
                if not cut.is_set():
                    cut.set()
                    proxy.cut()

            slow = await asyncio.wait_for(client.call_tool(
                "run_code", {"code": "import time\nruns += 1\nfor i in range(30): print(i, flush=True); time.sleep(0.1)\nruns"}, progress_callback=told), 90)
            assert cut.is_set()
            assert words(slow) == "\n".join(map(str, range(30))) + "\n1"  # all of it, and run once
            assert words(await client.call_tool("run_code", {"code": "runs"})) == "1"

    asyncio.run(work())
    eventually("sandboxes of a session that has ended are there", lambda: not made_by_mcp(daemon))


@pytest.mark.slow
def test_programs_of_others_take_the_lines_of_the_page(daemon: Daemon, tmp_path: Path) -> None:
    env = {name: daemon.env[name] for name in ("HOME", "XDG_CONFIG_HOME", "PANDASTACK_API_URL", "PANDASTACK_API_KEY")}
    env |= {"PATH": f"{ROOT}/test/mcp_hosts/node_modules/.bin:{BIN.parent}:{os.environ['PATH']}", "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    def says(folder: Path, line: str) -> str:
        done = subprocess.run(["bash", "-euc", line], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        assert done.returncode == 0, done.stdout
        return done.stdout

    started, over_http = (block.text for block in blocks(ROOT / "docs" / "mcp.md") if block.by)
    folders = [tmp_path / "started", tmp_path / "http"]  # Claude Code notes servers by folder
    for folder, lines in zip(folders, (started, over_http)):
        folder.mkdir()
        says(folder, lines.replace("http://127.0.0.1:8080", daemon.url).replace("pds_…", daemon.key))
    assert "pandastack: pandastack mcp - ✔ Connected" in says(folders[0], "claude mcp list")
    assert f"pandastack: {daemon.url}/mcp (HTTP) - ✔ Connected" in says(folders[1], "claude mcp list")
    assert re.search(r"^✓ pandastack: pandastack mcp \(stdio\) - Connected$", says(folders[0], "gemini mcp list"), re.MULTILINE)
    assert re.search(r"^pandastack +pandastack +mcp .* enabled ", says(folders[0], "codex mcp list"), re.MULTILINE)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_typescript_client(daemon: Daemon, proxy: Proxy, transport: str) -> None:
    where = [str(BIN), "mcp"] if transport == "stdio" else [f"http://127.0.0.1:{proxy.port}/mcp"]
    with subprocess.Popen(["node", RUNTIMES / "mcp-client.mjs", transport, *where], env=daemon.env, stdout=subprocess.PIPE, text=True, cwd=RUNTIMES) as node:
        said = {}
        assert node.stdout
        for line in node.stdout:
            step = json.loads(line)
            said[step.pop("step")] = step
            if "ticking" in said and "resumed" not in said:
                proxy.cut()
    assert node.returncode == 0, said
    assert "run_code" in said["tools"]["names"]
    assert [b["type"] for b in said["chart"]["blocks"]] == ["image", "text"]
    assert said["chart"]["blocks"][0]["mime"] == "image/png" and said["chart"]["blocks"][0]["bytes"] > 1000
    assert said["cancelled"]["heard"] and "enough" in said["cancelled"]["error"]
    assert said["kept"]["blocks"][0]["text"] == "41"
    if transport == "http":
        assert said["resumed"]["blocks"][-1]["text"] == "'whole'"
    eventually("sandboxes of a session that has ended are there", lambda: not made_by_mcp(daemon))


def rpc(daemon: Daemon, method: str, params: Any, session: str = "", key: str | None = None, path: str = "/mcp", **headers: str) -> urllib.request.Request:
    return urllib.request.Request(
        f"{daemon.url}{path}", method="POST", data=json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode(),
        headers={"Authorization": f"Bearer {daemon.key if key is None else key}", "Content-Type": "application/json",
                 "Accept": "application/json, text/event-stream", **({"Mcp-Session-Id": session} if session else {}), **headers})


INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


def begin(daemon: Daemon) -> str:
    with urllib.request.urlopen(rpc(daemon, "initialize", INITIALIZE), timeout=30) as answer:
        session = answer.headers["Mcp-Session-Id"]
    note = rpc(daemon, "notifications/initialized", {}, session)
    note.data = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    urllib.request.urlopen(note, timeout=30).close()
    return str(session)


def test_whoever_vanishes_leaves_nothing() -> None:
    """Over HTTP, in the middle of a cell and without a word."""
    d = Daemon(mcp_sessions="2s", pool_ready=1, pool_prepared=0).start()
    try:
        session = begin(d)
        call = urllib.request.urlopen(rpc(d, "tools/call", {
            "name": "run_code", "arguments": {"code": "print('on', flush=True)\nwhile True: pass", "timeout_seconds": 3000}, "_meta": {"progressToken": 1}}, session), timeout=60)
        while b'"on"' not in call.readline():
            pass
        assert len(made_by_mcp(d)) == 1
        call.fp.raw._sock.shutdown(socket.SHUT_RDWR)
        call.close()
        eventually("a sandbox is left", lambda: not made_by_mcp(d))
        with pytest.raises(urllib.error.HTTPError) as gone:
            urllib.request.urlopen(rpc(d, "tools/list", {}, session), timeout=30)
        assert gone.value.code == 404 and "initialize another" in json.loads(gone.value.read())["hint"]
    finally:
        code = d.stop()
        d.remove()
    assert code == 0


def test_a_program_whose_client_dies_ends_with_its_sandbox(daemon: Daemon) -> None:
    program = subprocess.Popen([BIN, "mcp"], env=daemon.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdin and program.stdout
    for message in (
        {"id": 1, "method": "initialize", "params": INITIALIZE}, {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "run_code", "arguments": {"code": "print('on', flush=True)\nwhile True: pass", "timeout_seconds": 3000}, "_meta": {"progressToken": 1}}},
    ):
        program.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        program.stdin.flush()
    while '"on"' not in program.stdout.readline():
        pass
    assert len(made_by_mcp(daemon)) == 1
    program.stdin.close()
    program.stdout.close()
    assert program.wait(timeout=60) == 0
    assert not made_by_mcp(daemon)


# --- who may --------------------------------------------------------------------------------------------------------------


def test_scopes_of_keys_hold(daemon: Daemon, sandbox: Sandbox) -> None:
    sandbox.filesystem.write("/workspace/a.txt", "here")

    async def work() -> None:
        async with connected(daemon, "http", key=new_key(daemon, "read")) as client:
            refused = await client.call_tool("run_code", {"code": "1"})
            assert refused.is_error and refused.content[0].text.startswith("denied: ") and "run" in refused.content[0].text
            for tool, arguments in (("run_command", {"command": "ls"}), ("write_file", {"path": "x", "content": ""}), ("delete_sandbox", {})):
                refused = await client.call_tool(tool, {"sandbox_id": sandbox.id, **arguments})
                assert refused.is_error and refused.content[0].text.startswith("denied: "), tool
            assert words(await client.call_tool("read_file", {"path": "a.txt", "sandbox_id": sandbox.id})) == "here"
            assert sandbox.id in words(await client.call_tool("list_sandboxes", {}))

    asyncio.run(work())


def test_a_session_is_of_the_key_that_began_it(daemon: Daemon) -> None:
    session = begin(daemon)
    other = new_key(daemon, "run")
    for request, status in (
        (rpc(daemon, "tools/list", {}, session, key=other), 403),
        (rpc(daemon, "tools/list", {}, session, key="pds_" + "0" * 32), 401),
        (rpc(daemon, "tools/list", {}, session, Origin="http://evil.example"), 403),
        (rpc(daemon, "tools/list", {}, session, Host="evil.example"), 403),
        (rpc(daemon, "tools/list", {}, "no-such-session"), 404),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        body = json.loads(refused.value.read())
        assert (refused.value.code, bool(body["error"]), bool(body["hint"])) == (status, True, True), body
    ending = rpc(daemon, "", {}, session)
    ending.method, ending.data = "DELETE", None
    assert urllib.request.urlopen(ending, timeout=30).status == 204


def test_a_session_in_a_sandbox_that_is_there(daemon: Daemon, sandbox: Sandbox) -> None:
    sandbox.run_code("mine = 5")

    async def work() -> None:
        async with connected(daemon, "http", path=f"/v1/sandboxes/{sandbox.id}/mcp") as client:
            assert words(await client.call_tool("run_code", {"code": "mine"})) == "5"

    asyncio.run(work())
    assert sandbox.run_code("mine").text == "5"  # it does not end with the session
    ended = subprocess.run([BIN, "mcp", "--sandbox", sandbox.id], env=daemon.env, input="", capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert sandbox.run_code("mine").text == "5"
