"""LangChain and LangGraph: a tool whose content is text for the model, and whose artifact holds the figures.

    agent = create_agent(model, tools=[python_tool(sandbox)], middleware=[ShowFigures()])
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from .observation import CODE, NAME, Figure, Interpreter, Observation, describe, require

require("langchain", "langchain 1.5", "langchain-core 1.8")

from langchain.agents.middleware import AgentMiddleware  # noqa: E402
from langchain_core.messages import HumanMessage, ToolMessage  # noqa: E402
from langchain_core.tools import StructuredTool  # noqa: E402
from pydantic import BaseModel, Field  # noqa: E402

__all__ = ["ShowFigures", "python_tool"]


class _Cell(BaseModel):
    code: str = Field(description=CODE)


def python_tool(
    session: Any,
    *,
    name: str = NAME,
    description: Optional[str] = None,
    timeout_seconds: float = 60,
    on_figure: Optional[Callable[[Figure], Any]] = None,
) -> StructuredTool:
    """A tool that runs Python in a sandbox, with state from call to call.

    The content of its messages is text. Their `artifact` is a dict: "figures" (content blocks of LangChain, as in
    ``HumanMessage(content_blocks=…)``), "html" (str, of tables and the like) and "end" (as `Execution.end`, or
    "failed" when the cell could not be run).

    Args:
        session: a `Sandbox`, a `CodeContext`, or one of their asynchronous likes, which only ``ainvoke`` can use.
        name, description: what the model is told.
        timeout_seconds: the deadline of a call.
        on_figure: called with each `Figure`.
    """
    interpreter = Interpreter(session, timeout_seconds=timeout_seconds, on_figure=on_figure)

    def run(code: str) -> Tuple[str, Dict[str, Any]]:
        return _answer(interpreter.run(code))

    async def arun(code: str) -> Tuple[str, Dict[str, Any]]:
        return _answer(await interpreter.arun(code))

    return StructuredTool.from_function(
        func=None if interpreter.is_async else run,
        coroutine=arun,
        name=name,
        description=description or describe(shown=None),  # ShowFigures may show them
        args_schema=_Cell,
        response_format="content_and_artifact",
        handle_validation_error=lambda error: f"[error]\nThe arguments don't fit: {error}",
    )


def _answer(seen: Observation) -> Tuple[str, Dict[str, Any]]:
    figures = [{"type": "image", "base64": figure.base64, "mime_type": figure.mime} for figure in seen.figures]
    end = seen.execution.end if seen.execution else "failed"
    return seen.text, {"figures": figures, "html": list(seen.html), "end": end}


class ShowFigures(AgentMiddleware):
    """Shows the model what it drew.

    Most models take no pictures in tool messages, so the figures of the last calls follow as a user message before the
    model is called again. Only for models that see.
    """

    def before_model(self, state: Any, runtime: Any) -> Optional[Dict[str, Any]]:
        figures: List[Dict[str, Any]] = []
        for message in reversed(state["messages"]):
            if not isinstance(message, ToolMessage):
                break
            artifact = message.artifact if isinstance(message.artifact, dict) else {}
            figures[:0] = [one for one in artifact.get("figures", []) if one["mime_type"] in ("image/png", "image/jpeg")]
        if not figures:
            return None
        return {"messages": [HumanMessage(content=[{"type": "text", "text": "What you have just drawn:"}, *figures])]}
