"""Snapshots that travel: out of one daemon, into another, and what is refused on the way."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import pandastack
from daemon import BIN, Daemon
from pandastack import AuthError, BadRequestError, Client, NotFoundError, Sandbox

DEADLINE = 60.0


def key_of(d: Daemon) -> str:
    return str(json.load(urllib.request.urlopen(f"{d.url}/v1/version", timeout=30))["snapshot_key"])


@pytest.fixture(scope="module")
def here() -> Iterator[Daemon]:
    yield from serving()


@pytest.fixture(scope="module")
def there(here: Daemon) -> Iterator[Daemon]:
    """It trusts the other one, which does not trust it."""
    yield from serving(snapshot_trusted_keys=key_of(here))


def serving(**settings: object) -> Iterator[Daemon]:
    d = Daemon(pool_ready=0, pool_prepared=0, **settings).start()
    yield d
    code, tail = d.stop(), d.tail()
    left = os.listdir(d.data / "images")
    d.remove()
    assert code == 0, tail
    assert all(name.startswith("sn-") for name in left), left


def client(d: Daemon, key: str = "") -> Client:
    return Client(api_url=d.url, api_key=key or d.key)


def images(d: Daemon) -> list[str]:
    return sorted(os.listdir(d.data / "images"))


@pytest.fixture(scope="module")
def snapshot(here: Daemon) -> pandastack.SnapshotID:
    """Of a session with variables, a file, a second context, a process, and 60 MB of zeros."""
    with Sandbox.create("code-interpreter", ttl_seconds=600, api_url=here.url, api_key=here.key, network={"allow": ["api.example.com"]},
                        secrets={"api.example.com": {"header": "Authorization", "value": "Bearer not-to-travel"}}) as sb:
        done = sb.run_code("import numpy as np\nx = {'a': [1, 2]}\nzeros = np.ones(8_000_000)\nzeros[:] = 0\nopen('/workspace/f', 'w').write('kept')")
        assert done.error is None, done.error
        second = sb.create_code_context(id="second", cwd="/tmp")
        second.run_code("y = 'second'")
        sb.commands.run("sleep 3600", background=True)
        taken = sb.snapshot("evening", {"k": "v"})
    assert sorted(taken.contexts) == ["default", "second"], taken.contexts
    return taken


@pytest.fixture(scope="module")
def archive(here: Daemon, snapshot: pandastack.SnapshotID, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("travel") / "evening.tar.zst"
    with here.takes_less_than(64):
        size = client(here).snapshots.export_archive(snapshot, file)
    assert size == file.stat().st_size
    assert snapshot.size_bytes is not None and snapshot.size_bytes > 180 << 20
    assert size < 100 << 20, "zeros take room"
    return file


def test_the_session_goes_on_elsewhere(here: Daemon, there: Daemon, snapshot: pandastack.SnapshotID, archive: Path) -> None:
    with there.takes_less_than(64):
        done = client(there).snapshots.import_archive(archive, name="morning")
    made = done.snapshot
    assert made.id != snapshot.id and made.name == "morning" and made.metadata == {"k": "v"} and made.size_bytes == snapshot.size_bytes
    assert made.origin is not None and made.origin.snapshot_id == snapshot.id and made.origin.key == key_of(here)
    assert done.missing == [{"kind": "value", "name": "Authorization", "for": "api.example.com"}]
    with Sandbox.create(from_snapshot=made, ttl_seconds=600, api_url=there.url, api_key=there.key) as sb:
        look = sb.run_code("print(x, float(zeros.sum()), zeros.size, open('/workspace/f').read())")
        assert look.stdout.strip() == "{'a': [1, 2]} 0.0 8000000 kept", look
        assert sorted(c.id for c in sb.contexts()) == ["default", "second"]
        assert sb.context("second").run_code("import os; print(y, os.getcwd())").stdout.split() == ["second", "/tmp"]
        assert [p.cmd for p in sb.commands.list() if p.running], "the process goes on"
        assert sb.network.get().policy["allow"] == ["api.example.com"] and not sb.network.get().secrets
    assert b"not-to-travel" not in archive.read_bytes()
    client(there).snapshots.delete(made)


def test_through_a_pipe(here: Daemon, there: Daemon, snapshot: pandastack.SnapshotID) -> None:
    out = subprocess.Popen([BIN, "snapshot", "export", snapshot, "-"], env=here.env, stdout=subprocess.PIPE)
    into = subprocess.run([BIN, "snapshot", "import", "-"], env=there.env, stdin=out.stdout, capture_output=True, text=True, timeout=120)
    assert out.wait() == 0 and into.returncode == 0, into.stderr
    assert "the value of Authorization for api.example.com" in into.stderr
    found = client(there).snapshots.get(into.stdout.strip())
    assert found.name == "evening" and found.sandbox_id == snapshot.sandbox_id
    client(there).snapshots.delete(found)


def test_who_may_bring_what(here: Daemon, there: Daemon, snapshot: pandastack.SnapshotID, archive: Path) -> None:
    before = images(here), images(there)
    run = client(here, client(here).tokens.create("run", scopes=["run"]).token)
    again = run.snapshots.import_archive(archive).snapshot  # its own
    assert again.origin is not None and again.origin.workspace == again.workspace
    run.snapshots.delete(again)
    theirs = client(there, client(there).tokens.create("run", scopes=["run"]).token)
    with pytest.raises(AuthError, match="scope admin"):
        theirs.snapshots.import_archive(archive)
    with pytest.raises(AuthError):
        client(here, client(here).tokens.create("read", scopes=["read"]).token).snapshots.export_archive(snapshot, archive.with_name("no"))
    assert not archive.with_name("no").exists()

    # The way back: the first does not trust the second, and says whom it would have to.
    there_too = client(there).snapshots.import_archive(archive).snapshot
    back = archive.with_name("back.tar.zst")
    client(there).snapshots.export_archive(there_too, back)
    with pytest.raises(AuthError) as refused:
        client(here).snapshots.import_archive(back)
    assert refused.value.status_code == 403 and key_of(there) in str(refused.value) and "snapshot_trusted_keys" in str(refused.value)
    client(there).snapshots.delete(there_too)
    assert (images(here), images(there)) == before


def test_damaged_archives(there: Daemon, archive: Path) -> None:
    before = images(there)
    whole = archive.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for bad in (b"", b"x" * 4096, whole[:200], whole[: len(whole) // 2], whole[:-1], bytes(flipped), whole + b"x" * (1 << 20)):
        with pytest.raises(BadRequestError, match="damaged"):
            client(there).snapshots.import_archive(bad)
    with pytest.raises(NotFoundError):
        client(there).snapshots.export_archive("sn-none", archive.with_name("none"))
    assert images(there) == before


def test_who_leaves_in_the_middle(here: Daemon, there: Daemon, snapshot: pandastack.SnapshotID, archive: Path) -> None:
    """Nothing is left of a copy that broke off, on neither side."""
    before, rows = images(there), client(there).snapshots.list()
    whole = archive.read_bytes()
    link = http.client.HTTPConnection("127.0.0.1", there.port, timeout=30)
    link.putrequest("POST", "/v1/snapshots")
    link.putheader("Authorization", f"Bearer {there.key}")
    link.putheader("Content-Length", str(len(whole)))
    link.endheaders(whole[: len(whole) // 2])
    until(lambda: images(there) != before, "the import is under way")
    link.close()
    until(lambda: images(there) == before, "what it had written is gone")
    assert client(there).snapshots.list() == rows

    link = http.client.HTTPConnection("127.0.0.1", here.port, timeout=30)
    link.request("GET", f"/v1/snapshots/{snapshot}/export", headers={"Authorization": f"Bearer {here.key}"})
    assert link.getresponse().read(1000)
    link.close()

    folder = archive.parent / "interrupted"
    folder.mkdir()
    slow = subprocess.Popen([BIN, "snapshot", "export", snapshot, folder / "x"], env=here.env, stderr=subprocess.PIPE, text=True)
    until(lambda: list(folder.iterdir()), "the file is being written")
    slow.send_signal(2)
    said = slow.communicate(timeout=30)[1]
    left = [p.name for p in folder.iterdir()]
    assert (slow.returncode, left) in ((130, []), (0, ["x"])), said  # it may have been just done


def until(condition, what: str) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


def test_no_room(here: Daemon, archive: Path) -> None:
    """What does not fit is refused before it is read."""
    settings = dict(pool_ready=0, pool_prepared=0, disk_reserve_mb=1 << 30, snapshot_trusted_keys=key_of(here))
    full = Daemon(**settings).start("healthz")
    try:
        with pytest.raises(pandastack.CapacityError) as refused:
            client(full).snapshots.import_archive(archive)
        assert refused.value.status_code == 507
        assert images(full) == []
    finally:
        full.stop()
        full.remove()
