"""The arms: the ways in which a task is played."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from pandastack import Agent, AgentRun

from .counting import Message, Reply, Request, compact
from .pack import Ask, Family, Task, schemas
from .player import Player

ONE, TOGETHER, CODE, LOOKS, TOOL = "JSON, one call a turn", "JSON, calls together", "code", "code that looks first", "code as a tool"
JSON_ARMS = (ONE, TOGETHER)
CODE_ARMS = (CODE, LOOKS, TOOL)

# As short as it may be: what a tool is, a model with native calls knows, and the schemas say the rest.
JSON_PROMPT = (
    "You solve tasks by calling tools. Call them until you know the answer. "
    "Then reply with the answer, in the form that is asked for, and call no tool."
)


@dataclass
class Played:
    """How a task was played.

    Attributes:
        answer: what the player said in the end.
        requests: one a turn, each with all that was said before.
        calls: of tools.
    """

    arm: str
    family: str
    task: str
    expected: str
    answer: str
    calls: int
    requests: list[Request] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    run: AgentRun | None = None

    @property
    def right(self) -> bool:
        return self.answer.strip() == self.expected

    @property
    def turns(self) -> int:
        return len(self.replies)


def play_json(family: Family, task: Task, arm: str) -> Played:
    """Plays by native calls: the tools are called, and what they give is what the model is shown."""
    ask = Ask(family.tools, together=arm == TOGETHER)
    answer = str(task.play(ask))
    played = Played(arm, family.name, task.name, task.expected, answer, sum(map(len, ask.turns)))
    tools = [{"name": each["name"], "description": each["description"], "parameters": each["parameters"]} for each in schemas(family.tools)]
    told = [Message("user", task.text)]
    for turn in ask.turns:
        reply = Reply(calls=[(made.call.tool, compact(made.call.arguments)) for made in turn])
        played.requests.append(Request(JSON_PROMPT, tools, list(told)))
        played.replies.append(reply)
        told += [Message("assistant", "", reply.calls), *(Message("tool", made.shown) for made in turn)]
    played.requests.append(Request(JSON_PROMPT, tools, told))
    played.replies.append(Reply(answer))
    return played


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def shown(observation: str) -> str:
    """What a cell printed, of what the model is told of it. Raises ValueError when it did not end well."""
    first, _, rest = observation.partition("\n")
    if not re.match(r"Observation: ok in [\d.]+ s$", first):
        raise ValueError(f"a cell of the player failed: {observation}")
    return rest.strip()


def coder(task: Task, arm: str) -> Generator[Reply, str, None]:
    """The model that plays by code: its cells, the last of which ends the run with the answer, where nobody has to look at it first.

    In the arm "code that looks first" the last cell prints the answer, and the next reply gives it.
    """
    told = ""
    try:
        for i, cell in enumerate(task.cells):
            code = cell(shown(told)) if callable(cell) else cell
            if arm != LOOKS and i == len(task.cells) - 1 and not task.read:
                before, at, last = code.rpartition("print(")
                assert at and "\n" not in last, task.name
                code = f"{before}final_answer({last}"
            told = yield Reply(calls=[("run_python", compact({"code": code}))]) if arm == TOOL else Reply(fenced(code))
        text = shown(told)
    except ValueError as error:
        text = str(error)
    else:
        text = task.read(text) if task.read else text
    yield Reply(text if arm == TOOL else "FINAL ANSWER: " + text)


def play_code(family: Family, task: Task, arm: str, player: Player, api_url: str, api_key: str) -> Played:
    """Plays by code, in the agent loop and a sandbox of its own; the tools are functions of this program."""
    game, base_url = player.game(coder(task, arm))
    calls: list[str] = []
    agent = Agent(
        "openai:player", base_url=base_url, dialect="tool" if arm == TOOL else "text", tools=[counted(tool, calls) for tool in family.tools],
        api_url=api_url, api_key=api_key,
    )
    run = agent.run(task.text)
    answer = run.answer if run.answer is not None else f"{run.reason}: {run.info.error or game.error}"
    return Played(arm, family.name, task.name, task.expected, answer, len(calls), game.requests, game.replies, run)


def counted(tool: Any, calls: list[str]) -> Any:
    """The same tool, which notes its calls."""
    import functools

    @functools.wraps(tool)
    def noted(**arguments: Any) -> Any:
        calls.append(json.dumps([tool.__name__, arguments]))
        return tool(**arguments)

    return noted


def play(family: Family, task: Task, arm: str, player: Player, api_url: str, api_key: str) -> Played:
    if arm in JSON_ARMS:
        return play_json(family, task, arm)
    return play_code(family, task, arm, player, api_url, api_key)
