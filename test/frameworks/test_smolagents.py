"""CodeAgent with its code in a sandbox: tools and managed agents stay here, answers come back as values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import PIL.Image
import pytest
from pandastack import Sandbox
from pandastack.integrations.smolagents import SandboxExecutor
from scripted_model import Script, ScriptedModel
from scripted_model.script import images_of, text_of
from smolagents import CodeAgent, OpenAIModel, tool

SEEN: list[Any] = []


@tool
def lookup(name: str, deep: bool = False) -> dict:
    """Look somebody up.

    Args:
        name: whom.
        deep: all of it.
    """
    SEEN.append((name, deep))
    if name == "nobody":
        raise KeyError(name)
    return {"name": name, "age": 36}


def agent(model: ScriptedModel, executor: SandboxExecutor, **more: Any) -> CodeAgent:
    given = {"tools": [], "executor": executor, "additional_authorized_imports": ["*"], **more}
    return CodeAgent(model=llm(model), verbosity_level=0, **given)


def llm(model: ScriptedModel) -> OpenAIModel:
    return OpenAIModel("gpt-4o", api_base=model.base_url, api_key="scripted")


def steps(start: str, *cells: str) -> dict[str, Any]:
    return {"start": start, "turns": [{"say": f"I try.\n<code>\n{cell}\n</code>"} for cell in cells]}


@pytest.fixture
def executor(shared: Sandbox) -> Iterator[SandboxExecutor]:
    made = SandboxExecutor(shared, timeout_seconds=20)
    yield made
    made.cleanup()


def test_tools_run_here(executor: SandboxExecutor) -> None:
    cells = (
        "try:\n    lookup('nobody')\nexcept Exception as error:\n    print(type(error).__name__, error)",
        "who = lookup(name='ada', deep=True)",
        "final_answer(who)",
    )
    SEEN.clear()
    with ScriptedModel(Script([steps("look up", *cells)])) as model:
        assert agent(model, executor, tools=[lookup]).run("look up ada") == {"name": "ada", "age": 36}
    assert SEEN == [("nobody", False), ("ada", True)], "in this process, that is"
    said = [text_of(message) for message in model.requests[-1]["messages"]]
    assert any("ToolError" in text and "nobody" in text for text in said)


def test_managed_agents_run_here(executor: SandboxExecutor) -> None:
    asking = steps("what the helper", "print(helper(task='count to three'))", "final_answer('done')")
    with ScriptedModel(Script([asking, steps("count to three", "final_answer('1, 2, 3')")])) as model:
        helper = CodeAgent(tools=[], model=llm(model), name="helper", description="Counts.", verbosity_level=0)
        assert agent(model, executor, managed_agents=[helper]).run("ask what the helper says") == "done"
    assert any("1, 2, 3" in text_of(message) for message in model.requests[-1]["messages"])


@pytest.mark.parametrize(
    "code, answer",
    [
        ("final_answer([1, {'a': None}])", [1, {"a": None}]),
        ("import numpy as np\nfinal_answer({'n': np.int64(3), 'x': np.arange(2)})", {"n": 3, "x": [0, 1]}),
        ("final_answer({(1, 2): 3})", "{(1, 2): 3}"),
        ("try:\n    final_answer('out')\nexcept Exception:\n    print('caught')", "out"),
        ("import datetime\nfinal_answer(datetime.date(2026, 2, 1))", "2026-02-01"),
    ],
)
def test_answers_are_values(executor: SandboxExecutor, code: str, answer: Any) -> None:
    output = executor(code)
    assert output.is_final_answer and output.output == answer


def test_a_figure_is_an_answer(executor: SandboxExecutor) -> None:
    drawing = "import matplotlib.pyplot as plt\nprint('drawn')\nfig, ax = plt.subplots(); ax.plot([1, 4, 9])"
    done = executor(f"{drawing}\nfinal_answer(fig)")
    assert done.is_final_answer and isinstance(done.output, PIL.Image.Image)
    assert done.output.size[0] > 400 and done.logs == "drawn\n"


def test_values_go_in(executor: SandboxExecutor) -> None:
    executor.send_variables({"numbers": [1, 2], "frame": pd.DataFrame({"a": [1, 2]})})
    assert executor("sum(numbers), int(frame.a.sum())").logs == "(3, 3)"
    with pytest.raises(ValueError, match="the variable bad .function. can't be sent"):
        executor.send_variables({"bad": lambda: 1})
    with pytest.raises(ValueError, match="has a name that Python has no variables of"):
        executor.send_variables({"not a name": 1})
    with pytest.raises(ValueError, match="has a name that Python has no variables of"):
        executor.send_variables({"class": 1})


def test_an_interpreter_that_ends_has_again_what_it_was_given(executor: SandboxExecutor) -> None:
    executor.send_tools({"lookup": lookup})
    executor.send_variables({"file": [1, 2]})
    with pytest.raises(RuntimeError, match="The interpreter ended"):
        executor("import os\nos._exit(1)")
    assert executor("file, lookup(name='ada')['age']").logs == "([1, 2], 36)"
    assert executor("final_answer(file)").output == [1, 2]


def test_the_model_sees_figures_of_the_step_before_and_only_once(executor: SandboxExecutor) -> None:
    draw = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]); plt.show()"
    with ScriptedModel(Script([steps("draw it", draw, "x = 1", "final_answer('ok')")])) as model:
        assert agent(model, executor, step_callbacks=[executor.show_figures]).run("draw it") == "ok"
    assert [sum(len(images_of(m)) for m in request["messages"]) for request in model.requests] == [0, 1, 1]


def test_a_deadline_and_an_error_are_steps_that_failed(executor: SandboxExecutor) -> None:
    executor._interpreter.timeout_seconds = 1
    with ScriptedModel(Script([steps("go", "print('before')\nwhile True: pass", "1 / 0", "final_answer('ok')")])) as model:
        assert agent(model, executor).run("go") == "ok"
    said = "\n".join(text_of(message) for message in model.requests[-1]["messages"])
    assert "before" in said and "its deadline of 1 seconds" in said and "ZeroDivisionError" in said


def test_its_own_sandbox_ends_with_the_agent() -> None:
    executor = SandboxExecutor(metadata={"of": "the executor"})
    with ScriptedModel(Script([steps("go", "final_answer(1)")])) as model, agent(model, executor) as made:
        assert made.run("go") == 1
        assert len(Sandbox.list(metadata={"of": "the executor"})) == 1
    assert Sandbox.list(metadata={"of": "the executor"}, status="running") == []
    with pytest.raises(TypeError, match="too late for ttl_seconds"):
        SandboxExecutor(executor.sandbox, ttl_seconds=5)
