"""What the model says when: the script, and the check of what it is shown.

A script is JSON::

    {"conversations": [
      {"start": "revenue by month",
       "turns": [
         {"call": [{"name": "run_python", "arguments": {"code": "…"}}], "say": "optional words"},
         {"expect": {"tool": "2025-0[0-9]", "image": true},
          "read": {"peak": "peak month: (\\\\S+)"},
          "say": "The peak was {peak}."}
       ]}
    ]}

A conversation begins at the last user message in which `start` (a regular expression) is found. Its next turn is as
many as there are assistant messages behind that. A turn may demand something of what the model is shown (`expect`):

- ``tool``: a regular expression that the last tool message must match;
- ``user``: one that the last user message must match, for agents that hand back what they saw in one;
- ``image``: true for a PNG in the last message (the user's, or over the Responses API a tool's), which must be a real
  picture of more than one colour;
- ``tools``: names that must be on offer.

It may take values out of the tool and user messages behind the start (`read`: name to regular expression with one
group, the last match counts) for use as ``{name}`` in `say` and in the strings of `arguments`. Arguments that are one
string are the input of a custom tool, which the Responses API alone has.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Union

from .picture import png_from_data_url

Message = Dict[str, Any]


class ScriptError(Exception):
    """The request is not what the script expects."""


@dataclass
class Reply:
    """What the model answers: words, calls of tools, or both."""

    text: str = ""
    calls: List[Dict[str, Any]] = field(default_factory=list)


class Script:
    """Conversations and their turns."""

    def __init__(self, conversations: List[Dict[str, Any]]) -> None:
        self._conversations = conversations

    @classmethod
    def load(cls, path: Union[str, Path]) -> "Script":
        return cls(json.loads(Path(path).read_text(encoding="utf-8"))["conversations"])

    def reply(self, request: Dict[str, Any]) -> Reply:
        """The answer to a request. Raises ScriptError when there is none."""
        messages: List[Message] = request["messages"]
        conversation, start = self._find(messages)
        since = messages[start + 1 :]
        number = sum(m["role"] == "assistant" for m in since)
        if number >= len(conversation["turns"]):
            raise ScriptError(f"the conversation {conversation['start']!r} has no turn {number + 1}")
        turn = conversation["turns"][number]
        where = f"turn {number + 1} of {conversation['start']!r}"
        self._demand(turn.get("expect", {}), where, request, since)
        values = {name: _read(name, pattern, since, where) for name, pattern in turn.get("read", {}).items()}
        calls = [{**call, "arguments": _fill(call["arguments"], values)} for call in turn.get("call", [])]
        return Reply(_fill(turn.get("say", ""), values), calls)

    def _find(self, messages: List[Message]) -> "tuple[Dict[str, Any], int]":
        for index in range(len(messages) - 1, -1, -1):
            if messages[index]["role"] == "user":
                text = text_of(messages[index])
                for conversation in self._conversations:
                    if re.search(conversation["start"], text, re.IGNORECASE):
                        return conversation, index
        raise ScriptError("no user message begins a conversation of the script")

    def _demand(self, expect: Dict[str, Any], where: str, request: Dict[str, Any], since: List[Message]) -> None:
        for role in ("tool", "user"):
            shown = [text_of(m) for m in since if m["role"] == role]
            if role in expect and (not shown or not re.search(expect[role], shown[-1])):
                raise ScriptError(f"{where} expects a {role} message like {expect[role]!r}, not {shown[-1:]}")
        if expect.get("image"):
            pictures = images_of(since[-1]) if since and since[-1]["role"] in ("user", "tool") else []
            if not pictures:
                raise ScriptError(f"{where} expects a picture in the last message")
            for url in pictures:
                if not png_from_data_url(url).has_colours(2):
                    raise ScriptError(f"{where} was shown an empty picture")
        offered = {tool["function"]["name"] for tool in request.get("tools") or []}
        missing = set(expect.get("tools", [])) - offered
        if missing:
            raise ScriptError(f"{where} expects the tools {sorted(missing)}, offered are {sorted(offered)}")


def text_of(message: Message) -> str:
    """The text of a message, whether it is a string or in parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return content or ""


def images_of(message: Message) -> List[str]:
    """The addresses of the pictures in a message."""
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [part["image_url"]["url"] for part in content if part.get("type") == "image_url"]


def _read(name: str, pattern: str, since: List[Message], where: str) -> str:
    found = [m for message in since if message["role"] != "assistant" for m in re.finditer(pattern, text_of(message))]
    if not found:
        raise ScriptError(f"{where} finds no {name} ({pattern!r}) in the messages")
    return found[-1].group(1)


def _fill(value: Any, values: Dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(item, values) for key, item in value.items()}
    if isinstance(value, str):
        for name, found in values.items():
            value = value.replace("{" + name + "}", found)
    return value
