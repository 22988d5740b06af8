"""Changes of files as they happen, on the real thing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from itertools import islice

import pytest
from daemon import BIN, Daemon
from pandastack import AsyncClient, BadRequestError, FileEvent, NotFoundError, RateLimitError, Sandbox


def make(d: Daemon) -> Sandbox:
    return Sandbox.create(template="code-interpreter", ttl_seconds=900, api_url=d.url, api_key=d.key)


@pytest.fixture(scope="module")
def sb(daemon: Daemon) -> Iterator[Sandbox]:
    made = make(daemon)
    yield made
    made.kill()


def told(watch: Iterator[FileEvent], last: str) -> list[str]:
    """What is told up to a change of that name, one on a line."""
    lines = []
    for e in watch:
        line = " ".join(filter(None, (e.type, e.path + "/" * e.is_dir, e.from_path and f"from {e.from_path}", e.reason)))
        if e.path.endswith(last):
            return lines
        lines.append(line)
    return lines


def test_what_programs_do(sb: Sandbox) -> None:
    sb.exec("rm -rf /w && mkdir /w")
    with sb.filesystem.watch("/w", recursive=True) as watch:
        sb.exec("""
            cd /w
            echo a > a
            chmod 600 a
            mv a b
            mkdir -p d/e/f
            mv d x
            echo new > x/e/f/new
            rm -r x
            ln -s /etc outside
            touch /etc/touched
            mv b /tmp/b
            mv /tmp/b c
            echo > end
        """, check=True)
        lines = told(watch, "/end")
    below = [line for line in lines if "/w/d" in line and line.startswith("create")]
    assert below[:3] == ["create /w/d/", "create /w/d/e/", "create /w/d/e/f/"] or len(below) < 3, lines
    wanted = [
        "create /w/a", "write /w/a", "close /w/a", "chmod /w/a", "rename /w/b from /w/a", "create /w/d/", "rename /w/x/ from /w/d",
        "create /w/x/e/f/new", "close /w/x/e/f/new", "remove /w/x/e/f/new", "remove /w/x/e/f/", "remove /w/x/e/", "remove /w/x/",
        "create /w/outside", "remove /w/b", "create /w/c",
    ]
    rest = iter(lines)
    assert all(line in rest for line in wanted), lines  # in this order
    assert not any("touched" in line for line in lines), "a link is not followed"


def test_what_the_files_api_does(sb: Sandbox) -> None:
    fs = sb.filesystem
    sb.exec("rm -rf /w && mkdir /w")
    with fs.watch("/w", recursive=True) as watch:
        fs.write("/w/a", "1")
        fs.write("/w/a", "2")
        fs.mkdir("/w/d")
        fs.move("/w/a", "/w/d/b")
        fs.remove("/w/d", recursive=True)
        fs.write("/w/end", "")
        lines = told(watch, "/end")
    assert lines == [
        "create /w/a", "close /w/a", "write /w/a", "close /w/a", "create /w/d/", "rename /w/d/b from /w/a", "remove /w/d/b", "remove /w/d/",
    ]


def test_nothing_is_missed_in_folders_that_come_fast(sb: Sandbox) -> None:
    sb.exec("rm -rf /w && mkdir /w")
    with sb.filesystem.watch("/w", recursive=True) as watch:
        sb.exec("cd /w; for i in $(seq 200); do mkdir -p d$i/e; echo > d$i/e/f; done; echo > end", check=True, timeout_seconds=120)
        lines = told(watch, "/end")
    created = sorted(line for line in lines if line.startswith("create"))
    assert created == sorted(f"create /w/d{i}{rest}" for i in range(1, 201) for rest in ("/", "/e/", "/e/f")), "each once"


def test_a_file_and_what_takes_its_place(sb: Sandbox) -> None:
    sb.exec("rm -rf /w && mkdir /w && echo > /w/conf")
    with sb.filesystem.watch("/w/conf") as watch:
        sb.exec("cd /w; echo > other; echo 1 > conf; mv other conf; rm conf; echo > conf; rm -r /w", check=True)
        types = [e.type for e in watch]
    assert [t for t in types if t in ("create", "remove", "ended")] == ["create", "remove", "create", "remove", "ended"]


def test_what_cannot_be_watched(sb: Sandbox) -> None:
    for path, error in (("/none", NotFoundError), ("/proc/self", BadRequestError), ("/sys", BadRequestError), ("relative", BadRequestError)):
        with pytest.raises(error) as caught:
            sb.filesystem.watch(path)
        assert caught.value.field == "path"


@pytest.mark.slow
def test_ten_thousand_folders_and_no_more(sb: Sandbox) -> None:
    sb.exec("rm -rf /many && mkdir /many && cd /many && seq 10000 | xargs mkdir", check=True, timeout_seconds=120)
    with pytest.raises(BadRequestError, match="10000 folders"):
        sb.filesystem.watch("/many", recursive=True)
    sb.exec("rmdir /many/1", check=True)
    with sb.filesystem.watch("/many", recursive=True) as watch:
        sb.exec("mkdir /many/a; echo > /many/a/f; echo > /many/2/f; rmdir /many/3; mkdir /many/b; echo > /many/b/f; echo > /many/end", check=True)
        lines = told(watch, "/end")
    assert "overflow /many/a/ folders" in lines and "create /many/2/f" in lines and "create /many/b/f" in lines, lines
    assert "create /many/a/f" not in lines
    sb.exec("rm -rf /many", timeout_seconds=120)


def test_so_many_watches_and_no_more(sb: Sandbox) -> None:
    """Those that are open count; the ones of the tests before this, which could still be come back to, make room."""
    sb.exec("mkdir -p /w")
    watches = [sb.filesystem.watch("/w") for _ in range(32)]
    with pytest.raises(RateLimitError, match="32 watches"):
        sb.filesystem.watch("/w")
    watches.pop().close()
    deadline = time.monotonic() + 30
    while len(watches) < 32:
        try:
            watches.append(sb.filesystem.watch("/w"))
        except RateLimitError:  # the agent has not heard of the end yet
            assert time.monotonic() < deadline
    for watch in watches:
        watch.close()


class Raw:
    """A watch over HTTP alone."""

    def __init__(self, d: Daemon, sb: Sandbox, **query: str) -> None:
        request = urllib.request.Request(
            f"{d.url}/v1/sandboxes/{sb.id}/fs/watch?{urllib.parse.urlencode(query)}", headers={"Authorization": f"Bearer {d.key}"})
        self.answer = urllib.request.urlopen(request, timeout=60)

    def __iter__(self) -> Iterator[dict[str, object]]:
        for line in self.answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def test_a_slow_reader_misses_and_is_told(daemon: Daemon) -> None:
    """Nobody reads while 6,000 files come and go. The agent keeps 4,096 events."""
    sb = make(daemon)
    sb.exec("mkdir /w")
    first = next(iter(Raw(daemon, sb, path="/w", watch_id="mine")))  # and the connection is left
    sb.exec("cd /w; for i in $(seq 6000); do : > f$i; done", check=True, timeout_seconds=300)
    events = list(islice(Raw(daemon, sb, path="/w", watch_id="mine", after=str(first["seq"])), 4097))
    assert (events[0]["type"], events[0]["reason"]) == ("overflow", "slow") and events[0]["dropped"] == events[0]["seq"] - first["seq"]
    assert [e["seq"] for e in events] == list(range(events[0]["seq"], events[0]["seq"] + 4097)), "no gap after that"
    assert events[-1]["path"] == "/w/f6000"
    sb.kill()


def test_over_a_restart_of_the_daemon(own_daemon: Daemon) -> None:
    sb = make(own_daemon)
    sb.exec("mkdir /w")
    with sb.filesystem.watch("/w") as watch:
        sb.exec("(for i in $(seq 40); do echo > /w/f$i; sleep 0.1; done; echo > /w/end) > /dev/null 2>&1 &")
        assert next(watch).type == "create"
        own_daemon.kill9()
        own_daemon.start()
        lines = told(watch, "/end")
    assert [line for line in lines if line.startswith("create")] == [f"create /w/f{i}" for i in range(2, 41)]
    assert not any("overflow" in line for line in lines)


def test_snapshots_go_unnoticed_and_sleep_is_told(daemon: Daemon) -> None:
    sb = make(daemon)
    sb.exec("mkdir /w")
    watch = sb.filesystem.watch("/w")
    sb.exec("echo > /w/before")
    copy = sb.fork()
    copy.exec("echo > /w/of-the-copy")
    sb.exec("echo > /w/after")
    sb.pause()
    sb.resume()
    sb.exec("echo > /w/end")
    lines = told(watch, "/end")
    assert [line for line in lines if line.startswith("create")] == ["create /w/before", "create /w/after"]
    copy.kill()
    sb.hibernate()
    *_, last = watch
    assert (last.type, last.reason) == ("ended", "hibernated")
    assert Sandbox.get(sb.id, api_url=daemon.url, api_key=daemon.key).status == "hibernated", "a watch wakes nobody"
    with sb.filesystem.watch("/w") as again:  # a new one does
        sb.exec("rm /w/end")
        assert next(again) == FileEvent("remove", "/w/end")
    with sb.filesystem.watch("/w") as watch:
        sb.kill()
        assert [(e.type, e.reason) for e in watch] == [("ended", "sandbox_ended")]


def test_an_open_watch_is_use(own_daemon: Daemon) -> None:
    """A sandbox with an idle timeout does not sleep under a watch, and does after it."""
    sb = Sandbox.create(template="code-interpreter", idle_timeout_seconds=2, api_url=own_daemon.url, api_key=own_daemon.key)
    sb.exec("mkdir /w")
    watch = sb.filesystem.watch("/w")
    status = lambda: Sandbox.get(sb.id, api_url=own_daemon.url, api_key=own_daemon.key).status  # noqa: E731
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        assert status() == "running"
        time.sleep(0.5)
    watch.close()
    deadline = time.monotonic() + 60
    while status() != "hibernated":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    sb.kill()


def test_callbacks_and_the_asynchronous_client(daemon: Daemon, sb: Sandbox) -> None:
    sb.exec("rm -rf /w && mkdir /w")
    seen: list[FileEvent] = []
    came = threading.Event()

    def hear(event: FileEvent) -> None:
        seen.append(event)
        if event.type == "close":
            came.set()

    with sb.filesystem.watch("/w", on_event=hear):
        sb.filesystem.write("/w/a", "x")
        assert came.wait(60)
    sb.filesystem.write("/w/b", "x")
    assert [e.path for e in seen] == ["/w/a", "/w/a"]

    async def beside() -> list[FileEvent]:
        async with AsyncClient(daemon.url, daemon.key) as client:
            files = (await client.sandboxes.get(sb.id)).filesystem
            got = []
            async with await files.watch("/w") as watch:
                await files.write("/w/c", "x")
                async for event in watch:
                    got.append(event)
                    if event.type == "close":
                        return got
        return got

    assert asyncio.run(beside()) == [FileEvent("create", "/w/c"), FileEvent("close", "/w/c")]


def test_the_command_line(daemon: Daemon, sb: Sandbox) -> None:
    sb.exec("rm -rf /w && mkdir /w")
    for flags, want in (([], ["create    /w/d/", "ended     removed"]), (["--json"], ["started", "create", "ended"])):
        p = subprocess.Popen([BIN, *flags, "sandbox", "watch", sb.id, "/w", "-r"], env=daemon.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert p.stdout and p.stderr
        first = p.stdout.readline() if flags else p.stderr.readline()
        assert "/w" in first or json.loads(first)["type"] == "started"
        sb.exec("mkdir /w/d; rmdir /w/d; rm -r /w")
        lines = ([first] if flags else []) + p.stdout.readlines()
        said = [json.loads(line)["type"] if flags else line.strip() for line in lines]
        assert [line for line in said if line in want] == want and p.wait(60) == 0
        sb.exec("mkdir /w")
