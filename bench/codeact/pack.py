"""What a task is, and how one is played through calls in JSON.

A task is played twice over: by `play`, which makes calls and looks at what they give, and by `cells`, Python that a model would
write. Both are best play, written by hand: no call too many, and no thought that only somebody could have who knows the data.
What a reader of an observation does in its head (the smallest of some numbers, letters counted, words joined) is no call.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pandastack._functions import Toolset, dump


@dataclass(frozen=True)
class Call:
    """A call of a tool, by name and with arguments by name."""

    tool: str
    arguments: dict[str, Any]


def call(tool: str, **arguments: Any) -> Call:
    return Call(tool, arguments)


Cell = str | Callable[[str], str]


@dataclass(frozen=True)
class Task:
    """
    Attributes:
        name: of the task, without its family's.
        text: what the model is asked, in all arms the same.
        expected: the right answer, worked out from the data by other means than by the tools.
        play: best play through calls: asks, and returns the answer.
        cells: best play by code, turn by turn; what has to be read off the observation before is made of it.
        read: reads the answer off what the last cell printed. Without it, that is the answer and nothing else.
    """

    name: str
    text: str
    expected: str
    play: Callable[["Ask"], Any]
    cells: list[Cell]
    read: Callable[[str], str] | None = None


@dataclass(frozen=True)
class Family:
    """Tasks over the same tools."""

    name: str
    tools: list[Callable[..., Any]]
    tasks: list[Task] = field(default_factory=list)


@dataclass(frozen=True)
class Made:
    """A call that was made, and the text that the model is shown of its result."""

    call: Call
    shown: str


class Ask:
    """Carries out calls, and keeps them turn by turn.

        prices = ask(call("price", good="tin"), call("price", good="salt"))     # neither needs the other: one layer
        price = ask.one("price", good="tin")

    Args:
        tools: functions of this program, called as the SDK would call them.
        together: the calls of one layer go into one turn; otherwise each has a turn of its own.
    """

    def __init__(self, tools: list[Callable[..., Any]], together: bool) -> None:
        self._functions = Toolset(tools).functions
        self.together = together
        self.turns: list[list[Made]] = []

    def __call__(self, *calls: Call) -> list[Any]:
        made, values = [], []
        for each in calls:
            function = self._functions[each.tool]
            arguments = function.bind(json.loads(dump(each.arguments)))  # as they come over the wire
            text = dump(function.function(**arguments))
            values.append(json.loads(text))
            made.append(Made(each, values[-1] if isinstance(values[-1], str) else text))
        self.turns += [made] if self.together else [[one] for one in made]
        return values

    def one(self, tool: str, **arguments: Any) -> Any:
        """A layer of one call."""
        return self(call(tool, **arguments))[0]


def schemas(tools: list[Callable[..., Any]]) -> list[dict[str, Any]]:
    """What the SDK tells of the functions: name, description, parameters and what they return, as JSON Schema."""
    return [function.wire for function in Toolset(tools).functions.values()]


def money(value: float) -> str:
    """With two decimals."""
    return f"{value:.2f}"
