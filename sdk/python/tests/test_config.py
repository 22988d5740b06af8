"""Where the server and the key are looked for."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Dict, List

import pytest

from pandastack._config import find_endpoint


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"api_url": "http://file:1", "token": "from_file"}))
    return path


def find(config: Path, url: "str | None" = None, key: "str | None" = None, **env: str) -> "tuple[str, str | None]":
    found = find_endpoint(url, key, environ=env, config_file=config)
    return found.url, found.api_key


def test_argument_before_environment_before_file_before_default(config: Path, tmp_path: Path) -> None:
    env: Dict[str, str] = {"PANDASTACK_API_URL": "http://env:2", "PANDASTACK_API_KEY": "from_env"}
    assert find(config, "http://arg:3", "from_arg", **env) == ("http://arg:3/v1", "from_arg")
    assert find(config, **env) == ("http://env:2/v1", "from_env")
    assert find(config, PANDASTACK_API="http://published:4", **env) == ("http://published:4/v1", "from_env")
    assert find(config) == ("http://file:1/v1", "from_file")
    assert find(tmp_path / "absent") == ("http://127.0.0.1:8080/v1", None)


@pytest.mark.parametrize("name", ["token", "apiKey", "api_key"])
def test_each_name_of_the_key_in_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({name: "k"}))
    assert find(path) == ("http://127.0.0.1:8080/v1", "k")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"token": 3}', "\x00\xff"])
def test_a_file_that_is_none_is_passed_over(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(content.encode("latin-1"))
    assert find(path) == ("http://127.0.0.1:8080/v1", None)


@pytest.mark.parametrize(
    "given, url",
    [
        ("http://h:9/", "http://h:9/v1"),
        ("http://h:9/v1", "http://h:9/v1"),
        ("http://h:9/v1/", "http://h:9/v1"),
        ("https://h/behind/proxy//", "https://h:443/behind/proxy/v1"),
        ("http://[::1]:9", "http://[::1]:9/v1"),
    ],
)
def test_slashes_and_v1(config: Path, given: str, url: str) -> None:
    assert find(config, given)[0] == url


@pytest.mark.parametrize("given", ["h:9", "ftp://h", "http://", "http://h:99999", "http://u:p@h", "http://h?x=1"])
def test_a_url_that_is_none(config: Path, given: str) -> None:
    with pytest.raises(ValueError, match="api_url"):
        find(config, given)


def test_a_key_that_would_break_the_header(config: Path) -> None:
    with pytest.raises(ValueError, match="api_key"):
        find(config, key="a\r\nb")


def test_the_file_is_in_the_configuration_folder(tmp_path: Path) -> None:
    folder = tmp_path / "xdg" / "pandastack"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"api_key": "x"}')
    assert find_endpoint(environ={"XDG_CONFIG_HOME": str(tmp_path / "xdg")}).api_key == "x"
    home = tmp_path / "home" / ".config" / "pandastack"
    home.mkdir(parents=True)
    (home / "config.json").write_text('{"api_key": "y"}')
    assert find_endpoint(environ={"HOME": str(tmp_path / "home")}).api_key == "y"


def test_the_file_of_the_machine_is_for_who_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "client.json"
    monkeypatch.setattr("pandastack._config.SYSTEM_CONFIG", system)
    env = {"HOME": str(tmp_path / "home")}
    assert find_endpoint(environ=env).api_key is None
    system.write_text('{"api_key": "s", "api_url": "http://s:1"}')
    assert (find_endpoint(environ=env).api_key, find_endpoint(environ=env).host) == ("s", "s")
    own = tmp_path / "home" / ".config" / "pandastack"
    own.mkdir(parents=True)
    (own / "config.json").write_text("{}")
    assert find_endpoint(environ=env).api_key is None


def test_event_loops_of_several_threads_have_their_clients() -> None:
    from pandastack._async.transport import shared

    failed: List[BaseException] = []

    async def look() -> bool:
        return shared("here", object) is shared("here", object)

    def work() -> None:
        try:
            for _ in range(200):  # each in a loop of its own, which ends
                assert asyncio.run(look())
        except BaseException as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failed == []


def test_a_server_may_take_its_time_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from pandastack._request import Request
    from pandastack._sync import transport

    monkeypatch.setattr(transport, "CONNECT_SECONDS", 0.5)
    size = 32 << 20  # more than sockets hold

    def serve() -> None:
        line, _ = listener.accept()
        with line, line.makefile("rb") as said:
            while said.readline() != b"\r\n":
                pass
            time.sleep(1.5)  # longer than a connection may take
            got = len(said.read(size))
            line.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n{"bytes": %d}' % (11 + len(str(got)), got))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        to = transport.Transport(find_endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}", "pds_x"))
        answer = to.send(Request("PUT", "/x", body=bytes(size)))
        to.close()
    assert answer.object() == {"bytes": size}
