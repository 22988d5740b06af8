"""The asynchronous transport: aiohttp, one pool of kept connections for a server and an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator, Callable, Dict, Iterable, List, Optional

import aiohttp
from yarl import URL

from .._config import Endpoint
from .._request import CHUNK, CONNECT_SECONDS, FEED_SECONDS, Request, Response, Source, body_size
from ..errors import APIConnectionError


class AsyncStreamResponse:
    """An answer whose body comes in pieces."""

    def __init__(self, raw: aiohttp.ClientResponse, describe: Callable[[Exception], APIConnectionError]) -> None:
        self._raw = raw
        self._describe = describe
        self.status = raw.status
        self.headers = _lower(raw)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises APIConnectionError when it breaks."""
        try:
            async for piece in self._raw.content.iter_any():
                yield piece
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise self._describe(error) from error

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    def cancel(self) -> None:
        """Ends the connection under whoever reads from it."""
        self._raw.close()


class AsyncTransport:
    """Sends requests to one server. Belongs to the event loop that it is first used in."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._session: Optional[aiohttp.ClientSession] = None
        self._keeper: Optional[Any] = None

    async def send(self, request: Request) -> Response:
        """The whole answer. Raises APIConnectionError when there is none."""
        raw = await self._open(request)
        try:
            body = await raw.read()
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise self._describe(error) from error
        finally:
            raw.release()
        return Response(raw.status, _lower(raw), body)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncStreamResponse]:
        """The answer as it comes. Leaving early ends the connection."""
        raw = await self._open(request)
        try:
            yield AsyncStreamResponse(raw, self._describe)
        finally:
            raw.close() if not raw.content.at_eof() else raw.release()

    async def _open(self, request: Request) -> aiohttp.ClientResponse:
        data, file, headers = request.encoded()
        body: Any = data
        source: Optional[Source] = None
        if file is not None:
            size = await asyncio.get_running_loop().run_in_executor(None, body_size, file)
            if size is not None:
                headers["Content-Length"] = str(size)
            source = Source(file)
            body = _pieces_of(source)
        session = self._session or await self._connect()
        try:
            return await session.request(
                request.method,
                URL(self._endpoint.origin + request.target(self._endpoint.prefix), encoded=True),
                data=body,
                headers=self._endpoint.headers(headers),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=None, sock_connect=CONNECT_SECONDS, sock_read=request.read_seconds
                ),
            )
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise (source and source.error) or self._describe(error) from error

    async def _connect(self) -> aiohttp.ClientSession:
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
            auto_decompress=False,
            read_bufsize=4 * CHUNK,
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
        )
        self._session = session
        # asyncio ends open asynchronous generators before a loop closes: this one takes the connections along.
        self._keeper = _close_with_loop(session)
        await self._keeper.__anext__()
        return session

    def _describe(self, error: Exception) -> APIConnectionError:
        where = self._endpoint.origin
        if isinstance(error, (aiohttp.ClientConnectorError, getattr(aiohttp, "ConnectionTimeoutError", ()))):
            return APIConnectionError(
                f"no PandaStack server answers at {where}: {getattr(error, 'os_error', error)}",
                sent=False,
                hint="start one with `pandastack serve`, or set PANDASTACK_API_URL",
            )
        if isinstance(error, asyncio.TimeoutError):
            return APIConnectionError(f"{where} was silent for too long", timed_out=True)
        return APIConnectionError(f"the connection to {where} broke: {error or type(error).__name__}")

    async def close(self) -> None:
        keeper, self._keeper, self._session = self._keeper, None, None
        if keeper is not None:
            await keeper.aclose()


async def _close_with_loop(session: aiohttp.ClientSession) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await session.close()


def _lower(raw: aiohttp.ClientResponse) -> Dict[str, str]:
    return {name.lower(): value for name, value in raw.headers.items()}


async def _pieces_of(source: Source) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while True:
        piece = await loop.run_in_executor(None, source.piece)
        if not piece:
            return
        yield piece


sleep = asyncio.sleep


async def settled(future: "Future[Any]") -> Any:
    """Waits for what another thread does."""
    return await asyncio.shield(asyncio.wrap_future(future))


def current_loop() -> Optional[asyncio.AbstractEventLoop]:
    """The loop in which coroutines of the user's run."""
    return asyncio.get_running_loop()


async def write_piece(file: Any, piece: bytes) -> None:
    """Writes to a local file without holding up the loop."""
    await asyncio.get_running_loop().run_in_executor(None, file.write, piece)


async def call(callback: Optional[Callable[[Any], Any]], value: Any) -> None:
    """Hands a value to a callback, if there is one, and awaits what it returns if that can be awaited."""
    if callback is not None:
        returned = callback(value)
        if inspect.isawaitable(returned):
            await returned



class Background:
    """Work that goes on beside its caller: a task."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._task: "asyncio.Future[Any]" = asyncio.ensure_future(work())

    async def join(self, timeout: Optional[float] = None) -> bool:
        """Waits for its end, at most so many seconds; whether it has come. Raises what the work raised.

        Called from the work itself it does not wait.
        """
        if self._task is asyncio.current_task():
            return False
        await asyncio.wait([self._task], timeout=timeout)
        if not self._task.done():
            return False
        self._task.result()
        return True


async def beside(feed: Callable[[], Any], wait: Callable[[], Any]) -> Any:
    """What `wait` returns, while `feed` goes on beside it. An error of `feed` counts when it has ended by then."""
    feeding = asyncio.ensure_future(feed())
    try:
        result = await wait()
        await asyncio.wait([feeding], timeout=FEED_SECONDS)
        if feeding.done():
            feeding.result()
        return result  # what is left of the input is for nobody
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)

_shared: Dict[Any, Dict[Any, Any]] = {}
_sharing = threading.Lock()  # loops come and go in several threads


def shared(key: Any, make: Callable[[], Any]) -> Any:
    """One client a server and key for all sandboxes of the running loop, so that connections are kept."""
    loop = asyncio.get_running_loop()
    with _sharing:
        for other in [known for known in _shared if known.is_closed()]:
            del _shared[other]
        of_loop = _shared.setdefault(loop, {})
        if key not in of_loop:
            of_loop[key] = make()
        return of_loop[key]


async def side_by_side(limit: int, work: Callable[[Any], Any], items: Iterable[Any]) -> List[Any]:
    """``work`` on each item, so many at once; the outcomes in order. The first error is raised when all have ended."""
    turns = asyncio.Semaphore(limit)

    async def one(item: Any) -> Any:
        async with turns:
            return await work(item)

    done = await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
    for outcome in done:
        if isinstance(outcome, BaseException):
            raise outcome
    return list(done)
