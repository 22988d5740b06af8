"""Writes the synchronous surface from the asynchronous one.

    python tools/generate_sync.py           # writes src/pandastack/_sync/*.py
    python tools/generate_sync.py --check   # says which files are out of date, and fails if any is

The two transports are written by hand; everything above them is the same text with the waiting taken out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "pandastack"
BY_HAND = {"transport.py"}

RULES = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"The asynchronous surface\. It is the source of the synchronous one: see", "The synchronous surface. It is generated:"),
]
HEADER = "# Generated from ../_async/{name} by tools/generate_sync.py: change that file, then run the tool.\n"


def convert(name: str, source: str) -> str:
    for pattern, replacement in RULES:
        source = re.sub(pattern, replacement, source)
    return HEADER.format(name=name) + source


def outputs() -> "dict[Path, str]":
    made = {}
    for source in sorted((PACKAGE / "_async").glob("*.py")):
        if source.name not in BY_HAND:
            made[PACKAGE / "_sync" / source.name] = convert(source.name, source.read_text(encoding="utf-8"))
    return made


def stale() -> "list[Path]":
    """Generated files that are not what the tool would write."""
    return [
        path for path, text in outputs().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main() -> int:
    if "--check" in sys.argv[1:]:
        old = stale()
        for path in old:
            print(f"out of date: {path}", file=sys.stderr)
        return 1 if old else 0
    for path, text in outputs().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
