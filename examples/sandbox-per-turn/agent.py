"""An agent whose every turn has a sandbox of its own, made from the snapshot that the turn before left.

A turn that ends well leaves a snapshot, and its sandbox is killed. So nothing runs and nothing is paid for while the
user thinks, a turn that breaks has never been, and a turn can be taken back, with its files and variables.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List

from pandastack import Client, Execution, Sandbox

MAX_ROUNDS = 12  # answers with tool calls before we give up

INSTRUCTIONS = (
    "You compute with the run_python tool instead of guessing. Its session keeps variables and files from call to call "
    "and from turn to turn. Use run_shell for commands."
)


def _tool(name: str, description: str, argument: str) -> Dict[str, Any]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters, "strict": True}}


TOOLS = [
    _tool("run_python", "Runs a cell; returns what it printed, the value of its last expression or the traceback.", "code"),
    _tool("run_shell", "Runs a command with bash in /workspace; returns its output and status.", "command"),
]


@dataclass
class Turn:
    """What a turn left: the image of its sandbox, and the conversation up to here."""

    sandbox_id: str
    snapshot_id: str
    messages: List[Any]


class Agent:
    """A conversation. A context manager: it removes its snapshots at the end.

    Args:
        model: an OpenAI client.
        name: of the model.
        keep: how many turns back there are snapshots, and so how many can be taken back; 1 or more.
    """

    def __init__(self, model: Any, name: str, keep: int = 3) -> None:
        self._model = model
        self._name = name
        self._keep = keep
        self.turns: List[Turn] = []

    def ask(self, question: str) -> str:
        """One turn. When it raises, the next one goes on from the last that ended well."""
        before = self.turns[-1] if self.turns else None
        messages = [*before.messages] if before else [{"role": "system", "content": INSTRUCTIONS}]
        messages.append({"role": "user", "content": question})
        source = {"from_snapshot": before.snapshot_id} if before else {"template": "code-interpreter"}
        with Sandbox.create(**source, ttl_seconds=600) as sandbox:  # killed at the end, whatever happens
            answer = self._work(sandbox, messages)
            self.turns.append(Turn(sandbox.id, sandbox.snapshot(f"turn {len(self.turns) + 1}"), messages))
        self._forget(self.turns[: -self._keep - 1])
        return answer

    def take_back(self) -> None:
        """Undoes the last turn: its words, its variables and its files."""
        if len(self.turns) < 2 or not self.turns[-2].snapshot_id:
            raise ValueError(f"there is no earlier turn to go back to; {self._keep} are kept")
        self._forget([self.turns.pop()])

    def _work(self, sandbox: Sandbox, messages: List[Any]) -> str:
        for _ in range(MAX_ROUNDS):
            said = self._model.chat.completions.create(model=self._name, messages=messages, tools=TOOLS).choices[0].message
            messages.append(said)
            if not said.tool_calls:
                return said.content or ""
            for call in said.tool_calls:
                text = self._run(sandbox, call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        raise RuntimeError(f"no answer after {MAX_ROUNDS} rounds")

    def _run(self, sandbox: Sandbox, tool: str, arguments: Dict[str, str]) -> str:
        if tool == "run_shell":
            done = sandbox.exec(arguments["command"])
            return f"{done.stdout}{done.stderr}(status {done.exit_code})"
        return describe(sandbox.run_code(arguments["code"], timeout_seconds=60))

    def _forget(self, turns: List[Turn]) -> None:
        for turn in turns:
            if turn.snapshot_id:
                Client().snapshots.delete(turn.snapshot_id)
                turn.snapshot_id = ""

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: Any) -> None:
        self._forget(self.turns)


def describe(ex: Execution) -> str:
    """A cell's outcome as the model reads it."""
    return "\n".join(filter(None, [ex.stdout.rstrip(), ex.text, ex.error])) or "(done, nothing printed)"
