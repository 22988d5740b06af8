"""In which encoding a text file is written."""

import codecs
import os
import re

from .errors import Unreadable

PIECE = 1 << 20  # bytes at a file's start that tell whether every other one is 0
LINE = 16 << 20  # bytes that a line may have

# Those that tables come in. Others that charset-normalizer knows look like these and are hardly written.
CODEPAGES = ["cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r", "cp437", "cp850", "cp866", "mac_roman", "cp932", "euc_jp", "gb18030", "big5", "cp949"]


def encoding_of(path):
    """The encoding of a text file, what its errors are to become, and remarks."""
    with open(path, "rb") as file:
        start = file.read(PIECE)
        for mark, name in ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
            if start.startswith(mark):
                return name, "strict", [f"encoding {name}, as its first bytes say"]
        if start.count(0) > len(start) // 5:
            name = "utf-16-le" if start[1::2].count(0) > start[::2].count(0) else "utf-16-be"
            return name, "strict", [f"encoding {name}: every other byte is 0"]
        good, bad, lines = _lines_in_utf8(file, path)
    name, remarks = "utf-8", []
    if start.startswith(codecs.BOM_UTF8):
        name, remarks = "utf-8-sig", ["encoding utf-8-sig, as its first bytes say"]
    if not bad:
        return name, "strict", remarks
    if good > 10 * bad or remarks:
        return name, "replace", [f"encoding {name}; {bad} lines have bytes that are none, which became \ufffd"]
    return guessed(b"".join(lines))


def _lines_in_utf8(file, path):
    """How many lines of a file are UTF-8 beyond ASCII, how many are not UTF-8, and some that are not ASCII."""
    good, bad, lines = 0, 0, []
    file.seek(0)
    for piece in iter(lambda: file.read(LINE), b""):
        rest = file.readline(LINE)
        if len(rest) == LINE and not rest.endswith(b"\n"):
            raise Unreadable(f"{os.path.basename(path)} has a line of more than {LINE >> 20} MB, so it is no table; if its lines end with CR alone, let them end with LF (tr '\\r' '\\n')")
        piece += rest
        try:
            if not piece.isascii():
                piece.decode()
                good += 1
            continue
        except UnicodeDecodeError:
            pass
        for line in piece.splitlines(keepends=True):
            if line.isascii():
                continue
            try:
                line.decode()
                good += 1
            except UnicodeDecodeError:
                bad += 1
            if len(lines) < 4000:
                lines.append(line)
    return good, bad, lines


def guessed(sample):
    """The encoding of bytes that are no UTF-8, by charset-normalizer."""
    from charset_normalizer import from_bytes

    names = [m.encoding for m in from_bytes(sample[:200_000], cp_isolation=CODEPAGES, threshold=0.4)]
    text = decoded(sample, "cp1252")
    if text is not None and western(text):
        names.insert(0, "cp1252")  # of those with a byte a letter by far the most frequent
    for name in names or ["cp1252"]:
        if decoded(sample, name) is not None:
            others = [n for n in dict.fromkeys(names) if n != name][:2]
            return name, "replace", [f"encoding {name}, guessed from its bytes" + (f"; it might be {' or '.join(others)}" if others and names[0] != "cp1252" else "")]
    return "latin-1", "strict", ["encoding latin-1, since no other fits"]


def western(text):
    """Whether a text reads as one of Western Europe: single letters with accents among plain ones, signs not within words."""
    runs = re.findall(r"[^\x00-\x7f]+", text)
    letters = [r for r in runs if len(r) <= 2 and all(c in "äöüßéèêëàâçôûùîïñáíóúãõåæøœýìòðþº" for c in r.lower())]
    signs = [r for r in runs if re.fullmatch(r"[€£§µ²³°½¼«»…•–—‘’“”„´®©·±×\u00a0¿¡]+", r)]
    within = len(re.findall(r"[a-zA-Z][²³µ€£§°½¼¿¡±×][a-zA-Z]|\b[³¿¼][a-z]", text))
    return len(letters) + len(signs) >= 0.9 * len(runs) and within <= 0.02 * len(runs)


def decoded(sample, name):
    try:
        return sample.decode(name)
    except UnicodeDecodeError:
        return None
