"""Front ends of Jupyter at the very kernel that an agent uses: their own clients, and JupyterLab in a browser."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import struct
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import websocket
from daemon import ROOT, Daemon, free_port
from pandastack import Sandbox
from test_processes import eventually

PATIENCE = 60.0  # seconds; nothing is expected to take that long
V1 = "v1.kernel.websocket.jupyter.org"


def rest(daemon: Daemon, sandbox: Sandbox, method: str, path: str, body: Any = None, key: str | None = None, scheme: str = "token") -> Any:
    request = urllib.request.Request(
        f"{daemon.url}/jupyter/{sandbox.id}/api{path}", method=method, data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"{scheme} {daemon.key if key is None else key}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        raw = answer.read()
    return json.loads(raw) if raw else None


def kernel_of(daemon: Daemon, sandbox: Sandbox, context: str) -> str:
    """The id by which front ends know a context."""
    return next(k["id"] for k in rest(daemon, sandbox, "GET", "/kernels") if k["context"] == context)


# --- the clients of jupyter_server ----------------------------------------------------------------------------------------


class Gateway:
    """A kernel as jupyter_server's own gateway client has it."""

    def __init__(self, client: Any, manager: Any) -> None:
        self.client = client
        self.manager = manager

    async def replied(self, parent: str, channel: str = "shell") -> dict[str, Any]:
        get = {"shell": self.client.get_shell_msg, "control": self.client.get_control_msg}[channel]
        while True:
            message = await get(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") == parent:
                return message["content"]

    async def heard(self, parent: str, until: Callable[[dict[str, Any]], bool] | None = None) -> list[dict[str, Any]]:
        """What is said on iopub about a request, up to its end."""
        found = []
        while True:
            message = await self.client.get_iopub_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") != parent:
                continue
            found.append(message)
            if until(message) if until else message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found


@asynccontextmanager
async def gateway(daemon: Daemon, sandbox: Sandbox, context: str) -> AsyncIterator[Gateway]:
    from jupyter_server.gateway.gateway_client import GatewayClient
    from jupyter_server.gateway.managers import GatewayMappingKernelManager

    GatewayClient.clear_instance()
    settings = GatewayClient.instance()
    settings.url = f"{daemon.url}/jupyter/{sandbox.id}"
    settings.auth_token = daemon.key
    settings.init_connection_args()
    try:
        kernels = GatewayMappingKernelManager(connection_dir="/tmp")
        kid = await kernels.start_kernel(kernel_name=f"context-{context}")
        assert kid == kernel_of(daemon, sandbox, context)
        assert [k["id"] for k in await kernels.list_kernels()] == [kid]
        manager = kernels.get_kernel(kid)
        client = manager.client()
        client.allow_stdin = True
        connect = websocket.create_connection  # which this client calls without the token of its settings

        def with_token(*args: Any, **options: Any) -> Any:
            return connect(*args, header={"Authorization": f"token {daemon.key}"}, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(websocket, "create_connection", with_token)
            await client.start_channels()
        try:
            yield Gateway(client, manager)
        finally:
            client.stop_channels()
    finally:
        GatewayClient.clear_instance()


def of(messages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [message["content"] for message in messages if message["msg_type"] == kind]


def test_the_gateway_client_works_in_the_agents_kernel(daemon: Daemon, sandbox: Sandbox) -> None:
    sandbox.run_code("prices = [3, 1, 4, 1, 5]\nclass Thing:\n    '''What a thing is.'''")

    async def work() -> None:
        async with gateway(daemon, sandbox, "default") as g:
            info = await g.replied(g.client.kernel_info())
            assert info["protocol_version"] == "5.4" and info["language_info"]["version"].startswith("3.")

            drawn = g.client.execute("import matplotlib.pyplot as plt\nprint(sum(prices))\nplt.plot(prices); plt.show()\nprices[2]",
                                     user_expressions={"n": "len(prices)"})
            said = await g.heard(drawn)
            assert [m["msg_type"] for m in said] == [
                "status", "execute_input", "stream", "display_data", "execute_result", "status"]
            assert of(said, "stream") == [{"name": "stdout", "text": "14\n"}]
            assert base64.b64decode(of(said, "display_data")[0]["data"]["image/png"]).startswith(b"\x89PNG")
            result = of(said, "execute_result")[0]
            assert result["data"]["text/plain"] == "4" and result["execution_count"] == of(said, "execute_input")[0]["execution_count"]
            reply = await g.replied(drawn)
            assert reply["status"] == "ok" and reply["user_expressions"]["n"]["data"]["text/plain"] == "5"

            found = await g.replied(g.client.complete("pri", 3))
            assert "prices" in found["matches"] and (found["cursor_start"], found["cursor_end"]) == (0, 3)
            found = await g.replied(g.client.complete("prices.app", 10))
            assert any(m.endswith("append") for m in found["matches"])
            about = await g.replied(g.client.inspect("Thing"))
            assert about["found"] and "What a thing is." in about["data"]["text/plain"]
            assert not (await g.replied(g.client.inspect("nothing_of_the_kind")))["found"]
            assert (await g.replied(g.client.is_complete("for x in y:")))["status"] == "incomplete"
            assert (await g.replied(g.client.is_complete("1 + 1")))["status"] == "complete"
            history = await g.replied(g.client.history(hist_access_type="tail", n=50))
            assert any("prices = [3, 1, 4, 1, 5]" in line[2] for line in history["history"])

            wrong = g.client.execute("input()\n1/0")  # it fails when the next one waits for sure
            await g.client.get_stdin_msg(timeout=PATIENCE)
            dropped = g.client.execute("never = True")
            g.client.input("")
            reply = await g.replied(wrong)
            assert (reply["status"], reply["ename"]) == ("error", "ZeroDivisionError")
            assert any("1/0" in line for line in reply["traceback"])
            assert (await g.replied(dropped))["status"] == "aborted"

            asking = g.client.execute("import getpass\nname = input('who? ')\nsecret = getpass.getpass('pass: ')\nprint(name, len(secret))")
            asked = await g.client.get_stdin_msg(timeout=PATIENCE)
            assert asked["content"] == {"prompt": "who? ", "password": False}
            g.client.input("Ada")
            asked = await g.client.get_stdin_msg(timeout=PATIENCE)
            assert asked["content"] == {"prompt": "pass: ", "password": True}
            g.client.input("xyzzy")
            assert of(await g.heard(asking), "stream") == [{"name": "stdout", "text": "Ada 5\n"}]

            for endless in ("print('on', flush=True)\nwhile True: pass", "print('on', flush=True)\ninput()"):
                stuck = g.client.execute(endless)
                await g.heard(stuck, until=lambda m: m["msg_type"] == "stream")
                await g.manager.interrupt_kernel()
                assert (await g.replied(stuck))["ename"] == "KeyboardInterrupt"
            kept = await g.heard(g.client.execute("name, prices[0]"))
            assert of(kept, "execute_result")[0]["data"]["text/plain"] == "('Ada', 3)"

    asyncio.run(work())
    # The agent sees what the notebook did, and its input() is answered by nobody, as before.
    assert sandbox.run_code("name + str('never' in globals())").text == "'AdaFalse'"
    assert sandbox.run_code("input()").error_name == "StdinNotImplementedError"


def test_displays_are_updated_and_cleared(daemon: Daemon, sandbox: Sandbox) -> None:
    sandbox.run_code("from IPython.display import clear_output, display, JSON")

    async def work() -> None:
        async with gateway(daemon, sandbox, "default") as g:
            said = await g.heard(g.client.execute(
                "handle = display('one', display_id='it')\nhandle.update('two')\nclear_output(wait=True)\ndisplay(JSON({'a': [1]}))"))
            first, update = of(said, "display_data")[0], of(said, "update_display_data")[0]
            assert first["transient"] == update["transient"] == {"display_id": "it"}
            assert (first["data"]["text/plain"], update["data"]["text/plain"]) == ("'one'", "'two'")
            assert of(said, "clear_output") == [{"wait": True}]
            assert of(said, "display_data")[1]["data"]["application/json"] == {"a": [1]}
            quiet = await g.heard(g.client.execute("counted = 1", silent=True))
            assert {m["msg_type"] for m in quiet} == {"status"}

    asyncio.run(work())


def test_what_an_agent_runs_is_seen(daemon: Daemon, sandbox: Sandbox) -> None:
    sandbox.run_code("0")

    async def work() -> None:
        async with gateway(daemon, sandbox, "default") as g:
            await g.replied(g.client.kernel_info())
            done = await asyncio.to_thread(sandbox.run_code, "print('from the agent'); 6*7")
            assert done.text == "42"
            found: list[dict[str, Any]] = []
            while not of(found, "execute_result"):
                found.append(await g.client.get_iopub_msg(timeout=PATIENCE))
            assert {"code": "print('from the agent'); 6*7", "execution_count": done.execution_count} in of(found, "execute_input")
            assert {"name": "stdout", "text": "from the agent\n"} in of(found, "stream")
            assert of(found, "execute_result")[0]["execution_count"] == done.execution_count

    asyncio.run(work())


def test_comms_and_widgets(daemon: Daemon, sandbox: Sandbox) -> None:
    """A slider of ipywidgets that is moved in the browser's half."""
    sandbox.run_code("0")

    async def work() -> None:
        async with gateway(daemon, sandbox, "default") as g:
            said = await g.heard(g.client.execute(
                "from ipywidgets import IntSlider\nseen = []\n"
                "slider = IntSlider(value=3)\nslider.observe(lambda change: (seen.append(change['new']), print('moved')), 'value')\nslider"))
            model = slider_model = None
            for opened in of(said, "comm_open"):
                if opened["data"]["state"].get("_model_name") == "IntSliderModel":
                    slider_model = opened
            assert slider_model and slider_model["target_name"] == "jupyter.widget" and slider_model["data"]["state"]["value"] == 3
            model = slider_model["comm_id"]
            assert of(said, "execute_result")[0]["data"]["application/vnd.jupyter.widget-view+json"]["model_id"] == model
            known = await g.replied(g.client.comm_info(target_name="jupyter.widget"))
            assert model in known["comms"]

            moved = g.client.session.msg("comm_msg", {"comm_id": model, "data": {"method": "update", "state": {"value": 8}, "buffer_paths": []}})
            g.client.shell_channel.send(moved)
            assert {"name": "stdout", "text": "moved\n"} in of(await g.heard(moved["header"]["msg_id"]), "stream")
            back = await g.heard(g.client.execute("slider.value = 9"))
            assert [c["data"]["state"] for c in of(back, "comm_msg") if c["data"].get("method") == "update"] == [{"value": 9}]

    asyncio.run(work())
    assert sandbox.run_code("seen").text == "[8, 9]"


# --- the WebSocket itself -------------------------------------------------------------------------------------------------


def v1_parts(raw: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("<Q", raw)
    offsets = struct.unpack_from(f"<{count}Q", raw, 8)
    return [raw[a:b] for a, b in zip(offsets, offsets[1:])]


def v1_message(kind: str, content: Any, session: str, buffers: tuple[bytes, ...] = ()) -> tuple[str, bytes]:
    header = {"msg_id": uuid.uuid4().hex, "username": "t", "session": session, "date": "2026-01-01T00:00:00Z", "msg_type": kind, "version": "5.4"}
    parts = [b"shell", *(json.dumps(p).encode() for p in (header, {}, {}, content)), *buffers]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return header["msg_id"], struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts)


async def v1_until(socket: aiohttp.ClientWebSocketResponse, done: Callable[[str, dict[str, Any], dict[str, Any]], bool]) -> list[tuple[str, dict[str, Any], list[bytes]]]:
    found = []
    while True:
        message = await socket.receive(timeout=PATIENCE)
        assert message.type == aiohttp.WSMsgType.BINARY, message
        _, header, parent, _, content, *buffers = v1_parts(message.data)
        kind = json.loads(header)["msg_type"]
        found.append((kind, json.loads(content), buffers))
        if done(kind, json.loads(parent), json.loads(content)):
            return found


def test_a_connection_that_breaks_misses_nothing(daemon: Daemon, sandbox: Sandbox) -> None:
    """In the binary subprotocol: a cell goes on while nobody is connected, and whoever comes back hears all of it."""
    sandbox.run_code("0")
    kid = kernel_of(daemon, sandbox, "default")
    url = f"{daemon.url}/jupyter/{sandbox.id}/api/kernels/{kid}/channels?session_id=front-1&token={daemon.key}"

    async def work() -> None:
        async with aiohttp.ClientSession() as http:
            async with http.ws_connect(url, protocols=[V1]) as socket:
                assert socket.protocol == V1
                asked, raw = v1_message("execute_request", {
                    "code": "import time\nfor i in range(40):\n    print(i, flush=True); time.sleep(0.05)\n'over'", "silent": False, "allow_stdin": False,
                }, "front-1")
                await socket.send_bytes(raw)
                before = await v1_until(socket, lambda kind, parent, content: kind == "stream")
            async with http.ws_connect(url, protocols=[V1]) as socket:
                after = await v1_until(socket, lambda kind, parent, content: kind == "execute_reply" and parent["msg_id"] == asked)
            text = "".join(content["text"] for kind, content, _ in before + after if kind == "stream")
            assert text == "".join(f"{i}\n" for i in range(40))
            assert [c["data"]["text/plain"] for kind, c, _ in after if kind == "execute_result"] == ["'over'"]

    asyncio.run(work())


def test_of_two_connections_of_a_session_the_newer_hears_all(daemon: Daemon, sandbox: Sandbox) -> None:
    """A front end that gave one up may leave it open."""
    sandbox.run_code("0")
    url = f"{daemon.url}/jupyter/{sandbox.id}/api/kernels/{kernel_of(daemon, sandbox, 'default')}/channels?session_id=twice&token={daemon.key}"

    async def work() -> None:
        async with aiohttp.ClientSession() as http, http.ws_connect(url, protocols=[V1]) as old:
            await v1_until(old, lambda kind, parent, content: kind == "status")
            async with http.ws_connect(url, protocols=[V1]) as new:
                for code in ("1", "2", "3"):
                    asked, raw = v1_message("execute_request", {"code": code}, "twice")
                    await new.send_bytes(raw)
                    said = await v1_until(new, lambda kind, parent, content, asked=asked: kind == "execute_reply" and parent["msg_id"] == asked)
                    assert [c["data"]["text/plain"] for kind, c, _ in said if kind == "execute_result"] == [code]
            assert (await old.receive(timeout=PATIENCE)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)

    asyncio.run(work())


def test_a_restart_that_was_asked_for_is_no_death(daemon: Daemon, sandbox: Sandbox) -> None:
    """Front ends tell people that a kernel died when they hear "restarting"."""
    sandbox.run_code("0")
    kid = kernel_of(daemon, sandbox, "default")
    url = f"{daemon.url}/jupyter/{sandbox.id}/api/kernels/{kid}/channels?session_id=b&token={daemon.key}"

    async def work() -> None:
        async with aiohttp.ClientSession() as http, http.ws_connect(url, protocols=[V1]) as socket:
            await v1_until(socket, lambda kind, parent, content: kind == "status")
            for end in ("asked for", "died"):
                if end == "asked for":
                    await asyncio.to_thread(rest, daemon, sandbox, "POST", f"/kernels/{kid}/restart")
                else:
                    await socket.send_bytes(v1_message("execute_request", {"code": "import os; os._exit(1)"}, "b")[1])
                asked, raw = v1_message("kernel_info_request", {}, "b")
                await socket.send_bytes(raw)
                said = await v1_until(socket, lambda kind, parent, content, asked=asked: kind == "kernel_info_reply" and parent["msg_id"] == asked)
                states = [content["execution_state"] for kind, content, _ in said if kind == "status"]
                told = [content for kind, content, _ in said if kind == "shutdown_reply"]
                assert ("restarting" in states, told) == ((False, [{"status": "ok", "restart": True}]) if end == "asked for" else (True, []))

    asyncio.run(work())


def test_buffers_go_both_ways(daemon: Daemon, sandbox: Sandbox) -> None:
    sandbox.run_code(
        "import comm\n"
        "def opened(c, message):\n    c.on_msg(lambda m: c.send({'n': len(m['buffers'])}, buffers=[bytes(reversed(b)) for b in m['buffers']]))\n"
        "comm.get_comm_manager().register_target('mirror', opened)")
    kid = kernel_of(daemon, sandbox, "default")
    url = f"{daemon.url}/jupyter/{sandbox.id}/api/kernels/{kid}/channels?session_id=b&token={daemon.key}"

    async def work() -> None:
        async with aiohttp.ClientSession() as http, http.ws_connect(url, protocols=[V1]) as socket:
            await socket.send_bytes(v1_message("comm_open", {"comm_id": "c1", "target_name": "mirror", "data": {}}, "b")[1])
            await socket.send_bytes(v1_message("comm_msg", {"comm_id": "c1", "data": {}}, "b", (b"abc", bytes(range(256))))[1])
            said = await v1_until(socket, lambda kind, parent, content: kind == "comm_msg")
            assert said[-1][1]["data"] == {"n": 2}
            assert said[-1][2] == [b"cba", bytes(reversed(range(256)))]

    asyncio.run(work())


# --- refusals -------------------------------------------------------------------------------------------------------------


def refused(call: Callable[[], Any]) -> tuple[int, dict[str, Any]]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        call()
    return caught.value.code, json.loads(caught.value.read())


def test_wrong_tokens_and_stale_kernels_are_told(daemon: Daemon, sandbox: Sandbox) -> None:
    sandbox.run_code("kept = 1")
    kid = kernel_of(daemon, sandbox, "default")
    for scheme in ("token", "Bearer"):
        assert len(rest(daemon, sandbox, "GET", "/kernels", scheme=scheme)) == 1
        status, body = refused(lambda: rest(daemon, sandbox, "GET", "/kernels", key="pds_" + "0" * 32, scheme=scheme))
        assert status == 401 and body["message"].startswith("unauthorized: ")
    reader = json.loads(urllib.request.urlopen(urllib.request.Request(
        f"{daemon.url}/v1/me/tokens", method="POST", data=b'{"label": "r", "scopes": ["read"]}', headers={"Authorization": f"Bearer {daemon.key}"}), timeout=30).read())["token"]
    assert rest(daemon, sandbox, "GET", "/kernels", key=reader)
    assert refused(lambda: rest(daemon, sandbox, "GET", f"/kernels/{kid}/channels", key=reader))[0] == 403
    assert refused(lambda: rest(daemon, sandbox, "POST", f"/kernels/{kid}/interrupt", key=reader))[0] == 403

    started = rest(daemon, sandbox, "POST", "/kernels", {"name": "python3"})
    assert rest(daemon, sandbox, "GET", f"/kernels/{started['id']}")["context"].startswith("jupyter-")
    rest(daemon, sandbox, "DELETE", f"/kernels/{started['id']}")
    status, body = refused(lambda: rest(daemon, sandbox, "GET", f"/kernels/{started['id']}/channels"))
    assert status == 404 and "has been closed" in body["hint"]
    rest(daemon, sandbox, "DELETE", f"/kernels/{kid}")  # it is the agent's, and stays
    assert refused(lambda: rest(daemon, sandbox, "POST", "/kernels", {"name": "julia"}))[0] == 400
    assert sandbox.run_code("kept").text == "1"

    session = rest(daemon, sandbox, "POST", "/sessions", {"path": "a.ipynb", "name": "a", "type": "notebook", "kernel": {"id": kid}})
    assert session["kernel"]["id"] == kid and session["path"] == "a.ipynb"
    rest(daemon, sandbox, "POST", f"/kernels/{kid}/restart")
    assert sandbox.run_code("kept").error_name == "NameError"


# --- VS Code --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def vscode(daemon: Daemon, sandbox: Sandbox) -> dict[str, dict[str, Any]]:
    """What VS Code's extension for notebooks comes to know, by the steps of vscode-client.mjs."""
    sandbox.run_code("prices = [3, 1, 4, 1, 5]\nclass Thing:\n    '''What a thing is.'''")
    runtimes = ROOT / "sdk" / "typescript" / "runtimes"
    done = subprocess.run(["node", runtimes / "vscode-client.mjs", f"{daemon.url}/jupyter/{sandbox.id}/?token={daemon.key}"],
                          cwd=runtimes, capture_output=True, text=True, timeout=2 * PATIENCE)
    steps = {step.pop("step"): step for step in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, f"after {list(steps)}:\n{done.stderr}"
    return steps


def test_vs_codes_client_works_in_the_agents_kernel(vscode: dict[str, dict[str, Any]], sandbox: Sandbox) -> None:
    assert vscode["entered"] == {"password": False}
    assert vscode["refused"]["status"] == 401 and "the token is an API key" in vscode["refused"]["message"]
    listed = vscode["listed"]
    assert [name for name, *_ in listed["running"]] == ["context-default"]
    assert listed["live"] == [["context-default", "default.ipynb", "notebook"]]
    assert listed["specs"] == {"python3": [f"Python 3 (sandbox {sandbox.id})", "python"],
                               "context-default": [f"Context default (sandbox {sandbox.id})", "python"]}

    attached = vscode["attached"]
    assert (attached["language"], attached["protocol"], attached["status"]) == ("python", "5.4", "idle")
    assert attached["version"][0]["text"].startswith("8.")
    drawn = vscode["drawn"]
    assert drawn["status"] == "ok" and drawn["count"] > 1
    assert [(kind, png) for kind, _, png in drawn["outputs"]] == [("display_data", "iVBORw0K"), ("execute_result", None)]
    assert drawn["outputs"][1][1] == "14"
    assert vscode["failed"]["ename"] == "ZeroDivisionError" and "1/0" in vscode["failed"]["traceback"]
    assert [o["text"] for o in vscode["asked"]["outputs"]] == ["who? false\n"]
    completed = vscode["completed"]
    assert any(m.endswith("append") for m in completed["matches"]) and completed["found"] and "What a thing is." in completed["about"]
    assert vscode["moved"]["state"] == 3 and vscode["moved"]["outputs"] == ["8"]
    assert vscode["interrupted"] == {"ename": "KeyboardInterrupt", "kept": ["'who? false'"]}
    assert vscode["restarted"] == {"same": True, "ename": "NameError", "died": False}

    assert vscode["begun"] == {"outputs": ["False"], "path": "renamed.ipynb", "sessions": 1}
    assert vscode["again"] == {"same": True} and vscode["reloaded"] == {"outputs": ["1"]}
    assert vscode["shut"] == {"live": ["context-default"]}
    assert sandbox.run_code("slider").error_name == "NameError"  # it was restarted, and is there


# --- JupyterLab -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def lab(daemon: Daemon, sandbox: Sandbox, tmp_path: Path) -> Any:
    """JupyterLab's server on a notebook of its own, with its kernels in the sandbox."""
    port, token = free_port(), uuid.uuid4().hex
    (tmp_path / "work").mkdir()
    log = open(tmp_path / "lab.log", "w+")  # noqa: SIM115  # for as long as it runs
    process = subprocess.Popen(
        [Path(sys.executable).parent / "jupyter-lab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0",
         f"--IdentityProvider.token={token}", f"--gateway-url={daemon.url}/jupyter/{sandbox.id}", f"--GatewayClient.auth_token={daemon.key}",
         f"--ServerApp.root_dir={tmp_path / 'work'}"],
        env={**os.environ, "HOME": str(tmp_path), "JUPYTER_PREFER_ENV_PATH": "0"}, stdout=log, stderr=log, start_new_session=True)

    def answers() -> bool:
        assert process.poll() is None, (tmp_path / "lab.log").read_text()
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={token}", timeout=5).status == 200
        except OSError:
            return False

    try:
        eventually("JupyterLab does not answer", answers)
        yield tmp_path / "work", f"http://127.0.0.1:{port}", token
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)
        log.close()


def test_jupyterlab_plots_what_the_agent_computed_and_moves_a_slider(daemon: Daemon, sandbox: Sandbox, lab: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect, sync_playwright

    sandbox.run_code("import numpy as np\nwave = np.sin(np.linspace(0, 20, 400))")
    work, url, token = lab
    (work / "wave.ipynb").write_text(json.dumps({
        "nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": {"name": "context-default", "display_name": "Context default", "language": "python"}},
        "cells": [{"cell_type": "code", "id": f"cell-{i}", "metadata": {}, "outputs": [], "execution_count": None, "source": source} for i, source in enumerate([
            "import matplotlib.pyplot as plt\nplt.figure(figsize=(6, 3)); plt.plot(wave, color='crimson'); plt.title(f'{len(wave)} points of the agent')\nplt.show()",
            "import ipywidgets\nslider = ipywidgets.IntSlider(value=3)\nslider"])],
    }))
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.goto(f"{url}/lab/tree/wave.ipynb?token={token}")
        cell = page.locator(".jp-Notebook .jp-CodeCell").first
        cell.click(timeout=90_000)
        expect(page.locator(".jp-Notebook-ExecutionIndicator").first).to_have_attribute("data-status", "idle", timeout=60_000)
        page.keyboard.press("Shift+Enter")
        picture = cell.locator(".jp-OutputArea-output img")
        expect(picture).to_be_visible(timeout=60_000)
        size = picture.evaluate("async img => { await img.decode(); return [img.naturalWidth, img.naturalHeight] }")
        assert size[0] > 300 and size[1] > 150, size
        page.keyboard.press("Shift+Enter")
        handle = page.locator(".jp-OutputArea-output .widget-slider [role=slider]")
        expect(handle).to_be_visible(timeout=60_000)
        page.screenshot(path=os.environ.get("PANDASTACK_TEST_SCREENSHOT", str(tmp_path / "lab.png")))
        handle.press("ArrowRight")
        eventually("the slider was not moved", lambda: sandbox.run_code("slider.value").text == "4")
        browser.close()
    # The kernel lives when JupyterLab has gone, and has seen its cell.
    assert sandbox.run_code("plt.__name__").text == "'matplotlib.pyplot'"
