"""A LangGraph agent that computes in a sandbox and looks at its own charts.

    python main.py                          # the scripted model
    OPENAI_API_KEY=… python main.py "…"     # a real one
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, List

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pandastack import CodeContext, Sandbox
from pandastack.integrations import Figure
from pandastack.integrations.langchain import ShowFigures, python_tool

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from scripted_model import Script, ScriptedModel  # noqa: E402

TASK = (
    "How many primes are there below one million? Draw their count against n / ln n for n up to a million, "
    "and tell me what the chart shows."
)
PROMPT = (
    "You compute with the run_python tool instead of guessing. Its session keeps variables and imports between calls, so "
    "build on what is there. Draw with matplotlib and end with plt.show(); you are shown each chart afterwards."
)


def make_agent(model: Any, session: CodeContext, charts: List[Figure]) -> Any:
    """The graph; it adds what is drawn to `charts`. With its memory, a later message of the same thread goes on where the
    last one ended."""
    return create_agent(
        model=model,
        tools=[python_tool(session, on_figure=charts.append)],
        system_prompt=PROMPT,
        middleware=[ShowFigures()],
        checkpointer=InMemorySaver(),
    )


def ask(agent: Any, question: str, thread: str = "1") -> str:
    """One turn of a conversation; gives the final words."""
    state = agent.invoke(
        {"messages": [{"role": "user", "content": question}]}, {"configurable": {"thread_id": thread}}
    )
    return str(state["messages"][-1].content)


def main() -> None:
    parser = argparse.ArgumentParser(description="A LangGraph agent that computes in a sandbox.")
    parser.add_argument("task", nargs="*", default=[TASK], help="one or several, asked in one conversation")
    parser.add_argument("--model", default=os.environ.get("OPENAI_MODEL", "gpt-5.1"))
    parser.add_argument("--scripted", action="store_true", help="use the scripted model even if there is a key")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="where charts are kept")
    options = parser.parse_args()

    with ExitStack() as stack:
        if options.scripted or not os.environ.get("OPENAI_API_KEY"):
            served = stack.enter_context(ScriptedModel(Script.load(HERE / "script.json")))
            model = ChatOpenAI(model=options.model, base_url=served.base_url, api_key="scripted", use_responses_api=False)
        else:
            model = ChatOpenAI(model=options.model)
        sandbox = stack.enter_context(Sandbox.create(template="code-interpreter", ttl_seconds=3600))
        session = stack.enter_context(sandbox.create_code_context())
        charts: List[Figure] = []
        agent = make_agent(model, session, charts)
        for task in options.task:
            print(f"? {task}\n= {ask(agent, task)}\n", flush=True)
        options.out.mkdir(parents=True, exist_ok=True)
        for number, chart in enumerate(charts, 1):
            print("The chart is at", chart.save(options.out.resolve() / ("chart" if number == 1 else f"chart-{number}")))


if __name__ == "__main__":
    main()
