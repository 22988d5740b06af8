"""A model proposes several forecasts; all are tried at once, each in a branch of one session, and the best goes on.

    python main.py                         # the scripted model, three ways to branch
    python main.py --way contexts          # one of them
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, List

import openai
from pandastack import CodeContext, Sandbox

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from branching import PREPARE, Attempt, Tried, by_contexts, by_explore, by_tree  # noqa: E402
from scripted_model import Script, ScriptedModel  # noqa: E402

WAYS = ("contexts", "tree", "explore")
QUESTION = "How can December's revenue be forecast from the eleven months before it? Propose a few simple ways, I try them all."
INSTRUCTIONS = """The DataFrame `past` has the revenue of the months 1 to 11 (index) by region (columns); pandas is imported as pd, numpy can be.
Each attempt is Python that leaves the forecast of month 12 in `forecast`, a Series by region."""
TOOLS: List[Dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "try_side_by_side",
            "description": "Runs all attempts at once, each in a copy of the session, and returns how far each was off.",
            "parameters": {
                "type": "object",
                "properties": {
                    "attempts": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"name": {"type": "string"}, "code": {"type": "string"}},
                            "required": ["name", "code"],
                            "additionalProperties": False,
                        },
                    }
                },
                "required": ["attempts"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]
CHART = """
import matplotlib.pyplot as plt
actual = pd.read_pickle('/workspace/actual.pkl').iloc[0]
pd.DataFrame({'forecast': forecast, 'actual': actual}).plot.bar(ylabel='Revenue')
plt.show()
"""


def branch(way: str, sandbox: Sandbox, session: CodeContext, attempts: List[Attempt]) -> "tuple[List[Tried], Any]":
    if way == "contexts":
        return by_contexts(session, attempts)
    if way == "tree":
        return by_tree(sandbox, session, attempts)
    return by_explore(sandbox, attempts)


def table(tried: List[Tried]) -> str:
    ordered = sorted(tried, key=lambda t: (t.off is None, t.off))
    width = max(len(t.name) for t in tried)
    return "\n".join(f"{t.name:<{width}}  {t.off:>10.2f}" if t.off is not None else f"{t.name:<{width}}  {t.error}" for t in ordered)


def main() -> None:
    parser = argparse.ArgumentParser(description="Several analyses side by side, and the best goes on.")
    parser.add_argument("--way", choices=WAYS, action="append", help="how to branch; default: one after the other, all")
    parser.add_argument("--csv", type=Path, default=HERE.parent / "data-analyst" / "sales.csv")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="where the chart is kept")
    parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", "gpt-5.1"))
    parser.add_argument("--scripted", action="store_true", help="use the scripted model even if there is a key")
    options = parser.parse_args()

    with ExitStack() as stack:
        if options.scripted or not os.environ.get("OPENAI_API_KEY"):
            served = stack.enter_context(ScriptedModel(Script.load(HERE / "script.json")))
            model = openai.OpenAI(base_url=served.base_url, api_key="scripted")
        else:
            model = openai.OpenAI()
        sandbox = stack.enter_context(Sandbox.create("code-interpreter", ttl_seconds=1800))
        sandbox.filesystem.upload(options.csv, "/workspace/sales.csv")
        session = sandbox.create_code_context()
        prepared = session.run_code(PREPARE)
        if prepared.error:
            raise SystemExit(prepared.error)

        messages: List[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": QUESTION}]
        said = model.chat.completions.create(model=options.model, messages=messages, tools=TOOLS).choices[0].message
        messages.append(said)
        for call in said.tool_calls or []:
            attempts = [Attempt(**attempt) for attempt in json.loads(call.function.arguments)["attempts"]]
            results = ""
            for way in options.way or WAYS:
                tried, kept = branch(way, sandbox, session, attempts)
                results = table(tried)
                print(f"By {way}, kept in {kept.id}:\n{results}\n", flush=True)
                if isinstance(kept, Sandbox):
                    stack.enter_context(kept)  # killed at the end
                if way != "explore":
                    # The winner goes on with its variables; a command leaves only its files.
                    going_on = kept.context(session.id) if isinstance(kept, Sandbox) else kept
                    options.out.mkdir(parents=True, exist_ok=True)
                    path = options.out.resolve() / f"{way}.png"
                    path.write_bytes(base64.b64decode(going_on.run_code(CHART).png or ""))
                    print(f"The chart is at {path}\n")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": results})
        if said.tool_calls:
            said = model.chat.completions.create(model=options.model, messages=messages, tools=TOOLS).choices[0].message
        print(f"= {said.content}")


if __name__ == "__main__":
    main()
