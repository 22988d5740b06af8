"""How values become results: the display hook, display(), and the formatter between them and the link."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter

from . import bundles, notebook
from .link import Link
from .notebook import Notebook
from .streams import Streams
from .time_limit import OutOfTime, restart, time_limit

#: How long one representation of an object (its repr, its HTML, …) may take, in seconds.
FORMATTER_SECONDS = 30.0

#: Values whose representation is known to be quick, so that no timer is needed.
_QUICK = (bool, int, float, complex, str, bytes, type(None))

Bundle = tuple[dict[str, Any], dict[str, Any]]


class Outbox:
    """Turns bundles into result frames of the run that is under way.

    Updates of a display (``handle.update()``) are kept, and the last one is sent when the cell ends: a progress
    display that changes a thousand times is two results, not a thousand. A notebook is told of each.
    """

    def __init__(self, link: Link, streams: Streams, notebook: Notebook) -> None:
        self._link, self._streams = link, streams
        self.notebook = notebook
        self._run = ""
        self._updates: dict[str, Bundle] = {}

    def begin(self, run: str) -> None:
        self._run = run
        self._updates.clear()

    def put(self, data: dict[str, Any], metadata: dict[str, Any] | None, *, last: bool = False) -> None:
        if not (self._link.connected or self._link.mute):  # a process that the user forked: it has only its output
            if isinstance(data.get("text/plain"), str):
                print(data["text/plain"])
            return
        frame = bundles.result_frame(self._run, data, metadata, last=last)
        if frame is not None:
            self._streams.flush()
            if last:
                self._link.hold(frame)
            else:
                self._link.send_encoded(frame)

    def update(self, display_id: str, data: dict[str, Any], metadata: dict[str, Any] | None) -> None:
        self._updates[display_id] = (data, metadata or {})

    def send_updates(self) -> None:
        updates, self._updates = self._updates, {}
        for data, metadata in updates.values():
            self.put(data, metadata)


class ResultHook(DisplayHook):
    """sys.displayhook: sends the value of the last expression."""

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        self.shell.outbox.put(format_dict, md_dict, last=True)

    def finish_displayhook(self) -> None:
        self._is_active = False

    def log_output(self, format_dict: dict[str, Any]) -> None:
        # History keeps the text only: pictures would stay in memory for the life of the context.
        text = format_dict.get("text/plain")
        if isinstance(text, str):
            self.shell.history_manager.output_hist_reprs[self.prompt_count] = bundles.shorten(text, 4096)


class ResultPublisher(DisplayPublisher):
    """display(): sends a result at once."""

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        source: Any = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        self._validate_data(data, metadata)
        display_id = (transient or {}).get("display_id")
        front = self.shell.outbox.notebook
        if front.run and display_id is not None:
            content = {"data": notebook.plain(data), "metadata": notebook.plain(metadata or {}), "transient": {"display_id": display_id}}
            front.send("update_display_data" if update else "display_data", content)
        elif update and display_id is not None:
            self.shell.outbox.update(display_id, data, metadata)
        else:
            self.shell.outbox.put(data, metadata)

    def clear_output(self, wait: bool = False) -> None:
        """A notebook clears; for others results and output already delivered stay."""
        self.shell.outbox.notebook.send("clear_output", {"wait": wait})


class BoundedFormatter(DisplayFormatter):
    """Formats an object within a time, whatever its methods do.

    ``special`` maps a class to the function that makes the whole bundle of its objects, in place of their own methods;
    ``after`` maps one to a function that is called with the finished bundle; ``unhurried`` holds classes that may take
    their time, because drawing them is work and not a mistake.

    A representation that fails or takes too long is left out with a note on stderr, the others stay.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.special: dict[type, Callable[[Any], Bundle]] = {}
        self.after: dict[type, Callable[[Any, dict[str, Any]], Any]] = {}
        self.unhurried: set[type] = set()
        self._current = ""

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> Bundle:
        if type(obj) in _QUICK:
            return super().format(obj, include=include, exclude=exclude)
        maker = _for_type(self.special, obj)
        if maker is not None:
            try:
                return maker(obj)
            except Exception as error:
                note(f"showing a {_name(obj)} raised {describe(error)}")
        hurried = not any(kind in self.unhurried for kind in type(obj).__mro__)
        with time_limit(FORMATTER_SECONDS) if hurried else nullcontext():
            try:
                data, metadata = self._format_each(obj, include, exclude, hurried)
            except OutOfTime:
                note(f"formatting a {_name(obj)} took more than {FORMATTER_SECONDS:.0f} s and was given up")
                data, metadata = {}, {}
        finish = _for_type(self.after, obj)
        if finish is not None:
            finish(obj, data)
        return data, metadata

    def _format_each(self, obj: Any, include: Any, exclude: Any, hurried: bool) -> Bundle:
        def wanted(mime: str) -> bool:
            return (not include or mime in include) and (not exclude or mime not in exclude)

        if self._bounded(self.ipython_display_formatter, obj, hurried):
            return {}, {}  # the object displayed itself
        made = self._bounded(self.mimebundle_formatter, obj, hurried, include=include, exclude=exclude)
        data, metadata = made if made else ({}, {})
        data = {mime: value for mime, value in data.items() if wanted(mime)}
        metadata = {mime: value for mime, value in (metadata or {}).items() if mime in data}
        for mime, formatter in self.formatters.items():
            if not wanted(mime) or (mime in data and not _registered(formatter, obj)):
                continue
            value = self._bounded(formatter, obj, hurried)
            extra = None
            if isinstance(value, tuple) and len(value) == 2:
                value, extra = value
            if value is None and mime == "text/plain":
                value = f"<{_name(obj)} object at {id(obj):#x}, whose repr failed>"
            if value is not None:
                data[mime] = value
            if extra is not None:
                metadata[mime] = extra
        return data, metadata

    def _bounded(self, formatter: Any, obj: Any, hurried: bool, **options: Any) -> Any:
        self._current = getattr(formatter, "print_method", "") or type(formatter).__name__
        try:
            made = formatter(obj, **options)
        except OutOfTime:
            note(f"{self._current} of a {_name(obj)} took more than {FORMATTER_SECONDS:.0f} s and was given up")
            made = None
        else:
            if made is None:
                return None
        if hurried:
            restart(FORMATTER_SECONDS)
        return made

    def failed(self, error: BaseException) -> None:
        """Note that a representation raised; IPython calls it in place of showing a traceback."""
        note(f"{self._current or 'a formatter'} raised {describe(error)}")


def note(words: str) -> None:
    """A line on stderr from the kernel itself."""
    print(f"[kernel] {words}", file=sys.stderr)


def describe(error: BaseException) -> str:
    """``Type: message`` in one line, also for an error whose ``__str__`` raises."""
    try:
        text = str(error)
    except Exception:
        text = "<its str() failed>"
    return bundles.shorten(f"{type(error).__name__}: {text}" if text else type(error).__name__, 2000)


def publish(shell: Any, obj: Any) -> None:
    """Send ``obj`` as display() does."""
    data, metadata = shell.display_formatter.format(obj)
    if data:
        shell.display_pub.publish(data, metadata)


def _name(obj: Any) -> str:
    return type(obj).__name__


def _registered(formatter: Any, obj: Any) -> bool:
    try:
        formatter.lookup(obj)
    except KeyError:
        return False
    return True


def _for_type(table: dict[type, Any], obj: Any) -> Any:
    return next((table[kind] for kind in type(obj).__mro__ if kind in table), None)


__all__ = [
    "BoundedFormatter",
    "Outbox",
    "ResultHook",
    "ResultPublisher",
    "describe",
    "note",
    "publish",
]
