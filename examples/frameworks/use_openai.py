"""OpenAI's client alone: the loop of an agent that analyses a file in a sandbox and looks at its chart.

    pip install "pandastack[openai]"
    OPENAI_API_KEY=… python use_openai.py
"""

import os
import sys

import openai

from pandastack import Sandbox
from pandastack.integrations.openai import PythonTool

TASK = "Which month of /workspace/sales.csv had the highest revenue? Draw the months, too."
SALES = "month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n"

with Sandbox.create("code-interpreter", ttl_seconds=3600) as sandbox:
    sandbox.filesystem.write("/workspace/sales.csv", SALES)
    python = PythonTool(
        sandbox,
        show_figures=True,  # to a model that sees
        on_figure=lambda figure: print("The chart is at", figure.save("chart")),
    )
    client = openai.OpenAI()
    messages = [{"role": "user", "content": " ".join(sys.argv[1:]) or TASK}]
    for _ in range(20):
        answer = client.chat.completions.create(
            model=os.environ.get("OPENAI_MODEL", "gpt-5.1"), messages=messages, tools=[python.schema]
        )
        message = answer.choices[0].message
        if not message.tool_calls:
            print(message.content)
            break
        messages += [message, *python.answer(message)]
