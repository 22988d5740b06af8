"""The errors that calls raise, and how an answer of the server becomes one.

All of them derive from `PandastackError`. What the server refuses carries `status_code`, `code` (a stable word to
switch on, such as ``not_found``), `hint` (what to do about it) and `response` (the decoded body).
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, Optional

__all__ = [
    "APIConnectionError",
    "AuthError",
    "BadRequestError",
    "CapacityError",
    "CommandError",
    "ConflictError",
    "ExploreError",
    "NotFoundError",
    "PandastackError",
    "RateLimitError",
    "SandboxTimeout",
    "ServerError",
]


class PandastackError(Exception):
    """The base of every error of this package.

    Attributes:
        message: what happened, without the hint.
        status_code: HTTP status of the answer, None when there was none.
        code: the server's word for the kind of failure, None when it gave none.
        hint: the next thing to do, None when there is none.
        field: the request field at fault, None when it is not one field.
        request_id: finds the line in the server's log, None when it gave none.
        retry_after: seconds to wait before another try, None when the server did not say.
        response: the decoded body of the answer (a dict), or its text, or None.
        stdout, stderr: what a command had written when it failed (str), "" otherwise.
    """

    def __init__(
        self,
        message: str,
        *,
        status_code: Optional[int] = None,
        code: Optional[str] = None,
        hint: Optional[str] = None,
        field: Optional[str] = None,
        request_id: Optional[str] = None,
        retry_after: Optional[float] = None,
        response: Any = None,
        stdout: str = "",
        stderr: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status_code = status_code
        self.code = code
        self.hint = hint
        self.field = field
        self.request_id = request_id
        self.retry_after = retry_after
        self.response = response
        self.stdout = stdout
        self.stderr = stderr

    def __str__(self) -> str:
        text = self.message
        if self.field and self.status_code == 400 and not re.search(rf"\b{re.escape(self.field)}\b", text):
            text = f"{self.field}: {text}"
        if self.hint:
            text = f"{text} ({self.hint})"
        if self.request_id and self.status_code is not None and self.status_code >= 500:
            text = f"{text} [request {self.request_id}]"
        return text


class AuthError(PandastackError):
    """401 or 403: no key, a wrong key, or one that may not do this."""


class NotFoundError(PandastackError):
    """404: no such sandbox, context, file, template or process."""


class BadRequestError(PandastackError):
    """Another 4xx: the request is at fault; `field` says where."""


class ConflictError(BadRequestError):
    """409: the state forbids it, or an execution id was used again with other code."""


class RateLimitError(BadRequestError):
    """429: too many requests or sandboxes; `retry_after` says when to try again."""


class ServerError(PandastackError):
    """5xx: the server failed, or cannot do this (501, code ``unsupported``)."""


class CapacityError(ServerError):
    """503 or 507: no room for another sandbox, or on the disk."""


class SandboxTimeout(PandastackError, TimeoutError):
    """A command did not end within its deadline; `stdout` and `stderr` are what it had written by then."""


class ExploreError(PandastackError):
    """No candidate of `explore` succeeded, or could be chosen.

    Attributes:
        exploration: the `Exploration` with all outcomes; its branches are gone.
    """

    def __init__(self, message: str, *, exploration: Any = None) -> None:
        super().__init__(message)
        self.exploration = exploration


class CommandError(PandastackError):
    """A command run with ``check=True`` ended with a status other than 0.

    Attributes:
        exit_code: its status; 128 + n when signal n ended it.
        stdout, stderr: its output (str).
    """

    def __init__(self, message: str, *, exit_code: int, stdout: str = "", stderr: str = "") -> None:
        super().__init__(message, stdout=stdout, stderr=stderr)
        self.exit_code = exit_code


class APIConnectionError(PandastackError, ConnectionError):
    """The server could not be reached, or the connection broke before the answer was complete.

    Attributes:
        sent: False when nothing of the request can have reached the server, so that it is safe to repeat.
        timed_out: True when the server was silent for longer than the call allows.
    """

    def __init__(self, message: str, *, sent: bool = True, timed_out: bool = False, **details: Any) -> None:
        super().__init__(message, **details)
        self.sent = sent
        self.timed_out = timed_out


def _words(value: Any) -> Optional[str]:
    return value if isinstance(value, str) and value else None


def _message_and_details(body: Any) -> "tuple[Optional[str], Mapping[str, Any]]":
    """Finds the words in ``{"error": "…"}``, ``{"message"|"detail": "…"}`` or the nested ``{"error": {…}}``."""
    if not isinstance(body, dict):
        return None, {}
    nested = body.get("error")
    if isinstance(nested, dict):
        words = next((w for w in map(_words, (nested.get(k) for k in ("message", "error", "detail"))) if w), None)
        return words or _words(nested.get("code")), nested
    return next((w for w in map(_words, (body.get(k) for k in ("error", "message", "detail"))) if w), None), body


def _seconds(value: Optional[str]) -> Optional[float]:
    try:
        return float(value) if value else None
    except ValueError:
        return None


def error_from_response(
    status: int, headers: Mapping[str, str], body: bytes, *, runs_code: bool = False
) -> PandastackError:
    """The error that an answer with a status of 400 or more stands for. Header names are lower case."""
    text = body.decode("utf-8", "replace")
    try:
        decoded: Any = json.loads(text)
    except ValueError:
        decoded = text or None
    message, details = _message_and_details(decoded)
    if message is None:
        message = text.strip()[:2000] or f"the server answered {status} with no words"
    code = _words(details.get("code"))
    kind = _class_for(status, code, message, runs_code)
    output = {name: _words(details.get(name)) or "" for name in ("stdout", "stderr")}
    return kind(
        message,
        status_code=status,
        code=code,
        hint=_words(details.get("hint")) or _hint_for(status),
        field=_words(details.get("field")),
        request_id=_words(details.get("request_id")) or headers.get("x-request-id"),
        retry_after=_seconds(headers.get("retry-after")),
        response=decoded,
        **output,
    )


def _hint_for(status: int) -> Optional[str]:
    if status == 401:
        return "pass api_key=, or set PANDASTACK_API_KEY; `pandastack key create` makes one"
    return None


def _class_for(status: int, code: Optional[str], message: str, runs_code: bool) -> "type[PandastackError]":
    by_status = {401: AuthError, 403: AuthError, 404: NotFoundError, 409: ConflictError, 429: RateLimitError}
    if status in by_status:
        return by_status[status]
    if status < 500:
        return BadRequestError
    words = message.lower()
    timed_out = "deadline exceeded" in words or ("timeout" in words and "i/o timeout" not in words)
    if code == "timeout" or (runs_code and timed_out):
        return SandboxTimeout
    if code in ("no_capacity", "no_space") or status in (503, 507):
        return CapacityError
    return ServerError
