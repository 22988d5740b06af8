"""OpenAI's objects and their JSON, of both of its APIs, and its Agents SDK."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pandastack
from agents import Agent, OpenAIChatCompletionsModel, Runner, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import Response, ResponseFunctionToolCall
from pandastack.integrations.openai import PythonTool
from pandastack.integrations.openai_agents import python_tool
from scripted_model import Script, ScriptedModel

DRAW = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]); plt.show()"


def chat_call(code: str, name: str = "run_python", id: str = "c1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps({"code": code})}}


def test_chat_completions(shared: pandastack.Sandbox) -> None:
    python = PythonTool(shared.create_code_context(), show_figures=True)
    body = {"role": "assistant", "tool_calls": [chat_call(DRAW), chat_call("x", "other", "c2"), chat_call("6 * 7", id="c3")]}
    for message in (body, ChatCompletionMessage.model_validate(body)):
        first, second, shown = python.answer(message)
        assert first["tool_call_id"] == "c1" and first["content"].startswith("[figure 1: PNG")
        assert second == {"role": "tool", "tool_call_id": "c3", "content": "42"}
        assert shown["role"] == "user" and shown["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert python.answer({"role": "assistant", "content": "hello"}) == []


def test_responses(shared: pandastack.Sandbox) -> None:
    item = ResponseFunctionToolCall(type="function_call", name="run_python", call_id="c1", arguments=json.dumps({"code": DRAW}))
    response = Response.model_construct(output=[item])
    quiet, shown = (PythonTool(shared.create_code_context(), show_figures=show) for show in (False, True))
    assert quiet.responses_schema["name"] == "run_python" and quiet.responses_schema["strict"] is True
    (answer,) = quiet.answer(response)
    assert answer["type"] == "function_call_output" and answer["output"].startswith("[figure 1: PNG")
    (answer,) = asyncio.run(shown.aanswer(response))
    assert [part["type"] for part in answer["output"]] == ["input_text", "input_image"]
    assert shown.answer({"output": [{"type": "message"}]}) == []


def test_arguments_that_are_cut_off_are_told(shared: pandastack.Sandbox) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "run_python", "arguments": '{"code": "print('}}
    (answer,) = PythonTool(shared).answer({"tool_calls": [call]})
    assert "The arguments don't fit" in answer["content"]


def test_agents_sdk(shared: pandastack.Sandbox) -> None:
    tool = python_tool(shared.create_code_context(), show_figures=True)

    async def invoke(arguments: str) -> Any:
        context = ToolContext(context=None, tool_name=tool.name, tool_call_id="c1", tool_arguments=arguments)
        return await tool.on_invoke_tool(context, arguments)

    text, image = asyncio.run(invoke(json.dumps({"code": DRAW})))
    assert isinstance(text, ToolOutputText) and text.text.startswith("[figure 1")
    assert isinstance(image, ToolOutputImage) and str(image.image_url).startswith("data:image/png;base64,iVBOR")
    assert "don't fit" in asyncio.run(invoke("{"))


def test_a_sandbox_that_ends_does_not_end_the_run() -> None:
    call = {"name": "run_python", "arguments": {"code": "1"}}
    script = Script([{"start": "go", "turns": [{"call": [call]}, {"expect": {"tool": "its sandbox has ended"}, "say": "It is gone."}]}])
    with pandastack.Sandbox.create("code-interpreter") as gone:
        tool = python_tool(gone)
    with ScriptedModel(script) as model:
        client = openai.AsyncOpenAI(base_url=model.base_url, api_key="scripted")
        agent = Agent(name="a", model=OpenAIChatCompletionsModel("gpt-4o", client), tools=[tool])
        assert asyncio.run(Runner.run(agent, "go")).final_output == "It is gone."
