"""The synchronous transport: urllib3, one pool of kept connections for a server. Safe to use from several threads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Optional

import urllib3
import urllib3.connection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    TimeoutStateError,
)

from .._config import Endpoint
from .._request import CHUNK, CONNECT_SECONDS, FEED_SECONDS, Request, Response, Source, body_size
from ..errors import APIConnectionError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

POOL_SIZE = 128  # connections kept; more are opened when needed

_NOT_SENT = (NewConnectionError, ConnectTimeoutError, NameResolutionError)


class StreamResponse:
    """An answer whose body comes in pieces."""

    def __init__(self, raw: urllib3.BaseHTTPResponse, describe: Callable[[Exception], APIConnectionError]) -> None:
        self._raw = raw
        self._describe = describe
        self.status = raw.status
        self.headers = _lower(raw)

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes. Raises APIConnectionError when it breaks."""
        try:
            yield from self._raw.stream(CHUNK, decode_content=False)
        except (HTTPError, OSError) as error:
            raise self._describe(error) from error

    def read(self) -> bytes:
        return b"".join(self.pieces())

    def cancel(self) -> None:
        """Ends the connection under whoever reads from it, in whatever thread. Before urllib3 2.3 they notice with the
        next piece."""
        try:
            self._raw.shutdown()
        except (AttributeError, RuntimeError, ValueError, OSError):
            pass  # an older urllib3, or all of it has been read


class _Patient:
    """A connection whose server may take its time to read what is sent, as a slow disk or a program does behind it. urllib3
    takes its limit for connecting, which is short, for that, too. TCP notices a server that is gone."""

    sock: Any

    def send(self, data: Any) -> None:
        if self.sock is not None:  # connected
            self.sock.settimeout(None)
        super().send(data)  # type: ignore[misc]


class _HTTPConnection(_Patient, urllib3.connection.HTTPConnection):
    pass


class _HTTPSConnection(_Patient, urllib3.connection.HTTPSConnection):
    pass


class Transport:
    """Sends requests to one server."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._pool = urllib3.connection_from_url(endpoint.origin, maxsize=POOL_SIZE, block=False)
        self._pool.ConnectionCls = _HTTPSConnection if self._pool.scheme == "https" else _HTTPConnection

    def send(self, request: Request) -> Response:
        """The whole answer. Raises APIConnectionError when there is none."""
        raw = self._open(request, preload=True)
        return Response(raw.status, _lower(raw), raw.data)

    @contextmanager
    def stream(self, request: Request) -> Iterator[StreamResponse]:
        """The answer as it comes. Leaving early ends the connection."""
        raw = self._open(request, preload=False)
        try:
            yield StreamResponse(raw, self._describe)
        finally:
            raw.close()
            raw.release_conn()

    def _open(self, request: Request, *, preload: bool) -> urllib3.BaseHTTPResponse:
        data, file, headers = request.encoded()
        body: Any = data
        source: Optional[Source] = None
        if file is not None:
            size = body_size(file)
            if size is not None:
                headers["Content-Length"] = str(size)
            source = Source(file)
            body = _pieces_of(source)
        try:
            return self._pool.urlopen(
                request.method,
                request.target(self._endpoint.prefix),
                body=body,
                headers=self._endpoint.headers(headers),
                retries=False,
                redirect=False,
                assert_same_host=False,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=request.read_seconds),
                preload_content=preload,
                decode_content=False,
            )
        except (HTTPError, OSError, TimeoutStateError) as error:
            raise (source and source.error) or self._describe(error) from error

    def _describe(self, error: Exception) -> APIConnectionError:
        where = self._endpoint.origin
        root = error.__cause__ if isinstance(error.__cause__, OSError) else error  # without the client's own words
        if isinstance(error, _NOT_SENT):
            return APIConnectionError(
                f"no PandaStack server answers at {where}: {root}",
                sent=False,
                hint="start one with `pandastack serve`, or set PANDASTACK_API_URL",
            )
        if isinstance(error, ReadTimeoutError):
            return APIConnectionError(f"{where} was silent for too long", timed_out=True)
        return APIConnectionError(f"the connection to {where} broke: {root}")

    def close(self) -> None:
        self._pool.close()


def _lower(raw: urllib3.BaseHTTPResponse) -> Dict[str, str]:
    return {name.lower(): value for name, value in raw.headers.items()}


def _pieces_of(source: Source) -> Iterator[bytes]:
    while True:
        piece = source.piece()
        if not piece:
            return
        yield piece


sleep = time.sleep


def settled(future: "Future[Any]") -> Any:
    """Waits for what another thread does."""
    return future.result()


def current_loop() -> Optional[AbstractEventLoop]:
    """There is none: coroutines of the user's run in a loop of the connection's own."""
    return None


def write_piece(file: Any, piece: bytes) -> None:
    """Writes to a local file."""
    file.write(piece)


def call(callback: Optional[Callable[[Any], Any]], value: Any) -> None:
    """Hands a value to a callback, if there is one."""
    if callback is not None:
        callback(value)



class Background:
    """Work that goes on beside its caller: a thread, which does not hold up the end of the program."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._failed: List[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            self._failed.append(error)  # for `join`

    def join(self, timeout: Optional[float] = None) -> bool:
        """Waits for its end, at most so many seconds; whether it has come. Raises what the work raised.

        Called from the work itself it does not wait.
        """
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._failed:
            raise self._failed[0]
        return True


def beside(feed: Callable[[], Any], wait: Callable[[], Any]) -> Any:
    """What `wait` returns, while `feed` goes on beside it. An error of `feed` counts when it has ended by then."""
    failed: List[BaseException] = []

    def run() -> None:
        try:
            feed()
        except BaseException as error:
            failed.append(error)

    feeding = threading.Thread(target=run, daemon=True)  # it may read from a file that never ends
    feeding.start()
    result = wait()
    feeding.join(FEED_SECONDS)
    if failed:
        raise failed[0]
    return result

_shared: Dict[Any, Any] = {}


def shared(key: Any, make: Callable[[], Any]) -> Any:
    """One client a server and key for all sandboxes of this process, so that connections are kept."""
    import os

    whole = (os.getpid(), key)  # a forked child must not use its parent's connections
    found = _shared.get(whole)
    return found if found is not None else _shared.setdefault(whole, make())


def side_by_side(limit: int, work: Callable[[Any], Any], items: Iterable[Any]) -> List[Any]:
    """``work`` on each item, so many at once; the outcomes in order. The first error is raised when all have ended."""
    with ThreadPoolExecutor(limit) as threads:
        waiting = [threads.submit(work, item) for item in items]
    return [one.result() for one in waiting]
