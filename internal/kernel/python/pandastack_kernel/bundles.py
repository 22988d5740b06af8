"""MIME bundles as they go over the wire: every value a string, nothing larger than a frame."""

from __future__ import annotations

import base64
import json
from typing import Any

from .link import encode

#: The largest result, in bytes of JSON. A larger one is replaced by words that say so.
BUNDLE_LIMIT = 20 << 20
#: The longest text/plain, in characters. Head and tail are kept.
TEXT_LIMIT = 1 << 20
#: The largest text/html, in characters.
HTML_LIMIT = 8 << 20

#: Types whose values are base64, which must reach a data: URL without a newline in it.
BASE64_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"})


def result_frame(run: str, data: dict[str, Any], metadata: dict[str, Any] | None, *, last: bool) -> bytes | None:
    """The encoded result frame of a bundle, or None if there is nothing in it.

    Args:
        run: the id of the run.
        data: MIME type to value; strings, bytes or anything JSON can hold.
        metadata: as IPython gives it, or None.
        last: whether it is the value of the cell's last expression.
    """
    values = {mime: text for mime, value in data.items() if (text := as_string(value)) is not None}
    for mime in values:
        if mime in BASE64_TYPES and any(space in values[mime] for space in "\n\r "):
            values[mime] = "".join(values[mime].split())
    if not values:
        return None
    if "text/plain" in values:
        values["text/plain"] = shorten(values["text/plain"], TEXT_LIMIT)
    if len(values.get("text/html", "")) > HTML_LIMIT:
        _leave_out(values, "text/html", HTML_LIMIT)
    frame = {"op": "result", "id": run, "data": values, "metadata": _plain(metadata or {}), "last": last}
    body = encode(frame)
    while len(body) > BUNDLE_LIMIT:
        others = [mime for mime in values if mime != "text/plain"]
        if not others:
            values["text/plain"] = shorten(values["text/plain"], TEXT_LIMIT // 8)
            frame["metadata"] = {}
            return encode(frame)
        _leave_out(values, max(others, key=lambda mime: len(values[mime])), BUNDLE_LIMIT)
        body = encode(frame)
    return body


def as_string(value: Any) -> str | None:
    """A bundle value as the string the wire asks for: base64 without newlines for bytes, JSON for objects."""
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return None


def shorten(text: str, limit: int) -> str:
    """``text`` in at most about ``limit`` characters: a head of four fifths, a tail, and how much is missing."""
    if len(text) <= limit:
        return text
    head, tail = limit * 4 // 5, limit // 5
    return f"{text[:head]}\n… [{len(text) - head - tail} characters left out] …\n{text[-tail:]}"


def _leave_out(values: dict[str, str], mime: str, limit: int) -> None:
    size = len(values.pop(mime))
    words = f"[{mime} of {size / 1e6:.1f} MB left out: more than the limit of {limit / 1e6:.0f} MB for a result]"
    values["text/plain"] = f"{values['text/plain']}\n{words}" if "text/plain" in values else words


def _plain(metadata: dict[str, Any]) -> dict[str, Any]:
    try:
        plain = json.loads(json.dumps(metadata, default=str))
    except (TypeError, ValueError, RecursionError):
        return {}
    return plain if isinstance(plain, dict) else {}
