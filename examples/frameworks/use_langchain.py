"""LangChain: an agent that analyses a file in a sandbox and looks at its chart.

    pip install "pandastack[langchain]" langchain-openai
    OPENAI_API_KEY=… python use_langchain.py
"""

import os
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from pandastack import Sandbox
from pandastack.integrations.langchain import ShowFigures, python_tool

TASK = "Which month of /workspace/sales.csv had the highest revenue? Draw the months, too."
SALES = "month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n"

with Sandbox.create("code-interpreter", ttl_seconds=3600) as sandbox:
    sandbox.filesystem.write("/workspace/sales.csv", SALES)
    agent = create_agent(
        ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-5.1")),
        tools=[python_tool(sandbox, on_figure=lambda figure: print("The chart is at", figure.save("chart")))],
        middleware=[ShowFigures()],  # for models that see
    )
    state = agent.invoke({"messages": [{"role": "user", "content": " ".join(sys.argv[1:]) or TASK}]})
    print(state["messages"][-1].content)
