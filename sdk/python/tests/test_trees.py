"""Folders as tar streams: what comes out of a sandbox touches nothing outside of its folder."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any, List, Tuple

import pytest

from pandastack._trees import Packing, Unpacking

FILE, LINK, HARD, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


def stream(entries: List[Tuple[bytes, str, str]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for kind, name, link in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, 4 if kind == FILE else 0
            tar.addfile(info, io.BytesIO(b"evil") if kind == FILE else None)
    return made.getvalue()


def unpack(raw: bytes, folder: Path) -> Any:
    unpacking = Unpacking(folder, None)
    try:
        unpacking.writer.write(raw)
    except BrokenPipeError:
        pass
    unpacking.close()
    unpacking.finish()
    return unpacking.copied()


@pytest.mark.parametrize("entries", [
    [(FILE, "../victim", "")],
    [(FILE, "/victim", "")],
    [(FOLDER, "a", ""), (FILE, "a/../../victim", "")],
    [(LINK, "a", ".."), (FILE, "a/victim", "")],
    [(LINK, "a", "../victim"), (FILE, "a", "")],
    [(LINK, "a", "OUT"), (FILE, "a/victim", "")],
    [(HARD, "a", "../victim"), (FILE, "a", "")],
    [(FOLDER, "sub", ""), (LINK, "sub/b", ".."), (LINK, "a", "sub/b/.."), (FILE, "a/victim", "")],
    [(FOLDER, "d", ""), (LINK, "d/up", ".."), (LINK, "d/up/x", "../victim"), (FILE, "d/up/x", "")],
    [(FOLDER, "a", ""), (LINK, "a", ".."), (FILE, "a/victim", "")],
    [(tarfile.FIFOTYPE, "fifo", ""), (tarfile.CHRTYPE, "dev", "")],
])  # fmt: skip
def test_nothing_leaves_the_folder(entries: List[Tuple[bytes, str, str]], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "victim").write_text("good")
    try:
        unpack(stream([(k, n, link.replace("OUT", str(tmp_path))) for k, n, link in entries]), folder)
    except OSError:
        pass
    assert (tmp_path / "victim").read_text() == "good" and sorted(os.listdir(tmp_path)) == ["in", "victim"]
    for path in folder.rglob("*"):
        assert path.resolve() == folder or folder in path.resolve().parents, path
        assert path.is_file() or path.is_dir() or path.is_symlink()


def test_a_stream_that_is_cut_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "file").write_bytes(b"x" * 100_000)
    packing = Packing(tmp_path / "from", None)
    whole = packing.reader.read()
    packing.finish()
    assert unpack(whole, tmp_path / "to").files == 1
    with pytest.raises(tarfile.TarError):
        unpack(whole[:50_000], tmp_path / "half")


def test_a_second_name_of_a_file_travels_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "one").write_text("shared")
    os.link(tmp_path / "from" / "one", tmp_path / "from" / "two")
    packing = Packing(tmp_path / "from", None)
    whole = packing.reader.read()
    packing.finish()
    assert unpack(whole, tmp_path / "to").files == 2
    assert [(tmp_path / "to" / name).read_text() for name in ("one", "two")] == ["shared", "shared"]


def test_an_error_in_reading_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        Packing(tmp_path / "none", None)
    (tmp_path / "file").write_text("x")
    packing = Packing(tmp_path, None)
    packing.close()  # nobody reads on
    with pytest.raises(BrokenPipeError):
        raise packing.error or BrokenPipeError()
