"""Folders of this machine as tar streams, and back, each in a thread of its own with a pipe to the connection."""

from __future__ import annotations

import os
import tarfile
import threading
from pathlib import Path
from typing import Any, BinaryIO, Callable, List, Optional, Tuple, Union

from .records import Copied

OnProgress = Optional[Callable[[Copied], Any]]


class _Counted:
    """A stream that counts and reports what passes."""

    def __init__(self, file: Any, report: Callable[[int], None]) -> None:
        self._file, self._report = file, report

    def read(self, size: int = -1) -> bytes:
        piece: bytes = self._file.read(size)
        self._report(len(piece))
        return piece


class _Tree:
    def __init__(self, on_progress: OnProgress) -> None:
        read, write = os.pipe()
        self.reader: BinaryIO = os.fdopen(read, "rb")
        self.writer: BinaryIO = os.fdopen(write, "wb")
        self.files = self.folders = self.links = self.bytes = 0
        self.left_out: List[str] = []
        self.error: Optional[BaseException] = None
        self._on_progress = on_progress
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def copied(self) -> Copied:
        return Copied(self.files, self.folders, self.links, self.bytes, tuple(self.left_out))

    def _passed(self, size: int) -> None:
        self.bytes += size
        self._report()

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.copied())

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    def work(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Waits for the thread, whichever end broke first, and raises what went wrong in it."""
        self._thread.join()
        if self.error is not None:
            raise self.error


class Packing(_Tree):
    """A folder as a tar stream, to be read from `reader`."""

    def __init__(self, folder: Union[str, Path], on_progress: OnProgress) -> None:
        self._folder = os.fspath(folder)
        if not os.path.isdir(self._folder):
            raise NotADirectoryError(f"{self._folder} is no folder")
        super().__init__(on_progress)

    def work(self) -> None:
        with self.writer, tarfile.open(fileobj=self.writer, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            self._below(tar, self._folder, "")

    def _below(self, tar: tarfile.TarFile, folder: str, name: str) -> None:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                self._add(tar, entry.path, f"{name}{entry.name}")

    def _add(self, tar: tarfile.TarFile, path: str, name: str) -> None:
        info = tar.gettarinfo(path, name)
        if info is not None and info.islnk():  # a second name of a file: it travels as one
            info.type, info.linkname, info.size = tarfile.REGTYPE, "", os.lstat(path).st_size
        if info is None or not (info.isreg() or info.isdir() or info.issym()):
            self.left_out.append(name)
            return
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        if info.isreg():
            with open(path, "rb") as file:
                tar.addfile(info, _Counted(file, self._passed))
            self.files += 1
            self._report()
            return
        tar.addfile(info)
        if info.isdir():
            self.folders += 1
            self._below(tar, path, name + "/")
        else:
            self.links += 1

    def close(self) -> None:
        self.reader.close()
        self._thread.join()


class Unpacking(_Tree):
    """A tar stream of a stranger's, written to `writer`, as a folder. Nothing outside of the folder is touched."""

    def __init__(self, folder: Union[str, Path], on_progress: OnProgress) -> None:
        if not hasattr(tarfile, "data_filter"):
            raise RuntimeError("this Python cannot unpack a stranger's archive safely: use 3.9.17, 3.10.12, 3.11.4 or newer")
        self._folder = os.fspath(folder)
        os.makedirs(self._folder, exist_ok=True)
        super().__init__(on_progress)

    def work(self) -> None:
        looks: List[Tuple[str, tarfile.TarInfo]] = []
        with self.reader, tarfile.open(fileobj=self.reader, mode="r|") as tar:
            for member in tar:
                self._take(tar, member, looks)
            while self.reader.read(1 << 16):  # the padding behind the end
                pass
        for path, member in reversed(looks):
            if not os.path.islink(path):
                os.chmod(path, member.mode & 0o777)
                os.utime(path, (member.mtime, member.mtime))

    def _take(self, tar: tarfile.TarFile, member: tarfile.TarInfo, looks: List[Tuple[str, tarfile.TarInfo]]) -> None:
        try:
            safe = tarfile.data_filter(member, self._folder)
        except tarfile.FilterError:
            safe = None
        if safe is None or safe.islnk() or not self._inside(safe) or not (safe.isreg() or safe.isdir() or safe.issym()):
            self.left_out.append(member.name)
            return
        if safe.isdir():
            looks.append((os.path.join(self._folder, safe.name), member))
        else:
            target = os.path.join(self._folder, safe.name)
            if os.path.lexists(target) and (os.path.islink(target) or not os.path.isdir(target)):
                os.unlink(target)  # which would be written through, or be in the way
        tar.extract(safe, self._folder, filter="fully_trusted")
        if safe.isdir():
            self.folders += 1
        elif safe.issym():
            self.links += 1
        else:
            self.files += 1
            self._passed(safe.size)

    def _inside(self, member: tarfile.TarInfo) -> bool:
        """No link leads to where it goes, and it is none that leads out. Filters of older Pythons can be outwitted here."""
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        if ".." in parts:
            return False
        above = parts if member.isdir() else parts[:-1]
        if any(os.path.islink(os.path.join(self._folder, *above[: i + 1])) for i in range(len(above))):
            return False
        return not member.issym() or _stays_inside(len(parts) - 1, member.linkname)

    def close(self) -> None:
        try:
            self.writer.close()
        except BrokenPipeError:
            pass  # the reason is in error
        self._thread.join()


def _stays_inside(depth: int, target: str) -> bool:
    """Whether a link so many folders deep leads to below the top; behind a name, ".." may lead elsewhere than it looks."""
    if not target or target.startswith("/"):
        return False
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return up <= depth and ".." not in parts[up:]
