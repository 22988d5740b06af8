"""Pydantic AI: an agent whose tools work in a workspace, which is a sandbox.

    pip install "pandastack[pydantic-ai-workspace]"
    OPENAI_API_KEY=… python use_pydantic_ai_workspace.py
"""

import asyncio
import os
import sys
from pathlib import Path

from pydantic_ai import Agent, BinaryContent, RunContext
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.workspaces import Workspace

from pandastack import AsyncSandbox
from pandastack.integrations.pydantic_ai_workspace import SandboxWorkspaceBackend

TASK = "Which month of sales.csv had the highest revenue? Draw the months into chart.png, too."
SALES = "month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n"

agent = Agent(OpenAIResponsesModel(os.environ.get("OPENAI_MODEL", "gpt-5.1")))


@agent.tool
async def shell(ctx: RunContext, command: str) -> str:
    """Runs a command of the shell in the workspace."""
    done = await ctx.workspace.run(command, shell=True, timeout=120)
    return f"{done.stdout}{done.stderr}\n[exit code {done.exit_code}]"


@agent.tool
async def write_file(ctx: RunContext, path: str, text: str) -> str:
    """Writes a file of the workspace."""
    await ctx.workspace.write_text(path, text)
    return "Written."


@agent.tool
async def look_at(ctx: RunContext, path: str) -> BinaryContent:
    """Shows a PNG of the workspace."""
    return BinaryContent(await ctx.workspace.read_bytes(path), media_type="image/png")


async def main() -> None:
    async with await AsyncSandbox.create("code-interpreter", ttl_seconds=3600) as sandbox:
        workspace = Workspace(SandboxWorkspaceBackend(sandbox))
        await workspace.write_text("sales.csv", SALES)
        print((await agent.run(" ".join(sys.argv[1:]) or TASK, workspace=workspace)).output)
        Path("chart.png").write_bytes(await workspace.read_bytes("chart.png"))
        print("The chart is at chart.png")


asyncio.run(main())
