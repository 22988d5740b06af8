"""CrewAI: a tool that has state is not cached."""

from __future__ import annotations

import pandastack
from crewai.tools import BaseTool
from pandastack.integrations.crewai import PythonTool

def test_it_runs_the_same_code_again(shared: pandastack.Sandbox) -> None:
    tool = PythonTool(shared.create_code_context())
    assert isinstance(tool, BaseTool) and tool.cache_function({}, "") is False
    assert tool.run(code="n = globals().get('n', 0) + 1; n") == "1"
    assert tool.run(code="n = globals().get('n', 0) + 1; n") == "2"
    assert "KeyError: 'k'" in tool.run(code="{}['k']")
