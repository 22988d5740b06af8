"""A conversation that outlives the process that began it.

All of it is in the sandbox: the files, the interpreter with its variables, and the messages. So a sandbox's id, or a
snapshot's, is all that anyone has to keep.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

from pandastack import Client, CodeContext, Execution, Sandbox

NOTES = "/workspace/.conversation.json"  # the messages, and which context the model's cells ran in
MAX_ROUNDS = 12  # answers with tool calls before we give up

INSTRUCTIONS = (
    "You analyse the file /workspace/{name} with the run_python tool. Its session keeps variables and files, also when "
    "the conversation goes on days later: use what is there. Draw with matplotlib and end with plt.show()."
)
TOOLS: List[Dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "run_python",
            "description": "Runs a cell and returns what it printed, the value of its last expression or the traceback.",
            "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"], "additionalProperties": False},
            "strict": True,
        },
    }
]


class Session:
    """A sandbox, the interpreter in it, and what was said. Made by `start` or `resume`, left by `hibernate`, `snapshot` or `end`."""

    def __init__(self, sandbox: Sandbox, context: CodeContext, messages: List[Dict[str, Any]]) -> None:
        self.sandbox = sandbox
        self.context = context
        self.messages = messages
        self.charts: List[str] = []  # PNG in base64, of this process

    @classmethod
    def start(cls, csv: Path) -> "Session":
        """A new one. Should this process die, the sandbox is hibernated at the end of its hour, since it is persistent."""
        sandbox = Sandbox.create("code-interpreter", persistent=True, ttl_seconds=3600)
        sandbox.filesystem.upload(csv, f"/workspace/{csv.name}")
        system = {"role": "system", "content": INSTRUCTIONS.format(name=csv.name)}
        return cls(sandbox, sandbox.create_code_context(), [system])

    @classmethod
    def resume(cls, id: str) -> "Session":
        """Goes on where `id` was left: a sandbox's wakes that sandbox, a snapshot's makes a new one from it, as often as you like."""
        if id.startswith("sn-"):
            sandbox = Sandbox.create(from_snapshot=id, persistent=True, ttl_seconds=3600)
        else:
            sandbox = Sandbox.get(id)
        notes = json.loads(sandbox.filesystem.read(NOTES))  # any call wakes it
        return cls(sandbox, sandbox.context(notes["context"]), notes["messages"])

    def ask(self, model: Any, name: str, question: str) -> str:
        """Lets the model work until it answers."""
        self.messages.append({"role": "user", "content": question})
        for _ in range(MAX_ROUNDS):
            said = model.chat.completions.create(model=name, messages=self.messages, tools=TOOLS).choices[0].message
            self.messages.append(said.model_dump(exclude_none=True))
            if not said.tool_calls:
                return said.content or ""
            for call in said.tool_calls:
                ex = self.context.run_code(json.loads(call.function.arguments)["code"], timeout_seconds=60)
                self.charts += [r.png for r in ex.results if r.png]
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": describe(ex)})
        raise RuntimeError(f"no answer after {MAX_ROUNDS} rounds")

    def hibernate(self) -> str:
        """Leaves it asleep on the disk, where it takes no memory. Gives the id to resume with."""
        self._note()
        self.sandbox.hibernate()
        return self.sandbox.id

    def snapshot(self) -> str:
        """Leaves an image of it and ends the sandbox. Gives the id to resume with."""
        self._note()
        id = self.sandbox.snapshot("resumable-session")
        self.sandbox.kill()
        return id

    def _note(self) -> None:
        notes = {"context": self.context.id, "messages": self.messages}
        self.sandbox.filesystem.write(NOTES, json.dumps(notes))


def end(id: str) -> None:
    """Removes what `hibernate` or `snapshot` left."""
    if id.startswith("sn-"):
        Client().snapshots.delete(id)
    else:
        Sandbox.get(id).kill()


def describe(ex: Execution) -> str:
    """A cell's outcome as the model reads it."""
    return "\n".join(filter(None, [ex.stdout.rstrip(), ex.text, ex.error])) or "(done, nothing printed)"
