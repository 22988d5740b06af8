"""The module `tools`: functions that run outside of the sandbox, as Python.

    from tools import crm
    crm.find_customer(email="ada@example.com")

What there is, the server knows; nothing of it is kept here but the text of the functions. A call travels over a socket of
the guest agent and blocks, other threads go on; `tools.aio` has the same functions to be awaited. A user's own module of the
name `tools` comes first.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib.abc
import importlib.machinery
import json
import os
import socket
import struct
import sys
import threading
from types import ModuleType
from typing import Any

#: Where the agent listens; the zygote is told another place in tests.
ADDRESS = "@pandastack-tools"

#: Calls that one event loop makes at once; more wait.
AT_ONCE = 128

_NAME = "tools"
_AIO = "tools.aio"


class ToolError(Exception):
    """A call that did not work.

    Attributes:
        kind: "failed" (the tool itself raised, or answered with an error), "invalid" (wrong arguments), "denied",
            "timeout", "rate_limited", "interrupted" (whether it was carried out is not known), "unavailable",
            "not_found", "too_large" or "bad_result" (what it gave is no JSON).
        tool: which one.
        hint: what to do about it, or None.
    """

    def __init__(self, message: str, kind: str = "failed", tool: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.kind, self.tool, self.hint = kind, tool, hint

    def __str__(self) -> str:
        words = f"{self.tool}: {self.args[0]}" if self.tool else str(self.args[0])
        return f"{words} ({self.hint})" if self.hint else words


class ToolDenied(ToolError, PermissionError):
    """The policy refuses the call, or somebody did who was asked, or nobody answered in time."""

    __str__ = ToolError.__str__


class ToolTimeout(ToolError, TimeoutError):
    """The tool did not answer in time; whether it did what it was asked is not known."""

    __str__ = ToolError.__str__


_CLASSES: dict[str, type[ToolError]] = {"denied": ToolDenied, "timeout": ToolTimeout}


def _address() -> str:
    return "\0" + ADDRESS[1:] if ADDRESS.startswith("@") else ADDRESS


def _encode(request: dict[str, Any]) -> bytes:
    body = json.dumps(request, default=_plain, separators=(",", ":")).encode()
    return struct.pack(">II", len(body), os.getsid(0)) + body


def _plain(value: Any) -> Any:
    """What json does not know: arrays, dates, dataclasses and such as their plain forms."""
    for name in ("tolist", "isoformat", "model_dump"):
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            return method()
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, (bytes, bytearray)):
        raise TypeError("bytes are no JSON: give them as text, for instance base64.b64encode(data).decode()")
    raise TypeError(f"{type(value).__name__} is no JSON")


def _decode(tool: str | None, body: bytes) -> Any:
    answer = json.loads(body)
    error = answer.get("error")
    if error is None:
        return answer.get("value")
    kind = error.get("kind") or "failed"
    raise _CLASSES.get(kind, ToolError)(error.get("message") or "it failed", kind, tool, error.get("hint"))


def _request(tool: str, arguments: dict[str, Any]) -> bytes:
    given = {name: value for name, value in arguments.items() if value is not ...}
    try:
        return _encode({"op": "call", "tool": tool, "arguments": given})
    except (TypeError, ValueError) as error:
        raise ToolError(f"the arguments cannot be sent: {error}", "invalid", tool) from None


def _nobody() -> ToolError:
    return ToolError("the agent of the sandbox does not answer", "unavailable")


class _Lines:
    """Connections to the agent that no call uses now. One carries one call at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[socket.socket] = []
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        # The parent's: closing this end takes nothing from it.
        self._lock = threading.Lock()
        for line in self._free:
            line.close()
        self._free = []

    def descriptors(self) -> set[int]:
        return {line.fileno() for line in self._free}

    def take(self) -> socket.socket | None:
        with self._lock:
            return self._free.pop() if self._free else None

    def give(self, line: socket.socket) -> None:
        with self._lock:
            if len(self._free) < AT_ONCE:
                self._free.append(line)
                return
        line.close()

    def ask(self, message: bytes) -> bytes:
        """One round trip. An exception in the middle, such as an interrupt, closes the connection: that cancels the call."""
        line, pid = self.take(), os.getpid()
        fresh = line is None
        if line is None:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if fresh:
                line.connect(_address())
            line.sendall(message)
            head = self._read(line, 4)
            answer = self._read(line, struct.unpack(">I", head)[0])
        except (ConnectionError, FileNotFoundError):
            line.close()
            raise _nobody() from None
        except BaseException:
            line.close()
            raise
        if os.getpid() == pid:
            self.give(line)
        return answer

    @staticmethod
    def _read(line: socket.socket, size: int) -> bytes:
        if size <= 1 << 16:
            data = line.recv(size, socket.MSG_WAITALL)
            if len(data) == size:
                return data
        else:
            data = b""
        whole = bytearray(data)
        while len(whole) < size:
            piece = line.recv(min(size - len(whole), 1 << 20))
            if not piece:
                raise ConnectionResetError("the agent closed the connection")
            whole += piece
        return bytes(whole)


_lines = _Lines()


def own_sockets() -> set[int]:
    """Descriptors that are not the user's."""
    return _lines.descriptors()


def _call(tool: str, arguments: dict[str, Any]) -> Any:
    return _decode(tool, _lines.ask(_request(tool, arguments)))


_gates: dict[Any, asyncio.Semaphore] = {}


async def _acall(tool: str, arguments: dict[str, Any]) -> Any:
    loop = asyncio.get_running_loop()
    for old in [other for other in _gates if other is not loop and other.is_closed()]:
        del _gates[old]
    message = _request(tool, arguments)
    async with _gates.setdefault(loop, asyncio.Semaphore(AT_ONCE)):
        line = _lines.take()
        fresh = line is None
        if line is None:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.setblocking(False)
            if fresh:
                await loop.sock_connect(line, _address())
            await loop.sock_sendall(line, message)
            size = struct.unpack(">I", await _aread(loop, line, 4))[0]
            answer = await _aread(loop, line, size)
            line.setblocking(True)
        except (ConnectionError, FileNotFoundError):
            line.close()
            raise _nobody() from None
        except BaseException:  # with cancellation the call is cancelled, too
            line.close()
            raise
        _lines.give(line)
    return _decode(tool, answer)


async def _aread(loop: asyncio.AbstractEventLoop, line: socket.socket, size: int) -> bytes:
    whole = bytearray()
    while len(whole) < size:
        piece = await loop.sock_recv(line, min(size - len(whole), 1 << 20))
        if not piece:
            raise ConnectionResetError("the agent closed the connection")
        whole += piece
    return bytes(whole)


class _Catalogue:
    """What there is, as the server says. Asked for at the first use, and again when a name is not in it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tools: dict[str, dict[str, Any]] | None = None
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        self._lock = threading.RLock()

    def tools(self, *, anew: bool = False) -> dict[str, dict[str, Any]]:
        with self._lock:
            if self._tools is None or anew:
                found = _decode(None, _lines.ask(_encode({"op": "list"})))
                self._tools = {tool["name"]: tool for tool in found["tools"]}
            return self._tools

    def names_in(self, space: str, *, anew: bool = False) -> list[str]:
        """The next parts of the names that begin with a namespace, "" for all."""
        prefix = space + "." if space else ""
        return sorted({name[len(prefix) :].split(".")[0] for name in self.tools(anew=anew) if name.startswith(prefix)})


_catalogue = _Catalogue()


def search(words: str, limit: int = 10) -> list[str]:
    """Find tools by what they do, the nearest first.

    Args:
        words: what you want to do, as in "customer by mail address".
        limit: so many at most.

    Returns:
        Lines such as ``crm.find_customer(email: str) -> dict: Find a customer.`` `help(tools.crm.find_customer)` has the rest.
    """
    wanted = [word for word in _split(words) if len(word) > 1]
    scored = []
    for name, tool in _catalogue.tools(anew=True).items():
        title, text = _split(name), _split(tool.get("summary", "") + " " + tool.get("doc", ""))
        score = 0.0
        for word in wanted:
            if word in title:
                score += 4
            elif any(word in part or part in word for part in title if len(part) > 2):
                score += 2
            if word in text:
                score += 1
            elif difflib.get_close_matches(word, title, 1, 0.8):
                score += 1
        if score:
            scored.append((-score, name))
    return [f"{name}{_catalogue.tools()[name]['signature']}: {_catalogue.tools()[name].get('summary', '')}" for _, name in sorted(scored)[:limit]]


def _split(text: str) -> list[str]:
    spaced = "".join(c if c.isalnum() else " " for c in "".join(" " + c if c.isupper() else c for c in text))
    return spaced.lower().split()


class _Tools(ModuleType):
    """`tools`, `tools.aio` and each namespace in them."""

    def __init__(self, name: str, space: str, waits: bool) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._space, self._waits = space, waits

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        try:
            lines = [f"{name}{tool['signature']}: {tool.get('summary', '')}" for name, tool in sorted(_catalogue.tools().items())]
        except ToolError as error:
            return f"Tools of this sandbox: {error}"
        prefix = self._space + "." if self._space else ""
        mine = [line for line in lines if line.startswith(prefix)]
        more = f"\n… and {len(mine) - 50} more: tools.search('what you want to do')" if len(mine) > 50 else ""
        return "Functions that run outside of this sandbox:\n\n" + "\n".join(mine[:50]) + more

    def __dir__(self) -> list[str]:
        own = ["search", "ToolError", "ToolDenied", "ToolTimeout", "aio"] if not self._space and not self._waits else []
        try:
            return own + _catalogue.names_in(self._space)
        except ToolError:
            return own

    @property
    def __all__(self) -> list[str]:
        return self.__dir__()  # what ``from tools import *`` brings

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = self._find(name)
        setattr(self, name, found)
        return found

    def _find(self, name: str) -> Any:
        full = f"{self._space}.{name}" if self._space else name
        for anew in (False, True):
            tools = _catalogue.tools(anew=anew)
            if full in tools:
                return _function(tools[full], self.__name__, self._waits)
            if any(other.startswith(full + ".") for other in tools):
                return importlib.import_module(f"{self.__name__}.{name}")
        near = difflib.get_close_matches(name, _catalogue.names_in(self._space), 3, 0.5)
        hint = f"; did you mean {', '.join(near)}?" if near else "; tools.search('…') finds tools by what they do"
        raise AttributeError(f"there is no tool {full!r}{hint}")


def _function(tool: dict[str, Any], module: str, waits: bool) -> Any:
    """The function of a tool. Its text comes from the server."""
    source = tool["source"]
    if waits:
        head, call, tail = source.rpartition("return _call(")
        source = "async " + head + "return await _call(" + tail if call else source
    space: dict[str, Any] = {"__name__": module, "_call": _acall if waits else _call}
    text = f"from __future__ import annotations\nfrom typing import *\n{tool.get('types', '')}\n{source}"
    exec(compile(text, f"<tool {tool['name']}>", "exec"), space)
    function = space[tool["python"]]
    function.__qualname__ = function.__name__
    return function


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the modules. It stands behind all others, so that a user's own `tools` is found first."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != _NAME and not (name.startswith(_NAME + ".") and isinstance(sys.modules.get(_NAME), _Tools)):
            return None
        _, waits, space = self._parts(name)
        if space:
            try:
                if not any(tool.startswith(space + ".") for tool in _catalogue.tools(anew=True)):
                    return None
            except ToolError as error:
                raise ImportError(str(error), name=name) from None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    @staticmethod
    def _parts(name: str) -> tuple[str, bool, str]:
        waits = name == _AIO or name.startswith(_AIO + ".")
        root = _AIO if waits else _NAME
        return root, waits, name[len(root) + 1 :]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        _, waits, space = self._parts(spec.name)
        module = _Tools(spec.name, space, waits)
        if not space and not waits:
            module.__dict__.update(search=search, ToolError=ToolError, ToolDenied=ToolDenied, ToolTimeout=ToolTimeout)
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def install(address: str = "") -> None:
    """Make `import tools` work, in this process and its forks."""
    global ADDRESS
    ADDRESS = address or ADDRESS
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
