"""LlamaIndex: figures are in the raw output, and a CodeActAgent runs its code in a sandbox."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pandastack
from dialogue import FAILED, in_text
from llama_index.core.agent.workflow import CodeActAgent
from llama_index.llms.openai_like import OpenAILike
from pandastack.integrations.llamaindex import code_executor, python_tool
from pandastack.integrations.observation import Figure
from scripted_model import Script, ScriptedModel
from scripted_model.script import text_of

DRAW = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]); plt.show()"


def test_figures_are_in_the_raw_output(shared: pandastack.Sandbox) -> None:
    tool = python_tool(shared.create_code_context())
    for output in (tool.call(code=DRAW), asyncio.run(tool.acall(code=DRAW))):
        assert output.content.startswith("[figure 1: PNG") and output.raw_output.figures[0].data[:4] == b"\x89PNG"
        assert json.loads(output.model_dump_json())["raw_output"]["figures"][0]["base64"].startswith("iVBOR"), "as events are written"


def test_a_code_act_agent(shared: pandastack.Sandbox) -> None:
    shared.filesystem.write("/workspace/sales.csv", "month,revenue\n2026-01,120\n2026-02,310\n2026-03,190\n")
    drawn: list[Figure] = []
    with ScriptedModel(Script(in_text("<execute>\n", "\n</execute>"))) as model:
        llm = OpenAILike(model="gpt-4o", api_base=model.base_url, api_key="scripted", is_chat_model=True)
        agent = CodeActAgent(code_execute_fn=code_executor(shared.create_code_context(), on_figure=drawn.append), llm=llm)

        async def main() -> Any:
            return await agent.run("Which month had the highest revenue?")

        assert str(asyncio.run(main())) == "The best month was 2026-02, as the chart shows."
    assert model.refused == [] and len(drawn) == 1
    assert any(re.search(FAILED, text_of(m)) for m in model.requests[1]["messages"])
