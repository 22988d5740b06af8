"""Says, as JSON, where this machine's pip gets packages from: all that it takes for that from its files, the environment and .netrc."""

import ast
import json
import netrc
import os
import subprocess
import sys
from urllib.parse import quote, urlsplit

from pip._internal.models.index import PyPI  # what pip uses when it is told nothing

values = {"global": {}, "install": {}, ":env:": {}}  # what stands later wins
listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True, env={**os.environ, "PIP_QUIET": "0"})
for line in listed.stdout.splitlines():
    key, _, value = line.partition("=")
    section, _, name = key.rpartition(".")
    if section in values:
        values[section][name] = str(ast.literal_eval(value))
setting = {**values["global"], **values["install"], **values[":env:"]}

try:
    known = netrc.netrc(os.environ.get("NETRC"))
except (OSError, netrc.NetrcParseError):
    known = None


def with_password(url):
    parts = urlsplit(url)
    found = known and not parts.username and parts.scheme == "https" and known.authenticators(parts.hostname or "")
    if not found:
        return url
    return parts._replace(netloc=f"{quote(found[0], safe='')}:{quote(found[2] or '', safe='')}@{parts.netloc}").geturl()


nothing = setting.get("no-index", "").lower() in ("1", "true", "yes", "on")
urls = [] if nothing else [setting.get("index-url") or PyPI.simple_url, *setting.get("extra-index-url", "").split()]
public = urlsplit(PyPI.simple_url).hostname
print(json.dumps({
    "urls": [with_password(url) for url in urls],
    "find_links": [with_password(url) for url in setting.get("find-links", "").split() if url.startswith(("http:", "https:"))],
    "hosts": [PyPI.file_storage_domain] if any(urlsplit(url).hostname == public for url in urls) else [],
    "ca": setting.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or "",
    "files": True,
    "default": PyPI.simple_url,
}))
