"""CrewAI: a tool that runs Python in a sandbox.

    analyst = Agent(role=…, tools=[PythonTool(sandbox)])
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Type

from .observation import CODE, NAME, Figure, Interpreter, describe, require

require("crewai", "crewai 1.15")

from crewai.tools import BaseTool  # noqa: E402
from pydantic import BaseModel, Field, PrivateAttr  # noqa: E402

__all__ = ["PythonTool"]


class _Cell(BaseModel):
    code: str = Field(description=CODE)


def _never(*_: Any) -> bool:
    return False


class PythonTool(BaseTool):
    """A tool that runs Python in a sandbox, with state from call to call.

    Args:
        session: a `Sandbox`, a `CodeContext`, or one of their asynchronous likes, which only ``kickoff_async`` can use.
        name, description: what the model is told.
        timeout_seconds: the deadline of a call.
        on_figure: called with each `Figure`. CrewAI's tools return text only, so this is where figures go.
    """

    args_schema: Type[BaseModel] = _Cell
    # The same code gives something else when variables have changed.
    cache_function: Callable[..., bool] = _never
    _interpreter: Interpreter = PrivateAttr()

    def __init__(
        self,
        session: Any,
        *,
        name: str = NAME,
        description: Optional[str] = None,
        timeout_seconds: float = 60,
        on_figure: Optional[Callable[[Figure], Any]] = None,
        **more: Any,
    ) -> None:
        super().__init__(name=name, description=description or describe(shown=False), **more)
        self._interpreter = Interpreter(session, timeout_seconds=timeout_seconds, on_figure=on_figure)

    def _run(self, code: str) -> str:
        return self._interpreter.run(code).text

    async def _arun(self, code: str) -> str:
        return (await self._interpreter.arun(code)).text
