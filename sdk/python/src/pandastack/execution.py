"""What a cell gives back: `Execution`, and a `Result` for each object that it showed."""

from __future__ import annotations

import html as _html
import json as _json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence

__all__ = ["Execution", "Result"]

# MIME types that have an accessor of their own; the others are in Result.extra.
_NAMED = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "text/latex": "latex",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/svg+xml": "svg",
    "application/json": "json",
    "application/pdf": "pdf",
    "application/javascript": "javascript",
}


@dataclass(frozen=True)
class Result:
    """One object that a cell showed: its value, a figure, or what it gave to `display`.

    Attributes:
        data: the representations by MIME type. Every value is a str: text as it is, images and PDF in base64
            without newlines, JSON types as encoded JSON.
        is_last_expression: True for the value of the cell's last line.
        metadata: what the kernel said about the representations, such as an image's width.
    """

    data: Dict[str, str] = field(default_factory=dict)
    is_last_expression: bool = False
    metadata: Dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> Optional[str]:
        """The plain text (its repr), or None. A figure has none."""
        return self.data.get("text/plain")

    @property
    def html(self) -> Optional[str]:
        """The HTML, for a DataFrame its ``<table>``, or None."""
        return self.data.get("text/html")

    @property
    def markdown(self) -> Optional[str]:
        """The Markdown, or None."""
        return self.data.get("text/markdown")

    @property
    def latex(self) -> Optional[str]:
        """The LaTeX, or None."""
        return self.data.get("text/latex")

    @property
    def png(self) -> Optional[str]:
        """The PNG image in base64, or None."""
        return self.data.get("image/png")

    @property
    def jpeg(self) -> Optional[str]:
        """The JPEG image in base64, or None."""
        return self.data.get("image/jpeg")

    @property
    def svg(self) -> Optional[str]:
        """The SVG image as XML, or None."""
        return self.data.get("image/svg+xml")

    @property
    def pdf(self) -> Optional[str]:
        """The PDF in base64, or None."""
        return self.data.get("application/pdf")

    @property
    def javascript(self) -> Optional[str]:
        """The JavaScript, or None."""
        return self.data.get("application/javascript")

    @property
    def json(self) -> Any:
        """The JSON representation, decoded, or None."""
        encoded = self.data.get("application/json")
        if encoded is None:
            return None
        try:
            return _json.loads(encoded)
        except ValueError:
            return encoded

    @property
    def chart(self) -> Optional[str]:
        """The picture: the PNG, else the JPEG (both base64), else the SVG (XML), else None."""
        for picture in (self.png, self.jpeg, self.svg):
            if picture is not None:
                return picture
        return None

    @property
    def extra(self) -> Dict[str, str]:
        """The representations without an accessor of their own, such as plotly's, by MIME type."""
        return {mime: value for mime, value in self.data.items() if mime not in _NAMED}

    def __repr__(self) -> str:
        last = ", is_last_expression=True" if self.is_last_expression else ""
        text = f", text={_short(self.text)}" if self.text is not None else ""
        return f"Result({', '.join(self.data) or 'empty'}{text}{last})"

    def _repr_html_(self) -> str:
        return _show(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, Any]:
        """What a notebook shows. HTML made in a sandbox is framed, so that its scripts can't touch the notebook."""
        bundle: Dict[str, Any] = {"text/plain": self.text if self.text is not None else repr(self)}
        for mime in ("image/png", "image/jpeg", "text/latex"):
            if mime in self.data:
                bundle[mime] = self.data[mime]
        if self.html is not None or (self.svg is not None and self.png is None and self.jpeg is None):
            bundle["text/html"] = _show(self)
        return bundle

    @staticmethod
    def from_wire(item: Mapping[str, Any], meta: Optional[Mapping[str, Any]] = None) -> "Result":
        """Reads a bundle by MIME type, or the older ``{"type": mime, "data": value}``."""
        if isinstance(item.get("type"), str) and "data" in item:
            item = {item["type"]: item["data"]}
        meta = meta or {}
        return Result(
            data={mime: _string(value) for mime, value in item.items()},
            is_last_expression=bool(meta.get("is_last_expression")),
            metadata=dict(meta.get("metadata") or {}),
        )


@dataclass(frozen=True)
class Execution:
    """The outcome of a cell.

    Attributes:
        results: the last expression's value first, then what was displayed, in order; [] when nothing was shown.
        stdout, stderr: what was written, always str; a traceback is in `error` only.
        error: None when all went well, else the formatted traceback, or words for a deadline or a dead kernel.
        error_name, error_value: the exception's class and its message, None without an exception.
        end: "ok", "error" (it raised), "timeout", "interrupted", "oom" (killed for its memory) or "kernel_died".
        state_survived: True when the variables are still there.
        exit_code: 0 when `end` is "ok", else 1.
        duration_ms: how long it ran, milliseconds, None when unknown.
        execution_id: the id it ran under; the same id never runs twice.
        execution_count: the cell's number in its context, None when unknown.
        truncated: True when output was left out; `stdout_dropped` and `stderr_dropped` count the bytes left out in
            the middle, `output_path` is the file in the sandbox that has the whole of it, or None.
        results_dropped: results that were left out: too many, too large, or the server held too much output at once.
        step: how a cell that had to be stopped was: "interrupt", "terminate" or "kill"; else None.
    """

    results: List[Result] = field(default_factory=list)
    stdout: str = ""
    stderr: str = ""
    error: Optional[str] = None
    error_name: Optional[str] = None
    error_value: Optional[str] = None
    end: str = "ok"
    state_survived: bool = True
    exit_code: int = 0
    duration_ms: Optional[float] = None
    execution_id: Optional[str] = None
    execution_count: Optional[int] = None
    truncated: bool = False
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    output_path: Optional[str] = None
    results_dropped: int = 0
    step: Optional[str] = None

    @property
    def text(self) -> Optional[str]:
        """The first result's plain text: the repr of the last expression, or None."""
        return self._first("text/plain")

    @property
    def png(self) -> Optional[str]:
        """The first PNG in base64 without newlines, or None."""
        return self._first("image/png")

    @property
    def html(self) -> Optional[str]:
        """The first HTML, or None."""
        return self._first("text/html")

    def _first(self, mime: str) -> Optional[str]:
        return next((r.data[mime] for r in self.results if mime in r.data), None)

    def __repr__(self) -> str:
        parts = [f"end={self.end!r}"]
        if self.text is not None:
            parts.append(f"text={_short(self.text)}")
        if self.stdout:
            parts.append(f"stdout={_short(self.stdout)}")
        if self.stderr:
            parts.append(f"stderr={_short(self.stderr)}")
        if self.results:
            parts.append("results=[" + ", ".join("/".join(_kinds(r)) for r in self.results) + "]")
        if self.error is not None:
            last_line = self.error.strip().rsplit("\n", 1)[-1]
            parts.append(f"error={_short(last_line)}")
        if not self.state_survived:
            parts.append("state_survived=False")
        if self.truncated:
            parts.append("truncated=True")
        return f"Execution({', '.join(parts)})"

    def _repr_html_(self) -> str:
        parts = [_pre(self.stdout)] if self.stdout else []
        if self.stderr:
            parts.append(_pre(self.stderr, "background:rgba(255,160,0,.15)"))
        parts += [_show(result) for result in self.results]
        if self.error is not None:
            parts.append(_pre(self.error, "background:rgba(255,0,0,.12)"))
        return "".join(parts) or "<i>no output</i>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, Any]:
        """What a notebook shows: the output, the results and the error, in this order."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "Execution":
        """Reads the answer of a run. An older server's, with ``exit`` alone, is understood too."""
        items: Sequence[Any] = body.get("results") or []
        metas: Sequence[Any] = body.get("results_meta") or []
        results = [
            Result.from_wire(item, metas[index] if index < len(metas) else None) for index, item in enumerate(items)
        ]
        return Execution(
            results=results,
            stdout=body.get("stdout") or "",
            stderr=body.get("stderr") or "",
            **_ending(body),
        )


def _ending(body: Mapping[str, Any]) -> Dict[str, Any]:
    """The fields of an Execution that are neither output nor results."""
    error = body.get("error") or None
    exit_code = body.get("exit_code")
    if exit_code is None:
        exit_code = body.get("exit") or 0
    end = body.get("end") or ("error" if error or exit_code else "ok")
    return {
        "error": error,
        "error_name": body.get("error_name") or None,
        "error_value": body.get("error_value") if error and body.get("error_name") else None,
        "end": end,
        "state_survived": bool(body.get("state_survived", True)),
        "exit_code": exit_code,
        "duration_ms": body.get("duration_ms"),
        "execution_id": body.get("execution_id") or None,
        "execution_count": body.get("execution_count") or None,
        "truncated": bool(body.get("truncated")),
        "stdout_dropped": body.get("stdout_dropped") or 0,
        "stderr_dropped": body.get("stderr_dropped") or 0,
        "output_path": body.get("output_path") or None,
        "results_dropped": body.get("results_dropped") or 0,
        "step": body.get("step") or None,
    }


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)  # notebook files keep text as a list of lines
    return _json.dumps(value)


def _short(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def _kinds(result: Result) -> List[str]:
    return [_NAMED.get(mime, mime) for mime in result.data] or ["empty"]


def _pre(text: str, style: str = "") -> str:
    return f'<pre style="white-space:pre-wrap;{style}">{_html.escape(text)}</pre>'


def _show(result: Result) -> str:
    """The result as HTML that is safe to put into a page: pictures as data, HTML in a frame without an origin."""
    if result.html is not None:
        rows = result.html.count("<tr")
        height = 420 if "<script" in result.html else min(600, 60 + 26 * max(rows, result.html.count("<br") + 1))
        return (
            f'<iframe sandbox="allow-scripts" style="border:0;width:100%;height:{height}px" '
            f'srcdoc="{_html.escape(result.html, quote=True)}"></iframe>'
        )
    for mime, picture in (("image/png", result.png), ("image/jpeg", result.jpeg)):
        if picture is not None:
            return f'<img src="data:{mime};base64,{_html.escape(picture, quote=True)}">'
    if result.svg is not None:
        from urllib.parse import quote

        return f'<img src="data:image/svg+xml,{quote(result.svg)}">'
    for words in (result.text, result.markdown, result.latex, next(iter(result.data.values()), None)):
        if words is not None:
            return _pre(words)
    return ""
