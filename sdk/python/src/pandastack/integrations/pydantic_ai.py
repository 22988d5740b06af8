"""Pydantic AI: a tool that runs Python in a sandbox.

    agent = Agent(model, tools=[python_tool(sandbox)])
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from .observation import CODE, NAME, Figure, Interpreter, describe, require

require("pydantic_ai", "pydantic-ai-slim 2.68")

from pydantic import Field  # noqa: E402
from pydantic_ai import BinaryContent, Tool, ToolReturn  # noqa: E402
from typing_extensions import Annotated  # noqa: E402

__all__ = ["python_tool"]


def python_tool(
    session: Any,
    *,
    name: str = NAME,
    description: Optional[str] = None,
    timeout_seconds: float = 60,
    show_figures: bool = False,
    on_figure: Optional[Callable[[Figure], Any]] = None,
) -> Tool[Any]:
    """A tool that runs Python in a sandbox, with state from call to call.

    What it returns is text. The `metadata` of its `ToolReturnPart`, which the model is not sent, is the `Observation`,
    with the figures.

    Args:
        session: a `Sandbox`, a `CodeContext`, or one of their asynchronous likes.
        name, description: what the model is told.
        timeout_seconds: the deadline of a call.
        show_figures: show the model its figures, too; only for models that see.
        on_figure: called with each `Figure`.
    """
    interpreter = Interpreter(session, timeout_seconds=timeout_seconds, on_figure=on_figure)

    async def run(code: Annotated[str, Field(description=CODE)]) -> ToolReturn:
        seen = await interpreter.arun(code)
        shown = [BinaryContent(one.data, media_type=one.mime) for one in seen.figures if show_figures and one.for_models]
        return ToolReturn(return_value=seen.text, content=shown or None, metadata=seen)

    return Tool(run, name=name, description=description or describe(shown=show_figures), max_retries=3)
