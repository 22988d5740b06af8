"""The drawing process: charts come in on standard input, pictures go out on standard output.

Run as a script by ``renderer``; it imports nothing of the kernel. A request is a 4-byte length and JSON; an answer two
4-byte lengths, JSON and the bytes of the picture. It uses no network: plotly.js comes from the plotly package, and the
browser is told that every name is unknown. It ends when its input does, or after a time with nothing to draw.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import struct
import sys
from typing import Any

IDLE_SECONDS = 120.0
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")


class Browser:
    """Kaleido with its browser, started with the first plotly figure."""

    def __init__(self) -> None:
        self._kaleido: Any = None

    async def draw(self, chart: str, options: dict[str, Any]) -> bytes:
        if self._kaleido is None:
            self._kaleido = await self._open()
        return await self._kaleido.calc_fig(json.loads(chart), opts=options)

    async def _open(self) -> Any:
        import kaleido

        path = os.environ.get("BROWSER_PATH") or next(filter(None, map(shutil.which, _BROWSERS)), None)
        if path is None:
            raise FileNotFoundError(f"no browser is installed: one of {', '.join(_BROWSERS)} is needed")
        browser = kaleido.Kaleido(n=1, timeout=None, mathjax=False, path=path)
        await browser.open()
        return browser

    async def close(self) -> None:
        if self._kaleido is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._kaleido.close(), 3)


def draw_vegalite(chart: str, options: dict[str, Any]) -> bytes:
    import vl_convert

    convert = getattr(vl_convert, f"vegalite_to_{options['format']}")
    version = {"vl_version": options["version"]} if options.get("version") else {}
    scale = {"scale": options["scale"]} if options.get("scale") and options["format"] != "svg" else {}
    picture = convert(chart, allowed_base_urls=[], **version, **scale)
    return picture.encode() if isinstance(picture, str) else picture


async def serve(requests: int, answers: int) -> None:
    browser = Browser()
    try:
        while True:
            # Blocking here is right: with nothing to draw there is nothing else to do.
            ready, _, _ = select.select([requests], [], [], IDLE_SECONDS)
            if not ready:
                return
            size = _read(requests, 4)
            body = _read(requests, struct.unpack(">I", size)[0]) if size else None
            if body is None:
                return
            request = json.loads(body)
            number, kind, chart = request.pop("id"), request.pop("kind"), request.pop("chart")
            try:
                picture = await browser.draw(chart, request) if kind == "plotly" else draw_vegalite(chart, request)
                head: dict[str, Any] = {"id": number}
            except Exception as error:
                picture, head = b"", {"id": number, "error": f"{type(error).__name__}: {error}"[:2000]}
            encoded = json.dumps(head).encode()
            _write(answers, struct.pack(">II", len(encoded), len(picture)) + encoded + picture)
    finally:
        await browser.close()


def _read(fd: int, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        chunk = os.read(fd, min(count - len(data), 1 << 20))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def main() -> None:
    requests, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):  # whatever the browser and the libraries print is not an answer
        os.dup2(null, fd)
    try:
        asyncio.run(serve(requests, answers))
    except BrokenPipeError:
        pass


if __name__ == "__main__":
    sys.exit(main())
