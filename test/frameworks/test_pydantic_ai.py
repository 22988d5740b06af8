"""Pydantic AI: figures are for the program unless the model is to be shown them; arguments that do not fit are told."""

from __future__ import annotations

import pandastack
from pandastack.integrations.observation import Observation
from pandastack.integrations.pydantic_ai import python_tool
from pydantic_ai import Agent
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from scripted_model import Script, ScriptedModel

DRAW = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]); plt.show()"


def test_it_keeps_figures_from_the_model_unless_it_is_told(shared: pandastack.Sandbox) -> None:
    calls = [{"name": "run_python", "arguments": {"code": DRAW}}]
    bad = [{"name": "run_python", "arguments": {"source": DRAW}}]
    script = Script([{"start": "draw it", "turns": [
        {"call": bad},
        {"expect": {"tool": "code"}, "call": calls},
        {"expect": {"tool": "figure 1"}, "say": "Drawn."},
    ]}])
    with ScriptedModel(script) as model:
        llm = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=model.base_url, api_key="scripted"))
        run = Agent(llm, tools=[python_tool(shared.create_code_context())]).run_sync("draw it")
    assert run.output == "Drawn." and model.refused == []
    part = [p for m in run.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)][-1]
    assert isinstance(part.metadata, Observation) and part.metadata.figures[0].data[:4] == b"\x89PNG"
    assert "image_url" not in str(model.requests[-1]["messages"])
