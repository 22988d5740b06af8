"""OpenAI's Agents SDK: a SandboxAgent, which works with a shell and files, in a sandbox.

    pip install "pandastack[openai-agents-sandbox]"
    OPENAI_API_KEY=… python use_openai_agents_sandbox.py
"""

import asyncio
import os
import sys
from pathlib import Path

from agents import RunConfig, Runner, set_tracing_disabled
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File

from pandastack.integrations.openai_agents_sandbox import PandastackSandboxClient

TASK = "Which month of sales.csv had the highest revenue? Draw the months into chart.png, too."
SALES = b"month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n"


async def main() -> None:
    agent = SandboxAgent(name="Analyst", model=os.environ.get("OPENAI_MODEL", "gpt-5.1"))
    workspace = Manifest(entries={"sales.csv": File(content=SALES)})
    async with await PandastackSandboxClient().create(manifest=workspace) as session:
        config = RunConfig(sandbox=SandboxRunConfig(session=session))
        result = await Runner.run(agent, " ".join(sys.argv[1:]) or TASK, run_config=config)
        print(result.final_output)
        Path("chart.png").write_bytes((await session.read(Path("chart.png"))).read())
        print("The chart is at chart.png")


set_tracing_disabled(True)  # it sends what agents do to OpenAI
asyncio.run(main())
