"""Pages of the documentation, taken apart: the site is built of their text, and the tests run their blocks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

FENCE = re.compile(r" *(`{3,}|~{3,}) *([^`\s]*)[^`]*$")
LIST = re.compile(r" *([-*+]|\d+[.)]) ")
PLACE = re.compile(r"<!-- (end of )?\w+ -->\s*")  # around what a program writes into the page
NOTE = re.compile(r"<!--\s*(?P<kind>setup|then|site|run by|section run by)\s(?P<words>.*?)-->\s*", re.DOTALL)


class PageError(Exception):
    """Something in a page that readers, or we, would take for something else. The message begins with its place."""


@dataclass
class Part:
    """Some lines of a page: "text", a "fence" with its first and last line, or a "comment" that stands by itself."""

    kind: str
    line: int  # of its first line, counted from 1
    text: str


@dataclass
class Block:
    """A fenced block, and what the comments around it say of it; CONTRIBUTING.md has their forms."""

    page: str
    line: int  # of its first line of code, counted from 1
    language: str
    text: str
    setup: str = ""  # run before it
    then: str = ""  # run after it
    output: str | None = None  # what it prints: the block of `text` directly after it
    by: str = ""  # the test that runs it, as FILE::NAME

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def parts(page: Path) -> Iterator[Part]:
    """All of a page, in order.

    Raises:
        PageError: a fence or a comment that does not end.
    """
    name = page.relative_to(ROOT)
    lines = page.read_text(encoding="utf-8").splitlines(keepends=True)
    text: list[str] = []
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if not fence and not lines[at].startswith("<!--"):
            text.append(lines[at])
            at += 1
            continue
        if text:
            yield Part("text", at - len(text) + 1, "".join(text))
            text = []
        begin = at
        if fence:
            ends = re.compile(rf" *{re.escape(fence[1][0])}{{{len(fence[1])},}}\s*$")
            at += 1
            while at < len(lines) and not ends.match(lines[at]):
                at += 1
        else:
            while at < len(lines) and "-->" not in lines[at]:
                at += 1
        if at == len(lines):
            raise PageError(f"{name}:{begin + 1}: this {'fence' if fence else 'comment'} has no end")
        at += 1
        yield Part("fence" if fence else "comment", begin + 1, "".join(lines[begin:at]))
    if text:
        yield Part("text", at - len(text) + 1, "".join(text))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, without those that are the output of others.

    Raises:
        PageError: as `parts`; a fence without a language, code that is indented instead of fenced, a comment of no known form,
            or one that stands where it says nothing of any block.
    """
    name = str(page.relative_to(ROOT))
    found: list[Block] = []
    notes: dict[str, str] = {}  # of the next block
    headings: list[str] = []
    sections: list[tuple[list[str], str]] = []  # headings, and the test that runs all below them
    last: Block | None = None  # with nothing but comments and its output after it
    for part in parts(page):
        if part.kind == "text":
            if not part.text.strip():
                continue
            if notes:
                raise PageError(f"{name}:{part.line}: the comment before this is of no block")
            _look_for_indented(name, part)
            for level, title in re.findall(r"^(#+) (.*)$", part.text, re.MULTILINE):
                headings = [*headings[: len(level) - 1], title]
            last = None
        elif part.kind == "comment":
            note = NOTE.fullmatch(part.text)
            if not note and PLACE.fullmatch(part.text) or note and note["kind"] == "site":
                continue
            if not note:
                raise PageError(f"{name}:{part.line}: the comments of pages are `setup`, `then`, `site`, `run by` and `section run by`; see CONTRIBUTING.md")
            kind, words = note["kind"], note["words"]
            if kind == "section run by":
                sections.append((headings, words.strip()))
            elif kind != "then":
                notes[kind] = words
            elif last:
                last.then += words
            else:
                raise PageError(f"{name}:{part.line}: this `then` is after no block")
        else:
            first, *code, _ = part.text.splitlines(keepends=True)
            language = FENCE.match(first)[2]  # type: ignore[index]  # it is one
            text = textwrap.dedent("".join(code))
            if not language:
                raise PageError(f"{name}:{part.line}: this block has no language; `text` is for what is none")
            if language == "text" and last and last.output is None and not notes:
                last.output = text
                continue
            last = Block(name, part.line + 1, language, text, notes.get("setup", ""), by=notes.get("run by", "").strip())
            last.by = last.by or next((by for above, by in sections if headings[: len(above)] == above), "")
            notes = {}
            found.append(last)
    return found


def _look_for_indented(name: str, part: Part) -> None:
    blank, in_list = True, False
    for number, line in enumerate(part.text.splitlines(), part.line):
        if not line.strip():
            blank = True
            continue
        if not line.startswith(" "):
            in_list = bool(LIST.match(line))
        elif line.startswith("    ") and blank and not in_list:
            raise PageError(f"{name}:{number}: this block is indented; fence it, and name its language")
        blank = False
