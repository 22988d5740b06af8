"""Deep Agents: an agent whose files and commands are those of a sandbox.

    pip install "pandastack[deepagents]" langchain-openai
    OPENAI_API_KEY=… python use_deepagents.py
"""

import os
import sys

from deepagents import create_deep_agent
from langchain_openai import ChatOpenAI

from pandastack import Sandbox
from pandastack.integrations.deepagents import SandboxBackend

TASK = "Which month of /workspace/sales.csv had the highest revenue? Draw the months into /workspace/chart.png, too."
SALES = "month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n"

with Sandbox.create("code-interpreter", ttl_seconds=3600) as sandbox:
    sandbox.filesystem.write("/workspace/sales.csv", SALES)
    model = ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-5.1"), use_responses_api=True)
    agent = create_deep_agent(model, backend=SandboxBackend(sandbox), system_prompt="Your files are in /workspace.")
    state = agent.invoke({"messages": [{"role": "user", "content": " ".join(sys.argv[1:]) or TASK}]})
    print(state["messages"][-1].text)
    sandbox.filesystem.download("/workspace/chart.png", "chart.png")
    print("The chart is at chart.png")
