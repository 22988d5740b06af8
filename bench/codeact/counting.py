"""Tokens: which parts of a request and a reply are some, and how many, by the vocabulary o200k_base."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "tokens"  # a Go module of its own: it has the vocabulary inside, and nothing is fetched when it runs
DIALECTS = ("openai", "anthropic")
# What sets a message apart from the next one: its beginning, its role, its end. Chat completions document three or four.
AROUND = 4


@dataclass(frozen=True)
class Message:
    role: str
    text: str
    calls: list[tuple[str, str]] = field(default_factory=list)  # name and arguments, as JSON


@dataclass(frozen=True)
class Request:
    """What a model is asked: the whole conversation, each time.

    Attributes:
        tools: each with name, description and parameters.
    """

    system: str
    tools: list[dict[str, Any]]
    messages: list[Message]


@dataclass(frozen=True)
class Reply:
    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tool_text(tool: dict[str, Any], dialect: str) -> str:
    """A tool as it is sent. Providers write it anew for the model, in forms that they keep to themselves."""
    told = {"name": tool["name"], "description": tool.get("description", "")}
    if dialect == "anthropic":
        return compact({**told, "input_schema": tool["parameters"]})
    return compact({"type": "function", "function": {**told, "parameters": tool["parameters"]}})


class Tokens:
    """Counts texts, all at once, since a process is started for it. Collect with `of`, then ask `count` for the sums.

    A text is encoded by itself, so words are never joined across the border of a message; ids of calls are left out.
    """

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._new: dict[str, None] = {}

    def note(self, texts: Iterable[str]) -> None:
        for text in texts:
            if text not in self._known:
                self._new[text] = None

    def count(self, texts: Iterable[str]) -> int:
        """The tokens of texts together."""
        texts = list(texts)
        self.note(texts)
        if self._new:
            new = list(self._new)
            ran = subprocess.run(["go", "run", "."], cwd=PROGRAM, input=json.dumps(new), capture_output=True, text=True)
            if ran.returncode:
                raise RuntimeError(f"the tokens cannot be counted; bench/codeact/tokens needs Go: {ran.stderr.strip()}")
            self._known.update(zip(new, json.loads(ran.stdout), strict=True))
            self._new = {}
        return sum(self._known[text] for text in texts)


def parts(request: Request, dialect: str) -> dict[str, list[str]]:
    """The texts of a request that are tokens, by what they are."""
    # Stubs of tools stand in our system prompt from this title on.
    system, title, stubs = request.system.partition("\n\n# Tools\n")
    tools = [tool_text(tool, dialect) for tool in request.tools] + ([title + stubs] if stubs else [])
    return {"prompt": [system], "tools": tools, "conversation": [text for m in request.messages for text in said(m)]}


def said(message: "Message | Reply") -> list[str]:
    return [text for text in [message.text, *(part for each in message.calls for part in each)] if text]


def around(request: Request) -> int:
    return AROUND * (len(request.messages) + 1 + sum(len(m.calls) for m in request.messages))
