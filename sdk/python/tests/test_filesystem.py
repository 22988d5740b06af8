"""Files of a sandbox, as bytes and as streams."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest
from fake_server import KEY, FakeServer, answer
from surfaces import Surface

import pandastack
from pandastack import APIConnectionError, CapacityError, FileEvent, NotFoundError


@pytest.fixture
def fs(surface: Surface) -> Any:
    return surface.sandbox().filesystem


def test_every_byte_comes_back(fs: Any) -> None:
    data = bytes(range(256)) * 5000
    assert fs.write("/workspace/b", data).bytes == len(data)
    assert fs.read("/workspace/b") == data
    fs.write("/workspace/empty", b"")
    assert fs.read("/workspace/empty") == b""


def test_text_is_utf_8_and_its_line_ends_stay(fs: Any, surface: Surface) -> None:
    fs.write("/workspace/t", "ä\r\n🎉\n")
    assert surface.server.files["/workspace/t"] == "ä\r\n🎉\n".encode()
    assert fs.read_text("/workspace/t") == "ä\r\n🎉\n"
    fs.write("/workspace/l", "ä".encode("latin-1"))
    assert fs.read_text("/workspace/l", encoding="latin-1") == "ä"
    with pytest.raises(UnicodeDecodeError):
        fs.read_text("/workspace/l")


def test_names_are_any(fs: Any, surface: Surface) -> None:
    path = "/workspace/数据 und Ü&?=#%25+.csv"
    fs.write(path, "x")
    assert list(surface.server.files) == [path]
    assert fs.exists(path)


def test_open_files_are_streamed(fs: Any, surface: Surface, tmp_path: Path) -> None:
    local = tmp_path / "f"
    local.write_bytes(os.urandom(700_000))
    with open(local, "rb") as file:
        file.seek(100)
        fs.write("/binary", file)
    assert surface.server.files["/binary"] == local.read_bytes()[100:]
    assert surface.server.calls[-1].headers["content-length"] == str(700_000 - 100)
    fs.write("/text", io.StringIO("ü" * 300_000))
    assert surface.server.files["/text"].decode() == "ü" * 300_000
    assert surface.server.calls[-1].headers["transfer-encoding"] == "chunked"


def test_upload_and_download(fs: Any, tmp_path: Path) -> None:
    local, back = tmp_path / "f", tmp_path / "g"
    local.write_bytes(os.urandom(3_000_000))
    assert fs.upload(local, "/workspace/f").bytes == 3_000_000
    assert fs.download("/workspace/f", str(back)) == 3_000_000
    assert back.read_bytes() == local.read_bytes()
    with pytest.raises(OSError):
        fs.upload(tmp_path / "absent", "/x")


def test_a_download_that_fails_leaves_nothing_and_keeps_what_was_there(fs: Any, surface: Surface, tmp_path: Path) -> None:
    target = tmp_path / "kept"
    target.write_text("old")
    with pytest.raises(NotFoundError):
        fs.download("/absent", target)
    assert [p.name for p in tmp_path.iterdir() if p.name != "home"] == ["kept"] and target.read_text() == "old"


def test_a_full_disk(fs: Any, surface: Surface) -> None:
    surface.server.on("PUT", ".*/fs", answer(507, {"error": "no space left", "code": "no_space"}))
    with pytest.raises(CapacityError) as caught:
        fs.write("/x", "y")
    assert caught.value.status_code == 507


def test_listings_and_walks(fs: Any, surface: Surface) -> None:
    folders = {
        "/w": [{"name": "a", "is_dir": True, "mode": "d"}, {"name": "l", "is_dir": True, "mode": "l", "target": "a"}],
        "/w/a": [{"name": "f", "size": 3, "mode": "f", "permissions": "0640", "mtime": 1772359200, "modified_at": "2026-03-01T10:00:00.5Z"}],
    }
    surface.server.on(
        "GET", ".*/fs/dir", lambda c, *_: answer(200, {"path": c.query["path"], "entries": folders[c.query["path"]]})
    )
    (entry,) = fs.list("/w/a")
    assert (entry.path, entry.size, entry.permissions, entry.is_dir) == ("/w/a/f", 3, "0640", False)
    assert entry.mtime.microsecond == 500_000
    assert [e.path for e in fs.walk("/w")] == ["/w/a", "/w/a/f", "/w/l"]


def test_a_folder_of_any_size_is_listed_page_by_page(fs: Any, surface: Surface) -> None:
    names = [f"f{i:03}" for i in range(25)]

    def page(call: Any, *_: Any) -> Any:
        left = [n for n in names if n > call.query.get("after", "")]
        return answer(200, {"path": "/d", "entries": [{"name": n} for n in left[:10]], "truncated": len(left) > 10})

    surface.server.on("GET", ".*/fs/dir", page)
    assert [e.name for e in fs.list("/d")] == names
    assert len(surface.server.sent("GET", "/fs/dir")) == 3


def test_names_that_are_not_utf_8_are_as_python_has_them(fs: Any, surface: Surface) -> None:
    entry = {"name": "caf\ufffd", "raw_name": "Y2Fm6Q==", "path": "/d/caf\ufffd", "mode": "f"}
    surface.server.on("GET", ".*/fs/dir", answer(200, {"path": "/d", "entries": [entry]}))
    surface.server.on("GET", ".*/fs", lambda c, *_: (200, {}, c.target.encode()))
    (found,) = fs.list("/d")
    assert os.fsencode(found.path) == b"/d/caf\xe9"
    assert b"path=/d/caf%E9" in fs.read(found.path)
    with pytest.raises(ValueError, match="source must be UTF-8"):
        fs.move(found.path, "/d/cafe")


def test_permissions_and_appends(fs: Any, surface: Surface) -> None:
    fs.write("/a", "x", mode=0o755)
    assert surface.server.calls[-1].query == {"path": "/a", "mode": "0755"}
    surface.server.on("POST", ".*/fs", answer(200, {"path": "/a", "bytes": 1}))
    fs.write("/a", "x", mode="0600", append=True)
    appended = surface.server.calls[-1]
    assert (appended.method, appended.query) == ("POST", {"path": "/a", "mode": "0600"})
    for bad, error in ((0o10000, ValueError), ("rw", ValueError), (-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="mode"):
            fs.write("/a", "x", mode=bad)
    more = {"symbolic": "-rw-r-----", "owner": "ann", "group": "staff", "permissions": "0640", "mode": "f", "name": "a"}
    surface.server.on("GET", ".*/fs/stat", answer(200, more))
    info = fs.stat("/a")
    assert (info.symbolic, info.owner, info.group, info.path) == ("-rw-r-----", "ann", "staff", "/a")


def test_an_append_is_not_sent_twice(fs: Any, surface: Surface) -> None:
    fs.write("/a", "x")
    surface.server.on("POST", ".*/fs", lambda *_: None)  # done, and the connection breaks
    surface.server.calls.clear()
    with pytest.raises(APIConnectionError):
        fs.write("/a", "x", append=True)
    assert len(surface.server.calls) == 1


def test_changes(fs: Any, surface: Surface) -> None:
    for method, route in (("POST", "/fs/dir"), ("POST", "/fs/move"), ("DELETE", "/fs")):
        surface.server.on(method, f".*{route}", answer(204))
    fs.mkdir("/a/b")
    fs.move("/a", "/c", overwrite=True)
    fs.remove("/c", recursive=True)
    made, moved, removed = surface.server.calls[-3:]
    assert made.json == {"path": "/a/b"}
    assert moved.json == {"from": "/a", "to": "/c", "overwrite": True}
    assert removed.query == {"path": "/c", "recursive": "1"}


def test_exists_is_false_for_a_file_and_raises_for_a_sandbox_that_is_gone(fs: Any, surface: Surface) -> None:
    assert fs.exists("/absent") is False
    assert fs.stat
    surface.server.on("GET", "/v1/sandboxes/sb_1", answer(404, {"error": "no sandbox sb_1", "code": "not_found"}))
    with pytest.raises(NotFoundError):
        fs.exists("/absent")


@pytest.mark.parametrize("path, error", [("", ValueError), (None, TypeError), (b"/x", TypeError)])
def test_paths_that_are_none(fs: Any, path: Any, error: Any) -> None:
    with pytest.raises(error, match="path"):
        fs.read(path)


def test_data_that_is_none(fs: Any) -> None:
    with pytest.raises(TypeError, match="data"):
        fs.write("/x", {"a": 1})


def watch_route(surface: Surface, events: List[Dict[str, Any]]) -> None:
    """A watch that is in the sandbox, whoever is connected."""
    numbered = [{**e, "seq": i} for i, e in enumerate(events, 1)]

    def stream(call: Any, *_: Any) -> Any:
        after = int(call.headers.get("last-event-id", "0"))
        return [e for e in numbered if e["seq"] > after]

    surface.server.on("GET", ".*/fs/watch", stream)


CHANGES = [
    {"type": "started", "watch_id": "w"},
    {"type": "create", "path": "/w/a", "is_dir": True},
    {"type": "rename", "path": "/w/\ufffd", "raw_path": "L3cv/w==", "from": "/w/b"},
    {"type": "overflow", "reason": "slow", "dropped": 7},
    {"type": "ended", "reason": "removed"},
]
TOLD = [
    FileEvent("create", "/w/a", is_dir=True),
    FileEvent("rename", "/w/\udcff", from_path="/w/b"),
    FileEvent("overflow", reason="slow", dropped=7),
    FileEvent("ended", reason="removed"),
]


@pytest.mark.parametrize("cut", [None, 1, 2, 4])
def test_a_watch_goes_on_over_a_broken_connection(fs: Any, surface: Surface, cut: Any) -> None:
    watch_route(surface, CHANGES)
    surface.server.cut_after[:] = [cut, None]
    with fs.watch("/w", recursive=True) as watch:
        assert list(watch) == TOLD
    calls = surface.server.sent("GET", "/fs/watch")
    assert len({c.query["watch_id"] for c in calls}) == 1 and len(calls) == (1 if cut is None else 2)
    assert all((c.query["path"], c.query["recursive"]) == ("/w", "1") for c in calls)


def test_a_watch_begins_when_it_is_made(fs: Any, surface: Surface) -> None:
    surface.server.on("GET", ".*/fs/watch", answer(404, {"error": "there is no /w", "code": "not_found", "field": "path"}))
    with pytest.raises(NotFoundError, match="no /w"):
        fs.watch("/w")
    with pytest.raises(TypeError, match="on_event"):
        fs.watch("/w", on_event=3)


def test_a_watch_with_a_callback(fs: Any, surface: Surface) -> None:
    watch_route(surface, CHANGES)
    seen: List[FileEvent] = []
    watch = fs.watch("/w", on_event=seen.append)
    watch.wait()
    assert seen == TOLD
    watch.close()

    def fails(event: FileEvent) -> None:
        seen.append(event)
        raise ZeroDivisionError

    seen.clear()
    watch = fs.watch("/w", on_event=fails)
    with pytest.raises(ZeroDivisionError):
        watch.wait()
    with pytest.raises(ZeroDivisionError):
        watch.close()
    assert seen == TOLD[:1]


def test_a_watch_is_closed_under_its_reader(fake: FakeServer) -> None:
    """Nothing comes, and nothing will: only closing ends it."""
    silent = threading.Event()

    def stream(call: Any, *_: Any) -> Any:
        def events() -> Any:
            yield {"type": "started", "seq": 1}
            silent.wait(60)

        return events()

    fake.on("GET", ".*/fs/watch", stream)
    files = pandastack.Client(fake.url, KEY).sandboxes.create("t").filesystem
    watch = files.watch("/w", on_event=lambda _: None)
    watch.close()  # else the test runs into its deadline
    watch = files.watch("/w")
    ended = threading.Thread(target=lambda: list(watch))
    ended.start()
    watch.close()
    ended.join(30)
    assert not ended.is_alive()

    async def beside() -> None:
        async with pandastack.AsyncClient(fake.url, KEY) as client:
            files = (await client.sandboxes.create("t")).filesystem
            watch = await files.watch("/w", on_event=lambda _: None)
            await asyncio.wait_for(watch.close(), 30)

    asyncio.run(beside())
    silent.set()


def test_links(fs: Any, surface: Surface) -> None:
    surface.server.on("POST", ".*/fs/link", answer(200, {"url": "http://x/v1/f/t", "max_bytes": 5}))
    assert fs.download_url("/a", 5) == fs.upload_url("/b", max_bytes=5) == "http://x/v1/f/t"
    assert [c.json for c in surface.server.sent("POST", "/fs/link")] == [
        {"path": "/a", "method": "GET", "ttl_seconds": 5},
        {"path": "/b", "method": "PUT", "ttl_seconds": 3600, "max_bytes": 5},
    ]
    for bad in (lambda: fs.download_url(3), lambda: fs.upload_url("/a", max_bytes="1"), lambda: fs.download_url("/a", 0)):
        with pytest.raises((TypeError, ValueError)):
            bad()
