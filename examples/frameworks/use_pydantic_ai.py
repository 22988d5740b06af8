"""Pydantic AI: an agent that analyses a file in a sandbox and looks at its chart.

    pip install "pandastack[pydantic-ai]"
    OPENAI_API_KEY=… python use_pydantic_ai.py
"""

import os
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

from pandastack import Sandbox
from pandastack.integrations.pydantic_ai import python_tool

TASK = "Which month of /workspace/sales.csv had the highest revenue? Draw the months, too."
SALES = "month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n"

with Sandbox.create("code-interpreter", ttl_seconds=3600) as sandbox:
    sandbox.filesystem.write("/workspace/sales.csv", SALES)
    python = python_tool(
        sandbox,
        show_figures=True,  # to a model that sees
        on_figure=lambda figure: print("The chart is at", figure.save("chart")),
    )
    agent = Agent(OpenAIChatModel(os.environ.get("OPENAI_MODEL", "gpt-5.1")), tools=[python])
    print(agent.run_sync(" ".join(sys.argv[1:]) or TASK).output)
