"""Where the server is and which key to show it.

The only module that reads the environment and the configuration file.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, Mapping, Optional, Tuple
from urllib.parse import urlsplit

DEFAULT_API_URL = "http://127.0.0.1:8080"
SYSTEM_CONFIG = Path("/etc/pandastack/client.json")  # of the daemon of a whole machine, for who has no file of their own


@dataclass(frozen=True)
class Endpoint:
    """A server and the key for it.

    `scheme`, `host` and `port` name it; `prefix` is the path that stands before each route and ends in ``/v1``. `extra` are
    headers of the caller's, as pairs.
    """

    scheme: str
    host: str
    port: int
    prefix: str
    api_key: Optional[str]
    extra: Tuple[Tuple[str, str], ...] = ()

    def headers(self, own: Mapping[str, str] = MappingProxyType({})) -> Dict[str, str]:
        """What a request sends: the caller's headers, its own over them, and the key."""
        ours = {name.lower() for name in own}
        sent = {name: value for name, value in self.extra if name.lower() not in ours}
        sent.update(own)
        if self.api_key:
            sent["Authorization"] = f"Bearer {self.api_key}"
        return sent

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def url(self) -> str:
        return self.origin + self.prefix


def find_endpoint(
    api_url: Optional[str] = None,
    api_key: Optional[str] = None,
    *,
    environ: Optional[Mapping[str, str]] = None,
    config_file: Optional[Path] = None,
) -> Endpoint:
    """Settles the server and the key: argument, environment, configuration file, then the default.

    Raises ValueError for a URL that is none, TypeError for an argument that is no str.
    """
    env = os.environ if environ is None else environ
    for name, value in (("api_url", api_url), ("api_key", api_key)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    url = api_url or env.get("PANDASTACK_API") or env.get("PANDASTACK_API_URL")
    key = api_key or env.get("PANDASTACK_API_KEY")
    if not url or not key:
        own = config_file or _config_path(env)
        saved = _read_config(own if config_file or os.path.exists(own) else SYSTEM_CONFIG)
        url = url or _text(saved, "api_url", "apiUrl") or DEFAULT_API_URL
        key = key or _text(saved, "token", "apiKey", "api_key")
    return _parse(url, key)


def _config_path(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_CONFIG_HOME")
    folder = Path(base) if base else Path(env.get("HOME") or Path.home()) / ".config"
    return folder / "pandastack" / "config.json"


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            loaded = json.load(file)
    except (OSError, ValueError):  # absent, unreadable or half-written: the other sources decide
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _text(saved: Mapping[str, Any], *names: str) -> Optional[str]:
    for name in names:
        value = saved.get(name)
        if isinstance(value, str) and value:
            return value
    return None


def _parse(url: str, key: Optional[str]) -> Endpoint:
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise ValueError(f"api_url {url!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"api_url must look like {DEFAULT_API_URL}, not {url!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("api_url must hold no user, password, query or fragment")
    if key is not None and (not key.isascii() or not key.isprintable() or " " in key):
        raise ValueError("api_key must be printable ASCII without blanks")
    prefix = parts.path.rstrip("/")
    if not prefix.endswith("/v1"):
        prefix += "/v1"
    return Endpoint(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), prefix, key)
