"""A web page with the TypeScript SDK, in Chromium itself: its functions as tools, terminals, ports, and who is refused."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon
from sdks import Browser, Page
from test_agent import code, done, scripted

import pandastack

WRONG = "pds_ffeeddccbbaa99887766554433221100"
REVERSE = """
import socket
with socket.create_server(("127.0.0.1", 7777)) as server:
    while True:
        with server.accept()[0] as connection:
            told = b""
            while piece := connection.recv(65536): told += piece
            connection.sendall(told[::-1])
"""


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Daemon, Page]]:
    page = Page()
    daemon = Daemon(pool_ready=1, pool_prepared=1, allowed_origins=page.origin).start()
    yield daemon, page
    status, log = daemon.stop(), daemon.log.read_text()
    daemon.remove()
    page.close()
    assert status == 0, log[-3000:]
    secrets = {daemon.key, WRONG}
    assert not [line for line in log.splitlines() if any(secret[12:] in line for secret in secrets)], "a key is in the log"


@pytest.fixture(scope="module")
def browser(world: tuple[Daemon, Page]) -> Iterator[Browser]:
    daemon, page = world
    with Browser(page, daemon.env, "pages.mjs") as browser:
        yield browser


def value(browser: Browser, op: str, **args: object) -> object:
    outcome = browser.do(op, args)
    assert "value" in outcome, outcome
    return outcome["value"]


@pytest.fixture(scope="module")
def sandbox(world: tuple[Daemon, Page], browser: Browser) -> Iterator[pandastack.Sandbox]:
    """The page's."""
    daemon, _ = world
    made = value(browser, "create")
    assert isinstance(made, dict)
    with pandastack.Sandbox.get(made["id"], api_url=daemon.url, api_key=daemon.key) as sandbox:
        yield sandbox


def test_functions_of_a_page_are_tools(world: tuple[Daemon, Page], browser: Browser, sandbox: pandastack.Sandbox) -> None:
    """Python in the sandbox calls them, also after the daemon was killed and came back."""
    daemon, _ = world
    call = "from tools import pay\nprint(pay(cents=%d))"
    assert value(browser, "cell", code=call % 5) == {"stdout": "paid 5 at /test/conformance/page.html\n", "paid": [5]}
    daemon.kill9()
    daemon.start()
    end = time.monotonic() + 60
    while value(browser, "connected") is not True:
        assert time.monotonic() < end, "the page did not come back"
    assert value(browser, "cell", code=call % 6) == {"stdout": "paid 6 at /test/conformance/page.html\n", "paid": [5, 6]}


def test_functions_of_a_page_are_tools_of_an_agent(browser: Browser, tmp_path: Path) -> None:
    with scripted(tmp_path, [code("from tools import pay\nprint(pay(cents=7))"), done(r"paid 7 at /test")]) as model:
        answer = value(browser, "agent", model=model)
    assert isinstance(answer, dict)
    assert answer["answer"] == "done" and answer["paid"][-1] == 7


def test_terminals_in_a_page(browser: Browser, sandbox: pandastack.Sandbox) -> None:
    seen = value(browser, "terminal")
    assert isinstance(seen, dict)
    assert seen["exitCode"] == 3 and "hello you\r\n31 98\r\n" in seen["seen"]
    said = value(browser, "shell")
    assert isinstance(said, dict)
    assert "hello you\r\n" in said.pop("seen")
    assert said == {"protocol": "pandastack.v1", "exit": 4, "code": 1000}


def test_ports_from_a_page(browser: Browser, sandbox: pandastack.Sandbox) -> None:
    sandbox.commands.run(["python3", "-c", REVERSE], background=True)
    end = time.monotonic() + 60
    while 7777 not in sandbox.ports():
        assert time.monotonic() < end
    text = "0123456789" * 100_000  # more than the browser sends at once
    assert value(browser, "told", port=7777, text=text) == text[::-1]


def test_who_has_no_right_key_hears_why(world: tuple[Daemon, Page], browser: Browser, sandbox: pandastack.Sandbox) -> None:
    daemon, _ = world
    reader = pandastack.Client(daemon.url, daemon.key).tokens.create("looks", scopes=["read"]).token
    for key, status, kind in ((WRONG, 401, "auth"), (reader, 403, "auth"), (None, 502, "server")):
        error = browser.do("dial", {"id": sandbox.id, "port": 9, "key": key})["error"]
        assert (error["status_code"], error["kind"]) == (status, kind), error
    said = value(browser, "shell", key=WRONG)
    assert said == {"seen": "", "protocol": None, "exit": None, "code": 1006}


def test_pages_of_other_origins_are_refused(world: tuple[Daemon, Page], sandbox: pandastack.Sandbox) -> None:
    """With the right key, and though a handshake is no request that a browser asks leave for."""
    daemon, _ = world
    before = len(daemon.log.read_text())
    foreign = Page()
    try:
        with Browser(foreign, daemon.env, "pages.mjs") as other:
            assert other.do("shell", {"id": sandbox.id})["value"]["code"] == 1006
            assert other.do("dial", {"id": sandbox.id, "port": 7777})["error"]["kind"] == "connection"
    finally:
        foreign.close()
    lines = daemon.log.read_text()[before:].splitlines()
    shells = [line for line in lines if "/exec/pty" in line]
    assert len(shells) == 1 and re.search(r"status=403|\"status\":403", shells[0]), shells
