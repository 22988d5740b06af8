"""smolagents: `CodeAgent` thinks here and runs its code in a sandbox.

    with CodeAgent(tools=[], model=model, executor=SandboxExecutor(), additional_authorized_imports=["*"]) as agent:
        agent.run("…")
"""

from __future__ import annotations

import base64
import inspect
import io
import json
import keyword
import pickle
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from .. import Sandbox
from .observation import Figure, Interpreter, require

require("smolagents", "smolagents 1.26")

import PIL.Image  # noqa: E402
from smolagents.local_python_executor import CodeOutput, PythonExecutor  # noqa: E402
from smolagents.memory import ActionStep  # noqa: E402

__all__ = ["SandboxExecutor"]

_ANSWER = "application/vnd.pandastack.final-answer+json"
_TYPES = {"string": str, "boolean": bool, "integer": int, "number": float, "array": list, "object": dict}

# What stays in the sandbox for the agent: its final answer, which travels as JSON, or as a picture.
_SETUP = f'''
def final_answer(answer=None):
    """Give the final answer and end the run."""
    import base64, io, json
    from IPython import get_ipython

    def plain(value):
        for name in ("tolist", "isoformat"):
            if callable(getattr(value, name, None)):
                return getattr(value, name)()
        return list(value) if isinstance(value, (set, frozenset)) else str(value)

    kind, given = "json", answer
    for save, more in (("savefig", {{}}), ("save", {{"format": "PNG"}})):
        if hasattr(answer, save) and type(answer).__module__.split(".")[0] in ("matplotlib", "PIL"):
            into = io.BytesIO()
            getattr(answer, save)(into, **more)
            kind, given = "png", base64.b64encode(into.getvalue()).decode()
            break
    try:
        encoded = json.dumps(given, default=plain)
    except (TypeError, ValueError):  # keys that JSON has not, or what contains itself
        encoded = json.dumps(str(given))
    # Sent before it is raised: a bare `except:` catches what is raised, and cannot take back what was sent.
    get_ipython().display_pub.publish({{"{_ANSWER}": {{"kind": kind, "answer": encoded}}}}, {{}})
    raise type("FinalAnswer", (BaseException,), {{}})("the run ends here")
'''


class SandboxExecutor(PythonExecutor):
    """Runs the code of a `CodeAgent` in a sandbox, with state from step to step.

    Tools and managed agents stay in this program. Code calls them by their names, and arguments and results travel as
    JSON, so their sources, imports and keys never enter the sandbox. The final answer travels as JSON, too; a figure of
    matplotlib or a picture of PIL as a picture, and what has no JSON as its text. A model that sees is shown its figures
    with ``step_callbacks=[executor.show_figures]``.

    Args:
        sandbox: a `Sandbox` of yours, whose tools are replaced by the agent's. Default: one of its own, which `cleanup`
            ends.
        timeout_seconds: the deadline of a step.
        on_figure: called with each `Figure`.
        options: for `Sandbox.create`, when it makes its own; ``template`` is "code-interpreter".
    """

    def __init__(
        self,
        sandbox: Optional[Sandbox] = None,
        *,
        timeout_seconds: float = 60,
        on_figure: Optional[Callable[[Figure], Any]] = None,
        **options: Any,
    ) -> None:
        if sandbox is not None and options:
            raise TypeError(f"a sandbox is given, so it is too late for {', '.join(sorted(options))}")
        self._own = sandbox is None
        self._tools: Dict[str, Any] = {}
        self._variables: Set[str] = set()
        self._drawn: List[Figure] = []
        self.sandbox = sandbox or Sandbox.create(**{"template": "code-interpreter", "ttl_seconds": 3600, **options})
        try:
            self._context = self.sandbox.create_code_context()
            self._setup(_SETUP)
        except BaseException:
            if self._own:
                self.sandbox.kill()
            raise
        self._interpreter = Interpreter(self._context, timeout_seconds=timeout_seconds, on_figure=on_figure)

    def send_tools(self, tools: Mapping[str, Any]) -> None:
        """Lets code call these. `CodeAgent` calls it at the beginning of a run."""
        given = {name: tool for name, tool in tools.items() if name != "final_answer"}
        if given == self._tools:
            return
        self.sandbox.tools.set([_function(name, tool) for name, tool in given.items()])
        self._import(given)
        self._tools = given

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Puts values into the interpreter. They go in pickled; nothing pickled ever comes out.

        Raises:
            ValueError: one cannot be pickled here, or not be read in the sandbox; the message says which and why.
        """
        for name, value in variables.items():
            if not name.isidentifier() or keyword.iskeyword(name):
                raise ValueError(f"the variable {name!r} has a name that Python has no variables of")
            try:
                self.sandbox.filesystem.write(_pickled(name), pickle.dumps(value, protocol=4))
                self._load(name)
            except Exception as error:
                raise ValueError(f"the variable {name} ({type(value).__name__}) can't be sent to the sandbox: {error}") from error
            self._variables.add(name)

    def __call__(self, code_action: str) -> CodeOutput:
        """Runs a step. What goes wrong in it is raised, as smolagents wants it: the agent tells its model. An interpreter
        that ended in it has tools and sent variables again, as they were sent."""
        seen = self._interpreter.run(code_action)
        self._drawn = list(seen.figures)
        if seen.execution and not seen.execution.state_survived:
            self._restore()
        answers = [r.data[_ANSWER] for r in seen.execution.results if _ANSWER in r.data] if seen.execution else []
        if answers:
            logs = seen.execution.stdout if seen.execution else ""
            return CodeOutput(output=_answer(answers[0]), logs=logs, is_final_answer=True)
        if not seen.ok:
            raise RuntimeError(seen.text)
        return CodeOutput(output=None, logs=seen.text, is_final_answer=False)

    def show_figures(self, step: ActionStep, agent: Any = None) -> None:
        """A step callback that lets the model see what the step drew."""
        pictures = [PIL.Image.open(io.BytesIO(figure.data)) for figure in self._drawn if figure.for_models]
        if pictures and isinstance(step, ActionStep):
            step.observations_images = [*(step.observations_images or []), *pictures]
        self._drawn = []

    def cleanup(self) -> None:
        """Ends the interpreter, and the sandbox if it is the executor's own."""
        self.sandbox.tools.close()
        if self._own:
            self.sandbox.kill()
        else:
            self._context.close()

    def _restore(self) -> None:
        """Gives an interpreter that was replaced what it had from here: without `final_answer` no run could end."""
        self._setup(_SETUP)
        self._import(self._tools)
        for name in sorted(self._variables):
            self._load(name)

    def _import(self, tools: Mapping[str, Any]) -> None:
        if tools:
            self._setup(f"from tools import {', '.join(tools)}")

    def _load(self, name: str) -> None:
        # Without a name of its own, which could be that of a variable.
        self._setup(f"{name} = __import__('pickle').loads(__import__('pathlib').Path({_pickled(name)!r}).read_bytes())")

    def _setup(self, code: str) -> None:
        done = self._context.run_code(code)
        if done.error:
            raise RuntimeError(done.error)


def _pickled(name: str) -> str:
    """The file in the sandbox that a variable is loaded from."""
    return f"/tmp/{name}.pickle"


def _answer(encoded: str) -> Any:
    given = json.loads(encoded)
    answer = json.loads(given["answer"])
    if given["kind"] != "png":
        return answer
    return PIL.Image.open(io.BytesIO(base64.b64decode(answer)))


def _function(name: str, tool: Any) -> Callable[..., Any]:
    """A function for `Sandbox.tools` that calls a tool or a managed agent of smolagents."""

    def call(**arguments: Any) -> Any:
        return tool(**arguments)

    parameters = []
    for argument, about in (getattr(tool, "inputs", None) or {}).items():
        kind = about.get("type")
        hint: Any = _TYPES.get(kind, Any) if isinstance(kind, str) else Any
        default = None if about.get("nullable") else inspect.Parameter.empty
        hint = Optional[hint] if default is None else hint
        parameters.append(inspect.Parameter(argument, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
    call.__name__ = name
    notes = [f"    {argument}: {about.get('description', '')}" for argument, about in (tool.inputs or {}).items()]
    call.__doc__ = "\n".join([str(tool.description), "", "Args:", *notes])
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    setattr(call, "__signature__", inspect.Signature(sorted(parameters, key=lambda one: one.default is None)))
    return call
