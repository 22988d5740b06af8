"""LlamaIndex: a tool that runs Python in a sandbox, and what a `CodeActAgent` executes code with.

    agent = FunctionAgent(tools=[python_tool(sandbox)], llm=llm)
    agent = CodeActAgent(code_execute_fn=code_executor(sandbox), llm=llm)
"""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Dict, Optional

from .observation import CODE, NAME, Figure, Interpreter, Observation, describe, require

require("llamaindex", "llama-index-core 0.14.25")

from llama_index.core.tools import FunctionTool  # noqa: E402
from pydantic import BaseModel, Field  # noqa: E402
from pydantic_core import SchemaSerializer, core_schema  # noqa: E402

__all__ = ["code_executor", "python_tool"]


class _Cell(BaseModel):
    code: str = Field(description=CODE)


def _as_json(figure: Figure) -> Dict[str, str]:
    return {"mime": figure.mime, "base64": figure.base64}


# Events of a workflow are written as JSON by pydantic, which takes bytes for text.
_JSON = core_schema.plain_serializer_function_ser_schema(_as_json, when_used="json")
setattr(Figure, "__pydantic_serializer__", SchemaSerializer(core_schema.any_schema(serialization=_JSON)))


def python_tool(
    session: Any,
    *,
    name: str = NAME,
    description: Optional[str] = None,
    timeout_seconds: float = 60,
    on_figure: Optional[Callable[[Figure], Any]] = None,
) -> FunctionTool:
    """A tool that runs Python in a sandbox, with state from call to call.

    The `raw_output` of what it returns is an `Observation`, with the figures; the model is sent its text.

    Args:
        session: a `Sandbox`, a `CodeContext`, or one of their asynchronous likes, which only agents can use.
        name, description: what the model is told.
        timeout_seconds: the deadline of a call.
        on_figure: called with each `Figure`.
    """
    interpreter = Interpreter(session, timeout_seconds=timeout_seconds, on_figure=on_figure)
    return FunctionTool.from_defaults(
        fn=interpreter.run,
        async_fn=interpreter.arun,
        name=name,
        description=description or describe(shown=False),
        fn_schema=_Cell,
    )


def code_executor(
    session: Any,
    *,
    timeout_seconds: float = 60,
    on_figure: Optional[Callable[[Figure], Any]] = None,
) -> Callable[[str], Awaitable[Observation]]:
    """The `code_execute_fn` of a `CodeActAgent`. The functions in its `tools` are not in the sandbox: give them to
    `Sandbox.create(tools=[…])` instead, and tell the model to import them.

    Args: as for `python_tool`.
    """

    async def execute(code: str) -> Observation:
        return await interpreter.arun(code)

    interpreter = Interpreter(session, timeout_seconds=timeout_seconds, on_figure=on_figure)
    return execute
