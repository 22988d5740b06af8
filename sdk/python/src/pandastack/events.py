"""Events of a running cell or process, and how a stream of them is read and put together.

Nothing here touches a socket: bytes go in, events and outcomes come out.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from .execution import Execution, Result, _ending
from .records import ExecResult

__all__ = ["Event"]

KEEP_HEAD = 256 * 1024  # characters of a stream kept from its start, as in the sandbox
KEEP_TAIL = 768 * 1024  # and from its end
MAX_LINE = 64 * 1024 * 1024


@dataclass(frozen=True)
class Event:
    """One entry of the numbered output of a cell or a process. Only the fields of its type are set.

    Attributes:
        type: "started", "stdout", "stderr", "result", "input_request", "gap", "end" (of a cell) or "exit" (of a
            process). New types may appear: skip what you don't know.
        seq: its number; attach with ``after=seq`` to go on behind it.
        text: stdout, stderr: what was written.
        raw: stdout, stderr of a process: the bytes, when they are no UTF-8; `text` has replacement characters then.
        result: result: the object shown.
        prompt: input_request: what the cell asked; nobody can answer it, the cell gets an error.
        stream, dropped: gap: so many bytes of "stdout" or "stderr" were not kept.
        execution_id, execution_count, pid: started.
        data: end, exit: the rest of the outcome as it came.
    """

    type: str
    seq: int = 0
    text: Optional[str] = None
    raw: Optional[bytes] = None
    result: Optional[Result] = None
    prompt: Optional[str] = None
    stream: Optional[str] = None
    dropped: int = 0
    execution_id: Optional[str] = None
    execution_count: Optional[int] = None
    pid: Optional[int] = None
    data: Dict[str, Any] = field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        """True for the event after which nothing follows."""
        return self.type in ("end", "exit")

    @property
    def content(self) -> bytes:
        """stdout, stderr: what was written, as bytes."""
        return self.raw if self.raw is not None else (self.text or "").encode("utf-8", "surrogatepass")

    @staticmethod
    def from_wire(kind: str, body: Mapping[str, Any], seq: Optional[int] = None) -> "Event":
        """Reads an event's JSON; `kind` and `seq` come from the stream and yield to what the JSON says."""
        kind = body.get("type") or kind
        number = body.get("seq")
        text, raw = body.get("text"), None
        if kind in ("stdout", "stderr"):
            if body.get("raw"):  # the text beside it is empty
                raw = base64.b64decode(body["raw"])
                text = raw.decode("utf-8", "replace")
            text = text or ""
        result = None
        if kind == "result":
            result = Result.from_wire(body.get("data") or {}, body)
        data: Dict[str, Any] = {}
        if kind in ("end", "exit"):
            inner = body.get("execution" if kind == "end" else "exit")
            data = dict(inner) if isinstance(inner, dict) else dict(body)
        return Event(
            type=kind,
            seq=number if isinstance(number, int) else (seq or 0),
            text=text,
            raw=raw,
            result=result,
            prompt=body.get("prompt"),
            stream=body.get("stream"),
            dropped=body.get("dropped") or 0,
            execution_id=body.get("execution_id") or None,
            execution_count=body.get("execution_count") or None,
            pid=body.get("pid"),
            data=data,
        )


class EventDecoder:
    """Reads server-sent events from pieces of bytes cut anywhere."""

    def __init__(self, make: Optional[Callable[[str, Mapping[str, Any], Optional[int]], Any]] = None) -> None:
        """`make` makes what is given of an event's name, data and number. Default: an `Event`."""
        self.last_id: Optional[int] = None
        self._make = make or Event.from_wire
        self._rest = b""
        self._name = ""
        self._id: Optional[int] = None
        self._data: List[bytes] = []

    def feed(self, piece: bytes) -> Iterator[Any]:
        """The events that this piece completes. Raises ValueError for data that is no JSON object."""
        buffered = self._rest + piece
        lines = buffered.split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE:
            raise ValueError(f"a line of the event stream is longer than {MAX_LINE} bytes")
        for line in lines:
            event = self._line(line[:-1] if line.endswith(b"\r") else line)
            if event is not None:
                yield event

    def _line(self, line: bytes) -> Optional[Any]:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"event":
            self._name = value.decode("utf-8", "replace")
        elif name == b"data":
            self._data.append(value)
        elif name == b"id" and value.isdigit():
            self._id = int(value)
        return None  # a comment, or a field that we have no use for

    def _dispatch(self) -> Optional[Any]:
        name, data, number = self._name, self._data, self._id
        self._name, self._data, self._id = "", [], None
        if not data:
            return None
        body = json.loads(b"\n".join(data))
        if not isinstance(body, dict):
            raise ValueError("the data of an event is no JSON object")
        self.last_id = self.last_id if number is None else number
        return self._make(name or "message", body, number)


class Capture:
    """The text of one stream, its head and tail kept, what lies between counted."""

    def __init__(self, head: int = KEEP_HEAD, tail: int = KEEP_TAIL) -> None:
        self._head_limit, self._tail_limit = head, tail
        self._head: List[str] = []
        self._head_size = 0
        self._tail: List[str] = []
        self._tail_size = 0
        self.dropped = 0

    def add(self, text: str) -> None:
        room = self._head_limit - self._head_size
        if room > 0 and not self.dropped:
            self._head.append(text[:room])
            self._head_size += min(room, len(text))
            text = text[room:]
        if not text:
            return
        self._tail.append(text)
        self._tail_size += len(text)
        if self._tail_size > 2 * self._tail_limit:
            self._cut()

    def gap(self, dropped: int) -> None:
        """So many bytes were left out before what follows."""
        self._head += self._tail
        self._head_size = self._head_limit
        self._tail, self._tail_size = [], 0
        self.dropped += dropped

    def _cut(self) -> None:
        joined = "".join(self._tail)
        kept = joined[-self._tail_limit :]
        self.dropped += len(joined[: len(joined) - len(kept)].encode("utf-8", "surrogatepass"))
        self._tail, self._tail_size = [kept], len(kept)

    def text(self) -> str:
        if self._tail_size > self._tail_limit:
            self._cut()
        if not self.dropped:
            return "".join(self._head) + "".join(self._tail)
        return f"{''.join(self._head)}\n[… {self.dropped} bytes dropped …]\n{''.join(self._tail)}"


class ExecutionAssembly:
    """Puts the events of a cell together into an Execution, as if it had been waited for."""

    def __init__(self, execution_id: str) -> None:
        self._id = execution_id
        self._count: Optional[int] = None
        self._streams = {"stdout": Capture(), "stderr": Capture()}
        self._last: List[Result] = []
        self._displayed: List[Result] = []
        self.execution: Optional[Execution] = None

    def add(self, event: Event) -> None:
        if event.type in self._streams:
            self._streams[event.type].add(event.text or "")
        elif event.type == "gap" and event.stream in self._streams:
            self._streams[event.stream].gap(event.dropped)
        elif event.type == "result" and event.result is not None:
            (self._last if event.result.is_last_expression else self._displayed).append(event.result)
        elif event.type == "started":
            self._count = event.execution_count
        elif event.type == "end":
            self.execution = self._finish(event.data)

    def _finish(self, data: Mapping[str, Any]) -> Execution:
        out, err = self._streams["stdout"], self._streams["stderr"]
        fields = _ending(data)
        fields["execution_id"] = fields["execution_id"] or self._id
        fields["execution_count"] = fields["execution_count"] or self._count
        stdout, stderr = out.text(), err.text()
        fields["stdout_dropped"] = fields["stdout_dropped"] or out.dropped
        fields["stderr_dropped"] = fields["stderr_dropped"] or err.dropped
        fields["truncated"] = bool(fields["truncated"] or out.dropped or err.dropped)
        return Execution(results=self._last + self._displayed, stdout=stdout, stderr=stderr, **fields)


class CommandAssembly:
    """Puts the events of a process together into an ExecResult."""

    def __init__(self) -> None:
        self._streams = {"stdout": Capture(), "stderr": Capture()}
        self.ended: Optional[ExecResult] = None

    def add(self, event: Event) -> None:
        if event.type in self._streams:
            self._streams[event.type].add(event.text or "")
        elif event.type == "gap" and event.stream in self._streams:
            self._streams[event.stream].gap(event.dropped)
        elif event.type == "exit":
            self.ended = self._finish(event.data)

    def output(self) -> Tuple[str, str]:
        """stdout and stderr so far."""
        return self._streams["stdout"].text(), self._streams["stderr"].text()

    def _finish(self, data: Mapping[str, Any]) -> ExecResult:
        stdout, stderr = self.output()
        out, err = self._streams["stdout"], self._streams["stderr"]
        out_dropped = data.get("stdout_dropped") or out.dropped
        err_dropped = data.get("stderr_dropped") or err.dropped
        return ExecResult(
            stdout=stdout,
            stderr=stderr,
            exit_code=data.get("exit_code") or 0,
            duration_ms=data.get("duration_ms"),
            truncated=bool(out_dropped or err_dropped),
            stdout_dropped=out_dropped,
            stderr_dropped=err_dropped,
            output_path=data.get("output_path") or None,
            reason=data.get("reason") or "exited",
            signal=data.get("signal") or None,
            hint=data.get("hint") or None,
        )
