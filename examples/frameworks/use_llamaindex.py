"""LlamaIndex: an agent that analyses a file in a sandbox.

    pip install "pandastack[llamaindex]" llama-index-llms-openai-like
    OPENAI_API_KEY=… python use_llamaindex.py
"""

import asyncio
import os
import sys

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike

from pandastack import Sandbox
from pandastack.integrations.llamaindex import python_tool

TASK = "Which month of /workspace/sales.csv had the highest revenue? Draw the months, too."
SALES = "month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n"


async def main() -> None:
    with Sandbox.create("code-interpreter", ttl_seconds=3600) as sandbox:
        sandbox.filesystem.write("/workspace/sales.csv", SALES)
        llm = OpenAILike(
            model=os.environ.get("OPENAI_MODEL", "gpt-5.1"),
            api_base=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1"),
            api_key=os.environ["OPENAI_API_KEY"],
            is_chat_model=True,
            is_function_calling_model=True,
        )
        python = python_tool(sandbox, on_figure=lambda figure: print("The chart is at", figure.save("chart")))
        print(await FunctionAgent(tools=[python], llm=llm).run(" ".join(sys.argv[1:]) or TASK))


asyncio.run(main())
