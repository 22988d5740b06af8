"""Asks one question after the other, each answered in a sandbox of its own.

    python main.py                               # the scripted model
    OPENAI_API_KEY=… python main.py "Simulate …" "And if …?"
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import openai

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from agent import Agent  # noqa: E402
from scripted_model import Script, ScriptedModel  # noqa: E402

QUESTIONS = [
    "Start a notebook of measurements with 3, 4 and 8.",
    "Add 17 to it. What is the mean now?",
    "Check the file: how many lines has it?",
]


def main() -> None:
    parser = argparse.ArgumentParser(description="An agent with a fresh sandbox for every turn.")
    parser.add_argument("questions", nargs="*", default=QUESTIONS)
    parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", "gpt-5.1"))
    parser.add_argument("--scripted", action="store_true", help="use the scripted model even if there is a key")
    options = parser.parse_args()
    with ExitStack() as stack:
        if options.scripted or not os.environ.get("OPENAI_API_KEY"):
            served = stack.enter_context(ScriptedModel(Script.load(HERE / "script.json")))
            model = openai.OpenAI(base_url=served.base_url, api_key="scripted")
        else:
            model = openai.OpenAI()
        agent = stack.enter_context(Agent(model, options.model))
        for question in options.questions:
            print(f"? {question}\n= {agent.ask(question)}", flush=True)
            print(f"  (in {agent.turns[-1].sandbox_id}, which left {agent.turns[-1].snapshot_id})\n", flush=True)


if __name__ == "__main__":
    main()
