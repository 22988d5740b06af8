"""What LangChain makes of the tool: content for the model, an artifact for the program, and what goes wrong told as text."""

from __future__ import annotations

import asyncio
import base64
import json

import pandastack
import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pandastack.integrations.langchain import ShowFigures, python_tool
from scripted_model import Script, ScriptedModel
from scripted_model.picture import decode_png
from scripted_model.script import images_of

DRAW = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]); plt.show()\nimport pandas as pd\npd.DataFrame({'n': [7]})"


def call(tool: object, code: object) -> ToolMessage:
    return tool.invoke({"type": "tool_call", "id": "1", "name": "run_python", "args": {"code": code}})  # type: ignore[attr-defined]


def test_content_and_artifact(shared: pandastack.Sandbox) -> None:
    message = call(python_tool(shared.create_code_context()), DRAW)
    assert message.content.startswith("[figure 1: PNG, ") and "7" in message.content
    figure = message.artifact["figures"][0]
    assert (figure["type"], figure["mime_type"], message.artifact["end"]) == ("image", "image/png", "ok")
    assert decode_png(base64.b64decode(figure["base64"])).has_colours(2)
    assert "<table" in message.artifact["html"][0]
    json.dumps(message.artifact)  # checkpointers keep it


def test_what_goes_wrong_is_told(shared: pandastack.Sandbox) -> None:
    with pandastack.Sandbox.create("code-interpreter") as gone:
        tool = python_tool(gone, timeout_seconds=1)
        late = call(tool, "x = 1\nwhile True: pass")
        assert "its deadline of 1 seconds" in late.content and "still there" in late.content and late.artifact["end"] == "timeout"
        assert call(tool, "x").content == "1"
    assert "its sandbox has ended" in call(tool, "x").content
    assert "don't fit" in call(tool, ["no code"]).content


def test_asynchronous_sandboxes_and_agents() -> None:
    async def main() -> None:
        async with await pandastack.AsyncSandbox.create("code-interpreter") as sandbox:
            tool = python_tool(sandbox)
            message = await tool.ainvoke({"type": "tool_call", "id": "1", "name": "run_python", "args": {"code": "6 * 7"}})
            assert message.content == "42"
            with pytest.raises(NotImplementedError):
                tool.invoke({"code": "1"})

    asyncio.run(main())


@pytest.mark.parametrize("way", ["sync", "async"])
def test_figures_are_shown_once(shared: pandastack.Sandbox, way: str) -> None:
    drawing = {"name": "run_python", "arguments": {"code": DRAW}}
    plain = {"name": "run_python", "arguments": {"code": "1 + 1"}}
    script = Script([{"start": "draw it", "turns": [
        {"call": [drawing, drawing]},
        {"expect": {"image": True}, "call": [plain]},
        {"expect": {"tool": "2"}, "say": "Seen."},
    ]}])
    with ScriptedModel(script) as model:
        llm = ChatOpenAI(model="gpt-4o", base_url=model.base_url, api_key="scripted")
        tool = python_tool(shared.create_code_context())
        agent = create_agent(llm, tools=[tool], middleware=[ShowFigures()], checkpointer=InMemorySaver())
        config: RunnableConfig = {"configurable": {"thread_id": "1"}}
        asked = {"messages": [{"role": "user", "content": "draw it"}]}
        state = agent.invoke(asked, config) if way == "sync" else asyncio.run(agent.ainvoke(asked, config))
    assert state["messages"][-1].content == "Seen." and model.refused == []
    shown = [len(images_of(message)) for message in model.requests[-1]["messages"]]
    assert sum(shown) == 2 and shown.count(2) == 1
