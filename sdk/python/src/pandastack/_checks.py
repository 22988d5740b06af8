"""Checks of arguments, so that a mistake raises where it was made and not at the server."""

from __future__ import annotations

import math
import re
from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union


def text(name: str, value: Any, *, empty: bool = False) -> str:
    """A str; not an empty one unless `empty`."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not value and not empty:
        raise ValueError(f"{name} must not be empty")
    return value


def texts(name: str, value: Any) -> List[str]:
    """A list or tuple of str; a str alone is a mistake that would be taken for its letters."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} must be a list of str, not {type(value).__name__}")
    return [text(name, item) for item in value]


def mapping(name: str, value: Any) -> Dict[str, Any]:
    """A mapping with str for keys, which the server looks into."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise TypeError(f"{name} must be a dict, not {type(value).__name__}")
    return dict(value)


def moment(name: str, value: Any) -> str:
    """A datetime as RFC 3339; one without a zone is taken for local time, as everywhere in Python."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime, not {type(value).__name__}")
    return value.astimezone(timezone.utc).isoformat()


def unicode(name: str, value: Any) -> str:
    """A str that can go into JSON: no bytes of a name that is not UTF-8."""
    try:
        text(name, value).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be UTF-8 here, not {value!r}; use a command for such a name") from None
    return str(value)


def permissions(name: str, value: Any) -> str:
    """Permissions as the API has them: 0o644 and "0644" are "0644"."""
    if isinstance(value, str):
        try:
            value = int(text(name, value), 8)
        except ValueError:
            raise ValueError(f"{name} must be octal, such as '0644', not {value!r}") from None
    if whole(name, value, least=0) > 0o7777:
        raise ValueError(f"{name} must be at most 0o7777, not {oct(value)}")
    return format(value, "04o")


def seconds(name: str, value: Any) -> float:
    """A finite number of seconds above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be above 0 and finite, not {value!r}")
    return value


_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = {"authorization", "host", "connection", "upgrade", "content-length", "transfer-encoding", "user-agent"}


def headers(name: str, value: Any) -> Tuple[Tuple[str, str], ...]:
    """Headers of the caller's, as pairs; None means none."""
    pairs = tuple((strings(name, value) if value is not None else {}).items())
    for header, said in pairs:
        if not _HEADER.fullmatch(header) or header.lower() in _OURS:
            raise ValueError(f"{name} can't have {header!r}: it is no header, or one that is the SDK's own")
        if not said.isascii() or not said.isprintable():
            raise ValueError(f"the value of {header} in {name} must be printable ASCII")
    return pairs


def whole(name: str, value: Any, *, least: int = 1) -> int:
    """An int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return value


def byte_range(start: Any, end: Any) -> str:
    """Bytes from `start` up to `end` and without it, as the Range header has them; `start` below 0 counts from the end."""
    first = 0 if start is None else start
    for name, value in (("start", start), ("end", end)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if first < 0:
        if end is not None:
            raise ValueError("end must be left out when start counts from the end")
        return f"bytes={first}"
    if end is not None and end <= first:
        raise ValueError(f"end must be above start ({first}), not {end}")
    return f"bytes={first}-{'' if end is None else end - 1}"


def number(name: str, value: Any) -> float:
    """A finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be above 0 and finite, not {value!r}")
    return value


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")
    return value


def strings(name: str, value: Any) -> Dict[str, str]:
    """A dict of str to str."""
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict of str to str, not {type(value).__name__}")
    for key, item in value.items():
        if not isinstance(key, str):
            raise TypeError(f"{name} keys must be str, not {type(key).__name__} ({key!r})")
        if not isinstance(item, str):
            raise TypeError(f"{name}[{key!r}] must be a str, not {type(item).__name__}; use str(…)")
    return value


def command(value: Any) -> Union[str, List[str]]:
    """A shell str, or a list of arguments."""
    if isinstance(value, str):
        return text("cmd", value)
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"cmd must be a str (for the shell) or a list of str, not {type(value).__name__}")
    if not value:
        raise ValueError("cmd must not be empty")
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise TypeError(f"cmd[{index}] must be a str, not {type(item).__name__}")
    return list(value)


def callback(name: str, value: Any) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be callable, not {type(value).__name__}")


def port(value: Any) -> int:
    whole("port", value)
    if value > 65535:
        raise ValueError(f"port must be between 1 and 65535, not {value}")
    return int(value)


def language(value: Any) -> str:
    """A language by its own name: "py" and "python3" mean "python"."""
    name = text("language", value).lower()
    return "python" if name in ("py", "python3") else name


def stdin(value: Any) -> Optional[str]:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"stdin must be a str, not {type(value).__name__}")
    return value
