"""CrewAI: a crew of one that analyses a file in a sandbox.

    pip install "pandastack[crewai]"
    OPENAI_API_KEY=… python use_crewai.py
"""

import os
import sys

from crewai import LLM, Agent, Crew, Task

from pandastack import Sandbox
from pandastack.integrations.crewai import PythonTool

TASK = "Which month of /workspace/sales.csv had the highest revenue? Draw the months, too."
SALES = "month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n"

with Sandbox.create("code-interpreter", ttl_seconds=3600) as sandbox:
    sandbox.filesystem.write("/workspace/sales.csv", SALES)
    analyst = Agent(
        role="Data analyst",
        goal="Answer questions about data with figures that were computed.",
        backstory="You compute with Python instead of guessing.",
        llm=LLM(model=f"openai/{os.environ.get('OPENAI_MODEL', 'gpt-5.1')}"),
        tools=[PythonTool(sandbox, on_figure=lambda figure: print("The chart is at", figure.save("chart")))],
    )
    task = Task(description=" ".join(sys.argv[1:]) or TASK, expected_output="The month, and what the chart shows.", agent=analyst)
    print(Crew(agents=[analyst], tasks=[task]).kickoff())
