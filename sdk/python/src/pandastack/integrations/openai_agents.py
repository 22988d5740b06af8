"""OpenAI's Agents SDK: a tool that runs Python in a sandbox.

    agent = Agent(name="Analyst", tools=[python_tool(sandbox)])
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from .observation import NAME, SCHEMA, Figure, Interpreter, describe, require

require("openai_agents", "openai-agents 0.24")

from agents import FunctionTool, ToolOutputImage, ToolOutputText  # noqa: E402

__all__ = ["python_tool"]


def python_tool(
    session: Any,
    *,
    name: str = NAME,
    description: Optional[str] = None,
    timeout_seconds: float = 60,
    show_figures: bool = False,
    on_figure: Optional[Callable[[Figure], Any]] = None,
) -> FunctionTool:
    """A tool that runs Python in a sandbox, with state from call to call.

    Args:
        session: a `Sandbox`, a `CodeContext`, or one of their asynchronous likes.
        name, description: what the model is told.
        timeout_seconds: the deadline of a call.
        show_figures: give the model its figures, too, as parts of the tool's output. For models that see, over the
            Responses API: chat completions take no pictures there.
        on_figure: called with each `Figure`.
    """
    interpreter = Interpreter(session, timeout_seconds=timeout_seconds, on_figure=on_figure)

    async def invoke(context: Any, arguments: str) -> Any:
        seen = await interpreter.arun_json(arguments)
        figures = [figure for figure in seen.figures if show_figures and figure.for_models]
        if not figures:
            return seen.text
        return [ToolOutputText(text=seen.text), *(ToolOutputImage(image_url=figure.data_url) for figure in figures)]

    return FunctionTool(
        name=name,
        description=description or describe(shown=show_figures),
        params_json_schema=SCHEMA,
        on_invoke_tool=invoke,
        strict_json_schema=True,
    )
