"""Asks a question about a CSV, shows how the answer comes about, and keeps the charts.

    python main.py                         # the scripted model, the sales file beside this
    OPENAI_API_KEY=… python main.py --csv mine.csv "What stands out?"
    python main.py --web                   # the same in the browser, charts as they are drawn
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict

import openai

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from analyst import Analyst  # noqa: E402
from page import Page  # noqa: E402
from scripted_model import Script, ScriptedModel  # noqa: E402

QUESTION = "Which month brought in the most revenue, and which region was strongest in it? Draw the revenue by month."


class Notes:
    """Prints the steps and keeps the charts as files: chart.png, chart-2.png, …"""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.charts = 0

    def __call__(self, step: Dict[str, Any]) -> None:
        kind, text = step["type"], step["text"]
        if kind == "chart":
            self._out.mkdir(parents=True, exist_ok=True)
            self.charts += 1
            path = self._out / ("chart.png" if self.charts == 1 else f"chart-{self.charts}.png")
            path.write_bytes(base64.b64decode(text))
            print(f"\n  The chart is at {path}")
        elif kind == "table":
            print(f"  (a table of {text.rpartition('<tbody')[2].count('<tr')} rows)")
        else:
            before = {"question": "? ", "code": "> ", "answer": "= ", "error": "! "}.get(kind, "  ")
            print("\n" + "\n".join(before + line for line in text.rstrip().splitlines()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A data analyst in a sandbox.")
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--csv", type=Path, default=HERE / "sales.csv")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="where charts are kept")
    parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", "gpt-5.1"))
    parser.add_argument("--scripted", action="store_true", help="use the scripted model even if there is a key")
    parser.add_argument("--web", action="store_true", help="show it on a page, and take questions there")
    parser.add_argument("--port", type=int, default=8090, help="of the page")
    options = parser.parse_args()

    with ExitStack() as stack:
        if options.scripted or not os.environ.get("OPENAI_API_KEY"):
            served = stack.enter_context(ScriptedModel(Script.load(HERE / "script.json")))
            model = openai.OpenAI(base_url=served.base_url, api_key="scripted")
        else:
            model = openai.OpenAI()
        notes = Notes(options.out.resolve())
        page = stack.enter_context(Page(options.port)) if options.web else None

        def listen(step: Dict[str, Any]) -> None:
            notes(step)
            if page is not None:
                page.publish(step)

        analyst = stack.enter_context(Analyst(model, options.model, listen))
        analyst.load(options.csv)
        if page is None:
            analyst.ask(options.question)
            return
        print(f"The page is at {page.url} (Ctrl-C ends it)", flush=True)
        questions = page.questions()
        page.put(options.question)
        try:
            for question in questions:
                try:
                    analyst.ask(question)
                except (openai.OpenAIError, RuntimeError) as error:
                    listen({"type": "error", "text": str(error)})
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
