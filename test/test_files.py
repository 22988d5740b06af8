"""Files in and out: any bytes, any size, no half-written ones."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from pandastack import BadRequestError, NotFoundError, PandastackError, Sandbox


def test_every_byte_survives(shared_sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 257
    shared_sandbox.filesystem.write("/workspace/deep/er/b.bin", data)
    assert shared_sandbox.filesystem.read("/workspace/deep/er/b.bin") == data


@pytest.mark.parametrize("size", [0, 1, 18 << 10, 96 << 10, 1 << 20, 33 << 20])
def test_sizes_at_which_others_lose_data(shared_sandbox: Sandbox, size: int) -> None:
    data = os.urandom(size)
    shared_sandbox.filesystem.write("/workspace/sized", data)
    assert hashlib.sha256(shared_sandbox.filesystem.read("/workspace/sized")).digest() == hashlib.sha256(data).digest()
    out = shared_sandbox.exec("sha256sum /workspace/sized").stdout.split()[0]
    assert out == hashlib.sha256(data).hexdigest(), "the program in the sandbox sees the same bytes"


def test_upload_and_download_stream(shared_sandbox: Sandbox, tmp_path: Path) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    src.write_bytes(os.urandom(3 << 20))
    shared_sandbox.filesystem.upload(str(src), "/workspace/up.bin")
    shared_sandbox.filesystem.download("/workspace/up.bin", str(dst))
    assert dst.read_bytes() == src.read_bytes()


def test_names_are_not_ascii(shared_sandbox: Sandbox) -> None:
    path = "/workspace/数据 und Ümläute 🎉.csv"
    shared_sandbox.filesystem.write(path, "ä,b\n1,2\n")
    assert "数据 und Ümläute 🎉.csv" in [e.name for e in shared_sandbox.filesystem.list("/workspace")]
    assert shared_sandbox.run_code(f"open({path!r}, encoding='utf8').read()").text == repr("ä,b\n1,2\n")


@pytest.mark.parametrize("path", ["relative.txt", "", "/nul\0byte"])
def test_bad_paths_name_the_field(shared_sandbox: Sandbox, path: str) -> None:
    with pytest.raises((BadRequestError, ValueError)) as e:
        shared_sandbox.filesystem.read(path)
    assert "path" in str(e.value)


def test_missing_file_is_404_with_near_names(shared_sandbox: Sandbox) -> None:
    shared_sandbox.filesystem.write("/workspace/sales.csv", "a\n")
    with pytest.raises(NotFoundError) as e:
        shared_sandbox.filesystem.read("/workspace/sale.csv")
    assert "sales.csv" in str(e.value)
    assert shared_sandbox.filesystem.exists("/workspace/sale.csv") is False


def test_a_fifo_does_not_hang_a_read(shared_sandbox: Sandbox) -> None:
    shared_sandbox.exec("mkfifo /workspace/fifo")
    with pytest.raises(BadRequestError):
        shared_sandbox.filesystem.read("/workspace/fifo")


def test_stat_tells_links_as_links(shared_sandbox: Sandbox) -> None:
    shared_sandbox.exec("echo hi > /workspace/target; ln -sf target /workspace/link; chmod 640 /workspace/target")
    assert shared_sandbox.filesystem.stat("/workspace/link").mode == "l"
    assert shared_sandbox.filesystem.stat("/workspace/target").permissions == "0640"


def test_writing_keeps_the_mode_of_what_was_there(shared_sandbox: Sandbox) -> None:
    shared_sandbox.exec("printf '#!/bin/sh\\necho one\\n' > /workspace/run.sh; chmod 755 /workspace/run.sh")
    shared_sandbox.filesystem.write("/workspace/run.sh", "#!/bin/sh\necho two\n")
    assert shared_sandbox.exec("/workspace/run.sh").stdout == "two\n"


def test_a_full_disk_answers_507_and_keeps_the_old_file(sandbox: Sandbox) -> None:
    sandbox.filesystem.write("/workspace/old", "old")
    free = int(sandbox.exec("df --output=avail -B1 /workspace | tail -1").stdout)
    sandbox.exec(f"fallocate -l {free - (4 << 20)} /workspace/filler", timeout_seconds=120, check=True)
    with pytest.raises(PandastackError) as e:
        sandbox.filesystem.write("/workspace/old", bytes(16 << 20))
    assert e.value.status_code == 507
    assert sandbox.filesystem.read("/workspace/old") == b"old"
