# Generated from ../_async/filesystem.py by tools/generate_sync.py: change that file, then run the tool.
"""Files of a sandbox. Bytes travel as bytes, in streams, at any size."""

from __future__ import annotations

import posixpath
import uuid
from pathlib import Path
from typing import Any, Iterator, Callable, List, Optional, Union

from .. import _checks as check
from .. import _routes as routes
from .._request import Upload
from .._trees import Packing, Unpacking
from ..errors import NotFoundError, PandastackError
from ..records import Copied, FileEvent, FileInfo, WriteResult
from .client import Client, Hold, _download
from .transport import Background, call, write_piece


class Watch:
    """Changes of files, as they happen: iterate over it for `FileEvent`, or give `on_event` to `watch`. A context manager.

    A broken connection, and a restart of the server, are not noticed. Where changes may have been missed, there is an
    event "overflow". The last event is "ended", when what is watched is gone, or the sandbox is, or was put to sleep.
    """

    def __init__(
        self, events: Iterator[FileEvent], hold: Hold, on_event: Optional[Callable[[FileEvent], Any]]
    ) -> None:
        self._events = events
        self._hold = hold
        self._background = None if on_event is None else Background(lambda: self._hear(on_event))

    def __iter__(self) -> "Watch":
        return self

    def __next__(self) -> FileEvent:
        while True:
            event = self._events.__next__()
            if event.type != "started":  # of one that was begun anew, which "overflow" says
                return event

    def wait(self) -> None:
        """With `on_event`, waits for the end of the watch. Raises what the callback raised, which ends it."""
        if self._background is not None:
            self._background.join()

    def close(self) -> None:
        """Ends the watch. With `on_event`, no more calls come after this; raises what the callback raised."""
        self._hold.end()
        if self._background is not None:
            self._background.join()
            return
        try:
            self._events.close()  # type: ignore[attr-defined]
        except (RuntimeError, ValueError):
            pass  # it is being iterated over, by another: that ends, too

    def _hear(self, on_event: Callable[[FileEvent], Any]) -> None:
        try:
            for event in self:
                if self._hold.over:
                    return
                call(on_event, event)
        finally:
            self._hold.end()
            self._events.close()  # type: ignore[attr-defined]

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Filesystem:
    """Files: ``sandbox.filesystem``. Paths are absolute.

    A name that is not UTF-8 is a str as `os.fsdecode` makes it, in lists and as a path.
    """

    def __init__(self, client: Client, sandbox_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id

    def read(self, path: str, *, start: Optional[int] = None, end: Optional[int] = None) -> bytes:
        """The content, or a part of it. For large files use `download`.

        Args:
            start: from this byte on; below 0 counts from the end.
            end: up to this byte and without it. Default: to the end.

        Raises:
            NotFoundError: there is none; the message has the nearest names.
            BadRequestError: a relative path, no file, or a start behind its end (status 416).
        """
        return (self._client._send(routes.read_file(self._sandbox_id, path, start, end))).body

    def read_text(self, path: str, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The content as text, line ends as they are.

        Raises:
            UnicodeDecodeError: it is not in this encoding.
            NotFoundError: there is none.
        """
        return (self.read(path)).decode(encoding, errors)

    def write(
        self,
        path: str,
        data: Union[str, bytes, Upload],
        *,
        mode: Union[None, int, str] = None,
        append: bool = False,
    ) -> WriteResult:
        """Writes a file, in one step as seen from inside; missing folders are made.

        Args:
            path: where to; what is there is replaced. Through a link, its target is.
            data: bytes; str, which is encoded as UTF-8; or an open file, which is streamed from where it stands.
            mode: permissions, such as 0o755 or "0755". Default: those of what was there, 0o644 for a new file.
            append: add to what is there; when that breaks off, it is taken back.

        Raises:
            BadRequestError: a relative path, or no file is there.
            CapacityError: the disk is full (status 507); what was there is unchanged.
            APIConnectionError: the connection broke; an append may have been done.
        """
        answer = self._client._send(routes.write_file(self._sandbox_id, path, data, mode, append))
        return WriteResult.from_wire(answer.object() if answer.body else {"path": path})

    def upload(
        self, local: Union[str, Path], remote: str, *, mode: Union[None, int, str] = None
    ) -> WriteResult:
        """Streams a local file into the sandbox. `mode` is as in `write`.

        Raises:
            OSError: the local file can't be read.
            CapacityError: the disk is full (status 507).
        """
        with open(local, "rb") as file:
            return self.write(remote, file, mode=mode)

    def download(self, remote: str, local: Union[str, Path]) -> int:
        """Streams a file out of the sandbox; the local one appears when it is complete.

        Returns:
            Its size in bytes.

        Raises:
            NotFoundError: there is none.
            OSError: the local file can't be written.
            APIConnectionError: the connection broke; nothing is left behind.
        """
        return _download(self._client, routes.read_file(self._sandbox_id, remote), local)

    def upload_dir(
        self, local: Union[str, Path], remote: str, *, on_progress: Optional[Callable[[Copied], Any]] = None
    ) -> Copied:
        """Copies what is in a local folder into a folder of the sandbox, which is made, as one stream of any size.

        Files, folders and links, with permissions and times. What is there besides stays.

        Args:
            on_progress: called with a `Copied` of what was sent so far, in another thread.

        Raises:
            OSError: something local can't be read.
            ConflictError: a file is there where a folder should be, or the other way round.
            CapacityError: the disk is full (status 507); the message says how much was written.
        """
        packing = Packing(local, on_progress)
        try:
            self._client._send(routes.write_tar(self._sandbox_id, remote, packing.reader))
        except PandastackError:
            packing.close()
            if packing.error is not None and not isinstance(packing.error, BrokenPipeError):
                raise packing.error from None
            raise
        finally:
            packing.close()
        packing.finish()
        return packing.copied()

    def download_dir(
        self, remote: str, local: Union[str, Path], *, on_progress: Optional[Callable[[Copied], Any]] = None
    ) -> Copied:
        """Copies what is in a folder of the sandbox into a local one, which is made, as one stream of any size.

        Files, folders and links, with permissions and times. What comes is a stranger's: nothing is written outside of
        the local folder, and links that lead out of it are left out.

        Args:
            on_progress: called with a `Copied` of what was written so far, in another thread.

        Raises:
            NotFoundError: there is no such folder.
            BadRequestError: it is no folder.
            OSError: something local can't be written.
            APIConnectionError: the connection broke; what was copied by then stays.
        """
        with self._client._stream(routes.read_tar(self._sandbox_id, remote)) as answer:
            unpacking = Unpacking(local, on_progress)
            try:
                for piece in answer.pieces():
                    write_piece(unpacking.writer, piece)
            except BrokenPipeError:
                pass  # the thread has ended, and knows why
            finally:
                unpacking.close()
        unpacking.finish()
        return unpacking.copied()

    def list(self, path: str = "/") -> List[FileInfo]:
        """What is in a folder, by name, however much it is.

        Raises:
            NotFoundError: there is none.
            BadRequestError: no folder.
        """
        entries: List[FileInfo] = []
        after = ""
        while True:
            body = (self._client._send(routes.list_dir(self._sandbox_id, path, after))).object()
            page = [FileInfo.from_wire(entry, folder=path) for entry in body.get("entries") or []]
            entries += page
            if not body.get("truncated") or not page:
                return entries
            after = page[-1].name

    def stat(self, path: str) -> FileInfo:
        """What the file or folder is; a link is described itself.

        Raises:
            NotFoundError: there is none.
        """
        answer = self._client._send(routes.stat_file(self._sandbox_id, path))
        return FileInfo.from_wire(answer.object(), path=path)

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        try:
            self.stat(path)
        except NotFoundError as error:
            if self._sandbox_is_gone():
                raise error
            return False
        return True

    def mkdir(self, path: str) -> None:
        """Makes a folder and those above it. Does nothing when it is there."""
        self._client._send(routes.make_dir(self._sandbox_id, path))

    def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Moves or renames a file or folder, a link itself; missing folders are made.

        Args:
            target: its new place itself, not a folder to move it into.
            overwrite: replace what is there: a file or link a file or link, a folder an empty folder.

        Raises:
            NotFoundError: there is none.
            ConflictError: the target is there, and not `overwrite`, or it can't be replaced by this.
            BadRequestError: the target lies inside the folder that is moved.
        """
        self._client._send(routes.move_file(self._sandbox_id, source, target, overwrite))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file, or a folder: an empty one, or with `recursive` any.

        Raises:
            NotFoundError: there is none.
            ConflictError: the folder is not empty.
        """
        self._client._send(routes.remove_file(self._sandbox_id, path, recursive))

    def walk(self, path: str = "/") -> Iterator[FileInfo]:
        """Every file and folder below `path`, a folder before what is in it; links are not followed."""
        for entry in self.list(path):
            whole = FileInfo(**{**entry.__dict__, "path": posixpath.join(path, entry.name)})
            yield whole
            if entry.is_dir and entry.mode != "l":
                for below in self.walk(whole.path):
                    yield below

    def watch(
        self, path: str, *, recursive: bool = False, on_event: Optional[Callable[[FileEvent], Any]] = None
    ) -> Watch:
        """Watches a file, or what is in a folder: what changes after this has returned is told, to its end.

        Args:
            path: a folder, or a file, also one that programs replace. A link there is followed once; links below it are not.
            recursive: with all folders below it, at most 10,000.
            on_event: called with each `FileEvent` beside your program; see `Watch`. Default: iterate.

        Raises:
            NotFoundError: nothing is there.
            BadRequestError: there are too many folders, or it is of the kernel's, under /proc or /sys.
            RateLimitError: the sandbox has 32 watches.
            ServerError: the agent in the sandbox is of an earlier version (status 501).
        """
        check.callback("on_event", on_event)
        hold = Hold()
        request = routes.watch_files(self._sandbox_id, path, recursive, uuid.uuid4().hex)
        events = self._client._stay_on(request, lambda name, body, number: FileEvent.from_wire(body), hold=hold)
        events.__next__()  # it has started
        return Watch(events, hold, on_event)

    def download_url(self, path: str, ttl_seconds: int = 3600) -> str:
        """A link that gives a file to whoever has it, without a key: until it expires, the client's key ends, or the
        sandbox does. Good for browsers: they save the file. A sandbox that sleeps is woken.

        Args:
            path: of the file; it need not be there yet.
            ttl_seconds: at most 604800, which are 7 days.

        Raises:
            AuthError: the client's key may only read.
            BadRequestError: a path or a time that can't be.
        """
        answer = self._client._send(routes.file_link(self._sandbox_id, path, "GET", ttl_seconds))
        return str(answer.object()["url"])

    def upload_url(self, path: str, ttl_seconds: int = 3600, *, max_bytes: Optional[int] = None) -> str:
        """A link with which whoever has it writes one file, without a key: by PUT or POST of its bytes, or by a form with
        ``<input type="file">``. It lives as long as that of `download_url`, and may be used more than once.

        Args:
            path: of the file; missing folders are made, and what is there is replaced.
            ttl_seconds: at most 604800, which are 7 days.
            max_bytes: how large the file may be; a larger one is refused with status 413. Default: 1 GiB.

        Raises:
            AuthError: the client's key may only read.
            BadRequestError: a path, a time or a size that can't be.
        """
        answer = self._client._send(routes.file_link(self._sandbox_id, path, "PUT", ttl_seconds, max_bytes))
        return str(answer.object()["url"])

    def _sandbox_is_gone(self) -> bool:
        try:
            self._client._send(routes.get_sandbox(self._sandbox_id))
        except NotFoundError:
            return True
        return False
