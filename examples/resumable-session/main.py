"""A conversation in several processes; between them there is nothing but an id in a file.

    python main.py start                      # works, and leaves the sandbox hibernated
    python main.py start --keep snapshot      # … or leaves a snapshot, and no sandbox
    python main.py resume                     # goes on, and leaves it in the same way again
    python main.py end                        # removes it
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import openai

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from scripted_model import Script, ScriptedModel  # noqa: E402
from session import Session, end  # noqa: E402

FIRST = "Load the sales, add them up by month, and draw the months."
SECOND = "Which month was the best, and how far above the average was it?"


def main() -> None:
    parser = argparse.ArgumentParser(description="A conversation that outlives its process.")
    parser.add_argument("step", choices=("start", "resume", "end"))
    parser.add_argument("question", nargs="?")
    parser.add_argument("--keep", choices=("hibernate", "snapshot"), default="hibernate", help="what `start` leaves")
    parser.add_argument("--id-file", type=Path, default=HERE / "out" / "session.id", help="where the id is kept")
    parser.add_argument("--csv", type=Path, default=HERE.parent / "data-analyst" / "sales.csv")
    parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", "gpt-5.1"))
    parser.add_argument("--scripted", action="store_true", help="use the scripted model even if there is a key")
    options = parser.parse_args()

    options.id_file.parent.mkdir(parents=True, exist_ok=True)
    if options.step == "start":
        if options.id_file.exists():
            parser.error(f"there is a conversation in {options.id_file} already: resume or end it")
        session, old = Session.start(options.csv), None
    else:
        if not options.id_file.exists():
            parser.error(f"there is no conversation in {options.id_file}: start one")
        old = options.id_file.read_text().strip()
        if options.step == "end":
            end(old)
            options.id_file.unlink()
            return
        session = Session.resume(old)
        print(f"The context {session.context.id} is there again, with {session.context.info().execution_count} cells behind it.")

    snapshots = old.startswith("sn-") if old else options.keep == "snapshot"
    question = options.question or (FIRST if options.step == "start" else SECOND)
    with ExitStack() as stack:
        if options.scripted or not os.environ.get("OPENAI_API_KEY"):
            served = stack.enter_context(ScriptedModel(Script.load(HERE / "script.json")))
            model = openai.OpenAI(base_url=served.base_url, api_key="scripted")
        else:
            model = openai.OpenAI()
        try:
            print(f"? {question}\n= {session.ask(model, options.model, question)}")
            kept = session.snapshot() if snapshots else session.hibernate()
        except BaseException:
            if old is None or snapshots:
                session.sandbox.kill()  # nobody would have its id
            raise
    options.id_file.write_text(kept)
    if old and snapshots:
        end(old)  # the new image has all that the old one had
    for number, png in enumerate(session.charts, 1):
        path = options.id_file.resolve().parent / f"{options.step}-{number}.png"
        path.write_bytes(base64.b64decode(png))
        print(f"The chart is at {path}")
    print(f"Left as {kept}")


if __name__ == "__main__":
    main()
