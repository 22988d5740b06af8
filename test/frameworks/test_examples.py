"""Each example, as a program, against a scripted model: what the model was shown, and the figure that is left.

The first cell fails, and the traceback reaches the model; the second one mends it and draws.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import EXAMPLES, HERE
from dialogue import in_text, with_edits, with_patches, with_tool, with_workspace
from scripted_model import Script, ScriptedModel
from scripted_model.picture import decode_png
from scripted_model.script import images_of, text_of

FINAL = """rate = exchange_rate(currency="USD")
final_answer(f"The best month was {best.month} with {best.revenue * rate:.0f} dollars.")"""

CONVERSATIONS = {
    "use_langchain.py": with_tool(image=True),
    "use_deepagents.py": with_edits(),
    "use_openai.py": with_tool(image=True),
    "use_openai_agents.py": with_tool(),
    "use_openai_agents_sandbox.py": with_patches(),
    "use_pydantic_ai.py": with_tool(image=True),
    "use_pydantic_ai_workspace.py": with_workspace(),
    "use_llamaindex.py": with_tool(),
    "use_crewai.py": with_tool(),
    "use_smolagents.py": in_text("<code>\n", "\n</code>", f"<code>\n{FINAL}\n</code>"),
    "use_autogen.py": with_tool("CodeExecutor"),
}
PROGRAMS = ("use_deepagents.py", "use_openai_agents_sandbox.py", "use_pydantic_ai_workspace.py")  # run programs, whose tracebacks are whole


@pytest.mark.parametrize("name", [f"use_{name}.py" for name in sorted({*HERE, "openai"})])
def test_example(name: str, example: Any, tmp_path: Path) -> None:
    with ScriptedModel(Script(CONVERSATIONS[name])) as model:
        said = example(name, model.base_url)
    assert model.refused == [] and len(model.requests) == len(CONVERSATIONS[name][0]["turns"])
    if name == "use_smolagents.py":
        assert "The best month was 2026-02 with 341 dollars." in said  # 310 × 1.1, which a function of the program said
    else:
        assert "The best month was 2026-02, as the chart shows." in said

    last = model.requests[-1]["messages"]
    texts = [text_of(message) for message in last]
    failed = next(text for text in texts if "KeyError" in text and "Traceback" in text)
    if name not in PROGRAMS:
        assert "site-packages" not in failed, "the traceback is of the model's code"
    assert not any("iVBOR" in text for text in texts), "no picture is sent as text"
    pictures = [url for message in last for url in images_of(message)]
    wanted = json.dumps(CONVERSATIONS[name]).count('"image": true') or name == "use_smolagents.py"
    assert len(pictures) == wanted

    picture = decode_png((tmp_path / "chart.png").read_bytes())
    assert picture.width >= 400 and picture.height >= 300
    colours = {row[i : i + 3] for row in picture.rows() for i in range(0, len(row), picture.channels)}
    assert bytes((31, 119, 180)) in colours, "the bars are there"


def test_examples_are_all_here() -> None:
    folder = Path(__file__).resolve().parents[2] / "examples" / "frameworks"
    run = {f"use_{name}.py" for names in EXAMPLES.values() for name in names}
    assert {path.name for path in folder.glob("*.py")} == set(CONVERSATIONS) == run


@pytest.mark.parametrize("name", sorted(name for names in EXAMPLES.values() for name in names))
def test_the_page_shows_the_example(name: str) -> None:
    root = Path(__file__).resolve().parents[2]
    code = (root / "examples" / "frameworks" / f"use_{name}.py").read_text().split('"""\n', 1)[1].strip()
    assert f"```python\n{code}\n```" in (root / "docs" / "frameworks" / f"{name.replace('_', '-')}.md").read_text()
