"""AutoGen: an agent whose CodeExecutor is a sandbox.

    pip install "pandastack[autogen]" "autogen-ext[openai]"
    OPENAI_API_KEY=… python use_autogen.py
"""

import asyncio
import os
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.code_execution import PythonCodeExecutionTool

from pandastack import AsyncSandbox
from pandastack.integrations.autogen import SandboxCodeExecutor

TASK = "Which month of /workspace/sales.csv had the highest revenue? Draw the months, too."
SALES = "month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n"


async def main() -> None:
    client = OpenAIChatCompletionClient(
        model=os.environ.get("OPENAI_MODEL", "gpt-5.1"),
        model_info={"vision": True, "function_calling": True, "json_output": True, "structured_output": True, "family": "unknown"},
    )
    async with await AsyncSandbox.create("code-interpreter", ttl_seconds=3600) as sandbox:
        await sandbox.filesystem.write("/workspace/sales.csv", SALES)
        show = lambda figure: print("The chart is at", figure.save("chart"))  # noqa: E731
        async with SandboxCodeExecutor(sandbox, on_figure=show) as executor:
            python = PythonCodeExecutionTool(executor)
            analyst = AssistantAgent("analyst", client, tools=[python], max_tool_iterations=20)
            done = await analyst.run(task=" ".join(sys.argv[1:]) or TASK)
            print(done.messages[-1].to_text())
    await client.close()


asyncio.run(main())
