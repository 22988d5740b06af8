"""Requests and answers as values: what the two transports carry."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Dict, List, Mapping, Optional, TextIO, Tuple, Union
from urllib.parse import quote, urlencode

from ._version import VERSION
from .errors import PandastackError, ServerError, error_from_response

Upload = Union[BinaryIO, TextIO]

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0  # of an ordinary call
QUIET_SECONDS = 60.0  # between two pieces of a stream; the server sends a comment every 15 s
FEED_SECONDS = 1.0  # for input that is still on its way when the process has ended
LONG_SECONDS = 24 * 3600.0  # for input, which a program may take its time to read
CHUNK = 256 * 1024
USER_AGENT = f"pandastack-python/{VERSION}"


@dataclass
class Request:
    """One call.

    Attributes:
        path: behind the endpoint's prefix, encoded.
        query: encoded as it is, in order; what is None is left out.
        body: JSON when it is a dict, else bytes, or a file to stream.
        read_seconds: how long the server may be silent.
        repeatable: nothing is lost or done twice when it is sent again after a broken connection.
        runs_code: words like "timeout" in a 5xx answer mean the deadline.
        accept: the type of the answer.
        headers: further ones.
    """

    method: str
    path: str
    query: List[Tuple[str, Optional[str]]] = field(default_factory=list)
    body: Union[None, Dict[str, Any], bytes, Upload] = None
    read_seconds: float = ANSWER_SECONDS
    repeatable: bool = False
    runs_code: bool = False
    accept: str = "application/json"
    headers: Dict[str, str] = field(default_factory=dict)

    def target(self, prefix: str) -> str:
        pairs = [(name, value) for name, value in self.query if value is not None]
        if not pairs:
            return prefix + self.path
        # Surrogates are bytes of a name that is not UTF-8, as in os.fsdecode.
        return f"{prefix}{self.path}?{urlencode(pairs, quote_via=quote, safe='/', errors='surrogateescape')}"

    def encoded(self) -> Tuple[Optional[bytes], Optional[Upload], Dict[str, str]]:
        """The body as bytes or as a file, and the headers that go with it."""
        headers = {"Accept": self.accept, "User-Agent": USER_AGENT, **self.headers}
        if isinstance(self.body, dict):
            headers["Content-Type"] = "application/json"
            return json.dumps(self.body, separators=(",", ":")).encode(), None, headers
        if self.body is None:
            return (b"" if self.method in ("POST", "PUT", "PATCH") else None), None, headers
        headers["Content-Type"] = "application/octet-stream"
        if isinstance(self.body, bytes):
            return self.body, None, headers
        return None, self.body, headers


@dataclass
class Response:
    """An answer. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        if not self.body:
            return None
        try:
            return json.loads(self.body)
        except ValueError:
            raise ServerError(
                f"the answer is no JSON: {self.body[:200]!r}",
                status_code=self.status,
                hint="is this a PandaStack server? Look at api_url",
            ) from None

    def object(self) -> Dict[str, Any]:
        decoded = self.json()
        if not isinstance(decoded, dict):
            raise ServerError(f"the answer is no JSON object: {self.body[:200]!r}", status_code=self.status)
        return decoded

    def items(self, *names: str) -> List[Any]:
        """A bare array, or the array under one of these names (and "items")."""
        decoded = self.json()
        if isinstance(decoded, dict):
            decoded = next((decoded[n] for n in (*names, "items") if isinstance(decoded.get(n), list)), decoded)
        if decoded is None:
            return []
        if not isinstance(decoded, list):
            raise ServerError(f"the answer is no JSON array: {self.body[:200]!r}", status_code=self.status)
        return decoded

    def error(self, request: Request) -> PandastackError:
        return error_from_response(self.status, self.headers, self.body, runs_code=request.runs_code)


def body_size(file: Upload) -> Optional[int]:
    """Bytes from a file's position to its end, None when it is text or can't tell."""
    if not isinstance(_peek(file), bytes):
        return None
    try:
        here = file.tell()
        end = file.seek(0, 2)
        file.seek(here)
    except (OSError, ValueError, AttributeError):
        return None
    return end - here


class Source:
    """A file that is being sent. `error` is why it could not be read, which is not the connection's fault."""

    def __init__(self, file: Upload) -> None:
        self._file = file
        self.error: Optional[BaseException] = None

    def piece(self) -> bytes:
        """The next piece of it; text is encoded as UTF-8."""
        try:
            piece = self._file.read(CHUNK)
            return piece.encode("utf-8") if isinstance(piece, str) else bytes(piece or b"")
        except BaseException as error:
            self.error = error
            raise


def _peek(file: Upload) -> Any:
    return file.read(0)


def segment(value: str) -> str:
    """A value as one segment of a path."""
    return quote(value, safe="")
