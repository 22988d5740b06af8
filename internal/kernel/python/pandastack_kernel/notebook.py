"""What front ends of Jupyter ask of a kernel besides running cells: completion, inspection, history, comms, input.

Requests and answers are the contents of Jupyter's messages (https://jupyter-client.readthedocs.io, "Messaging in
Jupyter", protocol 5.4). Nothing here runs for other clients.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import platform
import select
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.utils.tokenutil import token_at_cursor

from .interrupts import exposing, shield
from .link import Link, encode
from .on_import import on_import
from .streams import Streams

#: The largest message, in bytes of JSON, that is less than what a frame may have. A larger one is left out, with a note.
MESSAGE_LIMIT = 20 << 20

Content = dict[str, Any]


class Notebook:
    """Answers requests, and sends messages while a cell or a request of a notebook is under way.

    ``run`` is the id of that cell or request, "" when it is not a notebook's. ``stdin`` tells whether somebody answers
    `input()`.
    """

    def __init__(self, link: Link, streams: Streams) -> None:
        self._link, self._streams = link, streams
        self.run = ""
        self.stdin = False
        self._shell: Any = None
        self._comms: Any = None  # the manager, once the package `comm` is imported
        self._answers: dict[str, Callable[[Content], Content]] = {
            "kernel_info_request": self._kernel_info,
            "complete_request": self._complete,
            "inspect_request": self._inspect,
            "is_complete_request": self._is_complete,
            "history_request": self._history,
            "comm_info_request": self._comm_info,
        }

    def set_up(self, shell: Any) -> None:
        """Once the shell is made."""
        self._shell = shell
        shell.Completer.use_jedi = False  # slow to start, and what it knows of live objects IPython knows, too
        on_import("comm", self._adopt_comms)

    # --- messages -----------------------------------------------------------------------------------------------------

    def send(self, kind: str, content: Content, metadata: Any = None, buffers: Any = None) -> None:
        """Send a message such as "display_data"; nobody gets it outside of what a notebook asked for."""
        if not self.run:
            return
        body = encode(
            {
                "op": "message",
                "id": self.run,
                "type": kind,
                "content": content,
                "metadata": metadata or {},
                "buffers": [base64.b64encode(memoryview(each).cast("B")).decode() for each in buffers or ()],
            }
        )
        self._streams.flush()
        if len(body) > MESSAGE_LIMIT:
            import sys

            print(f"[kernel] a {kind} of {len(body) / 1e6:.1f} MB was left out: more than {MESSAGE_LIMIT >> 20} MiB", file=sys.stderr)
            return
        self._link.send_encoded(body)

    def ask(self, prompt: str, *, password: bool) -> str:
        """What somebody at the notebook types.

        Raises:
            EOFError: nobody is there any more.
        """
        self._streams.flush()
        self._link.send({"op": "input_request", "id": self.run, "prompt": prompt, "password": password})
        while True:
            frame = self._link.take()
            if frame is None:
                # An interrupt raises here, where no frame is half read. One that comes just before the call does not end it,
                # so it is short once one was announced.
                ready, _, _ = select.select([self._link.fileno()], [], [], 0.05 if self._link.interrupted == self.run else None)
                with shield():
                    if ready and not self._link.refill():
                        raise EOFError("nobody is there to answer any more")
            elif frame["op"] == "input" and frame["id"] == self.run:
                return str(frame["value"])
            elif frame["op"] == "interrupt":
                self._link.interrupted = frame["id"]  # the signal follows

    def may_ask(self) -> bool:
        return self.stdin and bool(self.run) and threading.current_thread() is threading.main_thread()

    # --- requests -----------------------------------------------------------------------------------------------------

    @exposing
    def answer(self, kind: str, content: Content, metadata: Any, buffers: list[str]) -> Content:
        """The content of the reply to a request, {} for one that has none.

        Raises:
            ValueError: there is no such request.
        """
        if kind in ("comm_open", "comm_msg", "comm_close"):
            self._comm(kind, content, metadata, buffers)
            return {}
        if kind not in self._answers:
            raise ValueError(f"this kernel does not answer {kind}")
        return {"status": "ok", **self._answers[kind](content)}

    def _kernel_info(self, _: Content) -> Content:
        return {"version": platform.python_version()}

    def _complete(self, content: Content) -> Content:
        code = str(content.get("code", ""))
        cursor = _cursor(content, code)
        with provisionalcompleter():
            found = list(rectify_completions(code, self._shell.Completer.completions(code, cursor)))
        start, end = (found[0].start, found[0].end) if found else (cursor, cursor)
        kinds = [{"start": c.start, "end": c.end, "text": c.text, "type": c.type, "signature": c.signature} for c in found]
        return {
            "matches": [c.text for c in found],
            "cursor_start": start,
            "cursor_end": end,
            "metadata": {"_jupyter_types_experimental": kinds},
        }

    def _inspect(self, content: Content) -> Content:
        code = str(content.get("code", ""))
        name = token_at_cursor(code, _cursor(content, code))
        try:
            data = self._shell.object_inspect_mime(name, detail_level=int(content.get("detail_level", 0)))
        except KeyError:
            return {"found": False, "data": {}, "metadata": {}}
        return {"found": True, "data": data, "metadata": {}}

    def _is_complete(self, content: Content) -> Content:
        status, spaces = self._shell.input_transformer_manager.check_complete(str(content.get("code", "")))
        answer: Content = {"status": status}
        if status == "incomplete":
            answer["indent"] = " " * (spaces or 0)
        return answer

    def _history(self, content: Content) -> Content:
        manager = self._shell.history_manager
        inputs = manager.input_hist_raw if content.get("raw", True) else manager.input_hist_parsed
        lines = [(0, number, text) for number, text in enumerate(inputs) if number and text]
        access = content.get("hist_access_type", "tail")
        if access == "range":
            start, stop = int(content.get("start") or 1), content.get("stop")
            lines = [line for line in lines if start <= line[1] and (stop is None or line[1] < int(stop))]
        elif access == "search":
            pattern = str(content.get("pattern") or "*")
            lines = [line for line in lines if fnmatch.fnmatchcase(line[2], pattern)]
            if content.get("unique"):
                lines = [line for at, line in enumerate(lines) if line[2] not in (later[2] for later in lines[at + 1 :])]
        if access != "range" and content.get("n") is not None:
            lines = lines[-int(content["n"]) :] if int(content["n"]) else []
        if content.get("output"):
            outputs = manager.output_hist_reprs
            return {"history": [(session, number, (text, outputs.get(number))) for session, number, text in lines]}
        return {"history": lines}

    # --- comms --------------------------------------------------------------------------------------------------------

    def _adopt_comms(self, module: ModuleType) -> None:
        """ipywidgets and others speak to their other half in the browser through the package `comm`."""
        from comm import base_comm

        notebook = self

        class Comm(base_comm.BaseComm):
            def publish_msg(self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any) -> None:
                content = {"comm_id": self.comm_id, "data": {} if data is None else data, **keys}
                notebook.send(msg_type, content, metadata, buffers)

        self._comms = base_comm.CommManager()
        module.create_comm = Comm  # type: ignore[attr-defined]
        module.get_comm_manager = lambda: notebook._comms  # type: ignore[attr-defined]

    def _comm(self, kind: str, content: Content, metadata: Any, buffers: list[str]) -> None:
        if self._comms is None:
            if kind == "comm_open":  # the other side waits for nobody
                self.send("comm_close", {"comm_id": content.get("comm_id", ""), "data": {}})
            return
        message = {
            "header": {"msg_type": kind},
            "content": content,
            "metadata": metadata or {},
            "buffers": [base64.b64decode(each) for each in buffers],
        }
        self._shell.events.trigger("pre_execute")
        getattr(self._comms, kind)(None, None, message)
        self._shell.events.trigger("post_execute")

    def _comm_info(self, content: Content) -> Content:
        target = content.get("target_name")
        comms = self._comms.comms if self._comms is not None else {}
        return {
            "comms": {
                name: {"target_name": comm.target_name}
                for name, comm in comms.items()
                if not target or comm.target_name == target
            }
        }


def _cursor(content: Content, code: str) -> int:
    at = content.get("cursor_pos")
    return len(code) if at is None else max(0, min(int(at), len(code)))


def plain(data: Content) -> Content:
    """A bundle as JSON can hold it: bytes in base64, everything else that it cannot hold as text."""
    return json.loads(json.dumps({k: _value(v) for k, v in data.items() if v is not None}, default=str))


def _value(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, (bytes, bytearray, memoryview)) else value
