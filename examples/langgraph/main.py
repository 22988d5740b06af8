"""A LangGraph agent that computes in a sandbox and looks at its own charts.

    python main.py                          # the scripted model
    OPENAI_API_KEY=… python main.py "…"     # a real one
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, List, Optional

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pandastack import CodeContext, Sandbox

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


class ShowCharts(AgentMiddleware):
    """Hands the charts of the last tool calls to the model. A tool message holds text only, so they follow as a user
    message before the model is called again."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: List[str] = []  # PNG in base64, not shown yet
        self.shown: List[str] = []

    def before_model(self, state: Any, runtime: Any) -> Optional[Dict[str, Any]]:
        charts, self.drawn = self.drawn, []
        self.shown += charts
        if not charts:
            return None
        parts: List[Any] = [{"type": "text", "text": "What you have just drawn:"}]
        parts += [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}} for png in charts]
        return {"messages": [HumanMessage(content=parts)]}


def make_tool(session: CodeContext, charts: ShowCharts) -> Any:
    """The tool: a cell in one interpreter that lives as long as the agent."""

    @tool
    def run_python(code: str) -> str:
        """Run Python in a session that keeps its state. Returns what is printed, the last expression's value, or the
        traceback. Charts need no savefig; you see them after the call."""
        ex = session.run_code(code, timeout_seconds=60)
        charts.drawn += [result.png for result in ex.results if result.png]
        if ex.error:
            return f"{ex.stdout}\n{ex.error}"
        return "\n".join(filter(None, [ex.stdout.rstrip(), ex.text])) or "(done, nothing printed)"

    return run_python


def make_agent(model: Any, session: CodeContext, charts: ShowCharts) -> Any:
    """The graph. With its memory, a later message of the same thread goes on where the last one ended."""
    return create_agent(
        model=model,
        tools=[make_tool(session, charts)],
        system_prompt=PROMPT,
        middleware=[charts],
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
        charts = ShowCharts()
        agent = make_agent(model, session, charts)
        for task in options.task:
            print(f"? {task}\n= {ask(agent, task)}\n", flush=True)
        options.out.mkdir(parents=True, exist_ok=True)
        for number, png in enumerate(charts.shown, 1):
            path = options.out.resolve() / ("chart.png" if number == 1 else f"chart-{number}.png")
            path.write_bytes(base64.b64decode(png))
            print(f"The chart is at {path}")


if __name__ == "__main__":
    main()
