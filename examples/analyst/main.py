"""Asks two questions about a file as German offices write them, and keeps the report, the notebook and the charts.

    python main.py                                  # a scripted model
    python main.py --model openai:gpt-4o            # with the key that the server has
"""

from __future__ import annotations

import argparse
import subprocess
from contextlib import ExitStack
from pathlib import Path

from pandastack import Analyst

HERE = Path(__file__).resolve().parent
QUESTIONS = ["Plot the revenue by month; which month is the peak?", "And which branch was strongest in it?"]


def scripted(stack: ExitStack, program: str) -> str:
    """Starts the scripted model and gives its base URL."""
    model = stack.enter_context(subprocess.Popen([program, "agent", "script", HERE / "script.json"], stdout=subprocess.PIPE, text=True))
    stack.callback(model.terminate)
    assert model.stdout
    return model.stdout.readline().strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Questions about a file.")
    parser.add_argument("--model", help="PROVIDER:NAME; a scripted one when left out")
    parser.add_argument("--file", type=Path, default=HERE / "umsatz.csv")
    parser.add_argument("--out", type=Path, default=HERE / "out")
    parser.add_argument("--program", default="pandastack", help="where the command line is, for the scripted model")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    with ExitStack() as stack:
        model, base_url = options.model, None
        if model is None:
            model, base_url = "openai:scripted", scripted(stack, options.program)
        analyst = stack.enter_context(Analyst(options.file, model=model, base_url=base_url))
        charts = 0
        for question in QUESTIONS:
            answer = analyst.ask(question)
            print(f"? {question}\n= {answer.text or answer.run.info.error}")
            for figure in answer.figures:
                charts += 1
                (options.out / f"chart-{charts}.png").write_bytes(figure)
        for table in analyst.tables:
            print(f"\n{table['file']} as {table['name']}:", *table["notes"], sep="\n  ")
        (options.out / "report.html").write_text(analyst.report(), encoding="utf-8")
        (options.out / "analysis.ipynb").write_bytes(analyst.notebook())
        print(f"\n{charts} chart(s), report.html and analysis.ipynb are in {options.out}")


if __name__ == "__main__":
    main()
