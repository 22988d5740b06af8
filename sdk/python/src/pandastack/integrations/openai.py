"""OpenAI's client, with no framework: the tool's schema, and what answers its calls.

    python = PythonTool(sandbox)
    message = client.chat.completions.create(model=…, messages=messages, tools=[python.schema]).choices[0].message
    messages += [message, *python.answer(message)]

It works with any client that has OpenAI's objects, or their JSON, and imports none.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from .observation import NAME, SCHEMA, Figure, Interpreter, Observation, describe

__all__ = ["PythonTool"]


class PythonTool:
    """A tool that runs Python in a sandbox, with state from call to call.

    Args:
        session: a `Sandbox`, a `CodeContext`, or one of their asynchronous likes, which only `aanswer` can use.
        name, description: what the model is told.
        timeout_seconds: the deadline of a call.
        show_figures: show the model its figures, too; only for models that see.
        on_figure: called with each `Figure`.
    """

    def __init__(
        self,
        session: Any,
        *,
        name: str = NAME,
        description: Optional[str] = None,
        timeout_seconds: float = 60,
        show_figures: bool = False,
        on_figure: Optional[Callable[[Figure], Any]] = None,
    ) -> None:
        self.name = name
        self.description = description or describe(shown=show_figures)
        self.show_figures = show_figures
        self._interpreter = Interpreter(session, timeout_seconds=timeout_seconds, on_figure=on_figure)

    @property
    def schema(self) -> Dict[str, Any]:
        """The tool for ``chat.completions.create(tools=[…])``."""
        return {"type": "function", "function": self._function}

    @property
    def responses_schema(self) -> Dict[str, Any]:
        """The tool for ``responses.create(tools=[…])``."""
        return {"type": "function", **self._function}

    @property
    def _function(self) -> Dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "strict": True,
            "parameters": SCHEMA,
        }

    def answer(self, message: Any) -> List[Dict[str, Any]]:
        """Runs what the model called this tool for, and gives the messages to append behind its own.

        Calls of other tools are left to you; append their answers first, since a message with figures can follow.

        Args:
            message: the assistant's message of chat completions, or a response of the Responses API.

        Returns:
            For chat completions a message for each call, and with `show_figures` one with the figures; for responses
            an output item for each call. [] when this tool was not called.
        """
        calls = self._calls(message)
        return self._answered(message, calls, [self._interpreter.run_json(arguments) for _, arguments in calls])

    async def aanswer(self, message: Any) -> List[Dict[str, Any]]:
        """The same without blocking the event loop."""
        calls = self._calls(message)
        return self._answered(message, calls, [await self._interpreter.arun_json(arguments) for _, arguments in calls])

    def _calls(self, message: Any) -> List[Tuple[str, str]]:
        """The id and the arguments of each call of this tool."""
        if _is_response(message):
            items = [item for item in _get(message, "output") if _get(item, "type") == "function_call"]
            return [(_get(item, "call_id"), _get(item, "arguments")) for item in items if _get(item, "name") == self.name]
        calls = [(_get(call, "id"), _get(call, "function")) for call in _get(message, "tool_calls") or []]
        return [(id, _get(function, "arguments")) for id, function in calls if _get(function, "name") == self.name]

    def _answered(self, message: Any, calls: List[Tuple[str, str]], seen: List[Observation]) -> List[Dict[str, Any]]:
        figures = [[one for one in each.figures if self.show_figures and one.for_models] for each in seen]
        answers: List[Dict[str, Any]] = []
        if _is_response(message):
            for (id, _), each, drawn in zip(calls, seen, figures):
                output: Any = each.text
                if drawn:
                    shown = [{"type": "input_image", "image_url": figure.data_url} for figure in drawn]
                    output = [{"type": "input_text", "text": each.text}, *shown]
                answers.append({"type": "function_call_output", "call_id": id, "output": output})
            return answers
        for (id, _), each in zip(calls, seen):
            answers.append({"role": "tool", "tool_call_id": id, "content": each.text})
        urls = [figure.data_url for drawn in figures for figure in drawn]
        if urls:  # a tool message of chat completions holds text only
            parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
            answers.append({"role": "user", "content": [{"type": "text", "text": "What you have just drawn:"}, *parts]})
        return answers


def _is_response(message: Any) -> bool:
    return isinstance(_get(message, "output"), list)


def _get(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, dict) else getattr(item, name, None)
