"""OpenAI's Agents SDK: an agent that analyses a file in a sandbox.

    pip install "pandastack[openai-agents]"
    OPENAI_API_KEY=… python use_openai_agents.py
"""

import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

from pandastack import Sandbox
from pandastack.integrations.openai_agents import python_tool

TASK = "Which month of /workspace/sales.csv had the highest revenue? Draw the months, too."
SALES = "month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n"

set_tracing_disabled(True)  # it sends what agents do to OpenAI
with Sandbox.create("code-interpreter", ttl_seconds=3600) as sandbox:
    sandbox.filesystem.write("/workspace/sales.csv", SALES)
    agent = Agent(
        name="Analyst",
        model=OpenAIChatCompletionsModel(os.environ.get("OPENAI_MODEL", "gpt-5.1"), AsyncOpenAI()),
        tools=[python_tool(sandbox, on_figure=lambda figure: print("The chart is at", figure.save("chart")))],
    )
    print(Runner.run_sync(agent, " ".join(sys.argv[1:]) or TASK).final_output)
