"""A stand-in for M3ToolEval's tasks/base.py: the names by which the adapter in bench/codeact takes it, and as little as that needs."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from typing import Any, NamedTuple


class ToolType(NamedTuple):
    name: str
    description: str
    function: Any
    fn_signature: str


class ActionMode(enum.Enum):
    JSON_AS_ACTION = "json_as_action"


TASKS: list["Task"] = []


class Task:
    def __init__(self, name: str, tools: Any, instruction: str, expected_output: Any, is_single_tool_task: bool = True) -> None:
        self.name, self.instruction, self.expected_output = name, instruction, expected_output
        self.tools = tools() if callable(tools) else tools
        TASKS.append(self)
        print("a task:", name)

    def reset(self) -> None:
        print("once more:", self.name)

    def get_prompt(self, mode: ActionMode) -> str:
        tools = "\n".join(f"{tool.fn_signature}: {tool.description}" for tool in self.tools.values())
        return f"{tools}\nSay 'Action: {{\"tool\": …, \"args\": […]}} End Action', or 'Answer: …'.\n{self.instruction}"

    def parse_generation(self, text: str) -> dict[str, Any]:
        kind, _, rest = text.partition(":")
        if kind not in ("Action", "Answer"):
            return {"type": "invalid", "content": "say Action: or Answer:"}
        return {"type": kind.lower(), "content": rest.removesuffix("End Action").strip(), "extra_info": None}

    def execute_action(self, action: str, mode: ActionMode) -> str:
        call = json.loads(action)
        return str(self.tools[call["tool"]].function(*call["args"]))

    def check_answer(self, answer: str) -> bool:
        """As strict as the published one: 1.10 is not 1.1000000000000001."""
        return answer == str(self.expected_output)


def get_task_iterator() -> Iterator[Task]:
    yield from TASKS
