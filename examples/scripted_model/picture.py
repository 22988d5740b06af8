"""Reads PNG pictures: enough to tell a real one from bytes that only look like it."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from dataclasses import dataclass
from typing import Iterator


@dataclass
class Picture:
    """A picture: `height` rows of `width` pixels, `channels` bytes each."""

    width: int
    height: int
    channels: int
    filtered: bytes

    def rows(self) -> Iterator[bytes]:
        """The rows from the top, each decoded when it is asked for."""
        return _unfilter(self.filtered, self.width * self.channels, self.height, self.channels)

    def has_colours(self, count: int) -> bool:
        """Whether there are at least so many different colours."""
        seen = set()
        for row in self.rows():
            seen.update(row[i : i + self.channels] for i in range(0, len(row), self.channels))
            if len(seen) >= count:
                return True
        return False


def png_from_data_url(url: str) -> Picture:
    """The picture in ``data:image/png;base64,…``. Raises ValueError when it is none."""
    head, comma, data = url.partition(",")
    if head != "data:image/png;base64" or not comma:
        raise ValueError(f"not a PNG data URL: {url[:40]!r}")
    return decode_png(base64.b64decode(data, validate=True))


def decode_png(data: bytes) -> Picture:
    """Decodes a PNG of 8 bits a channel, not interlaced. Raises ValueError when it is none or is damaged."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("no PNG signature")
    header, packed, ended, at = b"", b"", False, 8
    while at < len(data) and not ended:
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if len(data) < at + 12 + length or binascii.crc32(kind + body) != struct.unpack_from(">I", data, at + 8 + length)[0]:
            raise ValueError(f"the {kind.decode('ascii', 'replace')} chunk is damaged")
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            packed += body
        ended = kind == b"IEND"
        at += 12 + length
    if not ended or len(header) != 13:
        raise ValueError("the picture is cut short")
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(colour)
    if depth != 8 or channels is None or interlaced:
        raise ValueError(f"a PNG of a kind that is not read here: depth {depth}, colour type {colour}")
    filtered = zlib.decompress(packed)
    if len(filtered) != (width * channels + 1) * height:
        raise ValueError("the picture has more or less data than its size says")
    return Picture(width, height, channels, filtered)


def _unfilter(raw: bytes, stride: int, height: int, step: int) -> Iterator[bytes]:
    above = bytearray(stride)
    for y in range(height):
        kind = raw[y * (stride + 1)]
        line = bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for x in range(stride if kind else 0):
            left = line[x - step] if x >= step else 0
            up = above[x]
            corner = above[x - step] if x >= step else 0
            if kind == 1:
                guess = left
            elif kind == 2:
                guess = up
            elif kind == 3:
                guess = (left + up) // 2
            elif kind == 4:
                guess = _paeth(left, up, corner)
            else:
                raise ValueError(f"unknown filter {kind}")
            line[x] = (line[x] + guess) & 255
        yield bytes(line)
        above = line


def _paeth(left: int, up: int, corner: int) -> int:
    base = left + up - corner
    by_left, by_up, by_corner = abs(base - left), abs(base - up), abs(base - corner)
    if by_left <= by_up and by_left <= by_corner:
        return left
    return up if by_up <= by_corner else corner
