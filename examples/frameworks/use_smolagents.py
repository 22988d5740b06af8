"""smolagents: a CodeAgent whose code runs in a sandbox, and whose tools stay here.

    pip install "pandastack[smolagents]"
    OPENAI_API_KEY=… python use_smolagents.py
"""

import os
import sys

from smolagents import CodeAgent, OpenAIModel, tool

from pandastack import Sandbox
from pandastack.integrations.smolagents import SandboxExecutor

TASK = "Which month of /workspace/sales.csv had the highest revenue, in dollars? Draw the months, too."
SALES = "month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n"


@tool
def exchange_rate(currency: str) -> float:
    """What one euro is worth. It runs in this program, not in the sandbox.

    Args:
        currency: three letters, such as USD.
    """
    return {"USD": 1.1, "GBP": 0.85}[currency]


with Sandbox.create("code-interpreter", ttl_seconds=3600) as sandbox:
    sandbox.filesystem.write("/workspace/sales.csv", SALES)
    executor = SandboxExecutor(sandbox, on_figure=lambda figure: print("The chart is at", figure.save("chart")))
    with CodeAgent(
        tools=[exchange_rate],
        model=OpenAIModel(os.environ.get("OPENAI_MODEL", "gpt-5.1")),
        executor=executor,
        step_callbacks=[executor.show_figures],  # for models that see
        additional_authorized_imports=["*"],  # tells the model so; the sandbox is the wall
    ) as agent:
        print(agent.run(" ".join(sys.argv[1:]) or TASK))
