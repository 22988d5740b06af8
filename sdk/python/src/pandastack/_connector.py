"""The connection over which functions of this program are called from a sandbox.

One thread with an event loop of its own carries it, for both surfaces. It connects again when it breaks; calls that were in
flight then have failed on the server's side, and are not carried out again.
"""

from __future__ import annotations

import asyncio
import json
import threading
import weakref
from concurrent.futures import Future
from typing import Any, Dict, Mapping, Optional

from ._config import Endpoint
from ._functions import Function, dump
from .errors import APIConnectionError, PandastackError, error_from_response

_FIRST_WAIT, _MOST_WAIT = 0.1, 5.0
_MOST_RESULT = 64 << 20  # characters; the server takes no longer message
_GONE = {401, 403, 404, 409, 410, 501}


class Connector:
    """Keeps a program connected for a sandbox or an agent's run.

    Args:
        path: the route, below /v1.
        loop: the event loop in which functions that are coroutines run. Default: the connection's own.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        path: str,
        functions: Mapping[str, Function],
        loop: Optional[asyncio.AbstractEventLoop] = None,
    ) -> None:
        self._endpoint, self._path, self._functions, self._users = endpoint, path, dict(functions), loop
        self.ready: "Future[None]" = Future()
        self._closed = False
        self._own = asyncio.new_event_loop()
        self._calls: Dict[str, Any] = {}
        self._thread = threading.Thread(target=self._run, name="pandastack-tools", daemon=True)
        self._thread.start()

    @property
    def connects(self) -> bool:
        """It is connected, or will be again; not when it was closed, or is not wanted any more."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Leaves. Calls in flight are interrupted."""
        self._closed = True
        try:
            self._own.call_soon_threadsafe(self._stop)
        except RuntimeError:  # it has ended
            pass

    def _stop(self) -> None:
        for task in asyncio.all_tasks(self._own):
            task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._own)
        try:
            self._own.run_until_complete(self._stay())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            if not self.ready.done():
                self.ready.set_exception(error)
        finally:
            if not self.ready.done():
                self.ready.set_exception(APIConnectionError("the connection for tools was closed"))
            self._own.close()

    async def _stay(self) -> None:
        import aiohttp

        wait = _FIRST_WAIT
        async with aiohttp.ClientSession(headers=self._endpoint.headers()) as session:
            while not self._closed:
                try:
                    async with session.ws_connect(self._endpoint.url + self._path, max_msg_size=0, heartbeat=20) as line:
                        wait = _FIRST_WAIT
                        wanted = await self._talk(line)
                    if not wanted:
                        return
                    if not self.ready.done():
                        raise APIConnectionError("the connection for tools broke before calls were taken")
                except aiohttp.WSServerHandshakeError as error:
                    if not self.ready.done() or error.status in _GONE:
                        raise _refused(error) from None
                except (aiohttp.ClientError, OSError) as error:
                    if not self.ready.done():
                        raise APIConnectionError(f"the server can't be reached: {error}") from None
                await asyncio.sleep(wait)
                wait = min(wait * 2, _MOST_WAIT)

    async def _talk(self, line: Any) -> bool:
        """False when the server does not want this program any more."""
        try:
            async for message in line:
                if message.type.name != "TEXT":
                    continue
                try:
                    said = json.loads(message.data)
                except ValueError:
                    said = None
                if not isinstance(said, dict):
                    break  # what speaks like that is connected to anew
                if said.get("type") == "connected" and not self.ready.done():
                    self.ready.set_result(None)
                elif said.get("type") == "tool_call":
                    self._calls[said["call_id"]] = self._own.create_task(self._answer(line, said))
                elif said.get("type") == "tool_cancel":
                    task = self._calls.get(said["call_id"])
                    if task is not None:
                        task.cancel()
        finally:
            for task in list(self._calls.values()):
                task.cancel()  # nobody waits for them any more
        return bool(line.close_code != 1008)

    async def _answer(self, line: Any, call: Mapping[str, Any]) -> None:
        result: Dict[str, Any] = {"type": "tool_result", "call_id": call["call_id"]}
        tail = ""
        try:
            function = self._functions.get(call.get("tool", ""))
            if function is None:
                raise LookupError(f"this program has no function {call.get('tool')}")
            value = await self._call(function, call.get("arguments") or {})
            try:
                tail = ',"result":' + dump(value) + "}"
                if len(tail) > _MOST_RESULT:
                    result["error"] = {"kind": "too_large", "message": "its result has more than 64 MiB of JSON", "hint": "give less, or in parts"}
                    tail = ""
            except (TypeError, ValueError, RecursionError) as error:
                result["error"] = {"kind": "bad_result", "message": f"what it gave cannot be JSON: {error}"}
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            result["error"] = {"kind": _kind(error), "message": _words(error)}
        finally:
            self._calls.pop(call["call_id"], None)
        text = json.dumps(result)
        try:
            await line.send_str(text[:-1] + tail if tail else text)
        except (ConnectionError, RuntimeError):
            pass  # it broke; the server has told so already

    async def _call(self, function: Function, arguments: Mapping[str, Any]) -> Any:
        bound = function.bind(arguments)
        if function.waits:
            if self._users is None or self._users.is_closed():
                return await function.function(**bound)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(function.function(**bound), self._users))
        done: "asyncio.Future[Any]" = self._own.create_future()
        own = weakref.ref(self._own)

        def settle(value: Any, error: Optional[BaseException]) -> None:
            if not done.done():
                done.set_exception(error) if error is not None else done.set_result(value)

        def run() -> None:
            value, failure = None, None
            try:
                value = function.function(**bound)
            except BaseException as error:
                failure = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
            loop = own()
            try:
                if loop is not None:
                    loop.call_soon_threadsafe(settle, value, failure)
            except RuntimeError:
                pass  # the connection was closed meanwhile

        threading.Thread(target=run, name=f"pandastack-tool-{function.name}", daemon=True).start()
        return await done


def _kind(error: BaseException) -> str:
    kind = getattr(error, "kind", None)
    return kind if isinstance(kind, str) and kind else "failed"


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as other:
        text = f"its str() raised {type(other).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _refused(error: Any) -> PandastackError:
    words = f"the server does not take this program's functions: {error.message} (status {error.status})"
    return error_from_response(error.status, {}, words.encode())
