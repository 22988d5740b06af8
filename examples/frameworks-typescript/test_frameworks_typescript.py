"""The programs run with the real packages: what the model is told, what it does about an error, and the figures that are left."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from scripted_model import Script, ScriptedModel
from scripted_model.picture import decode_png
from scripted_model.script import images_of, text_of

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "test" / "conformance"))

from sdks import node  # noqa: E402


def run(*command: str, env: "dict[str, str]") -> str:
    done = subprocess.run(command, cwd=HERE, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(environment: "dict[str, str]") -> None:
    lock, installed = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:  # half a minute
        run("npm", "ci", "--silent", env=environment)
    run("npm", "run", "--silent", "build", env=environment)  # which holds the tools against the packages' own types


def best_region() -> str:
    totals: "Counter[str]" = Counter()
    with (HERE.parent / "data-analyst" / "sales.csv").open() as lines:
        for row in csv.DictReader(lines):
            totals[row["region"]] += float(row["revenue"])  # type: ignore[assignment]
    return totals.most_common(1)[0][0]


@pytest.mark.parametrize("program", ["langgraph", "ai-sdk"])
def test_the_model_computes_and_mends_its_error(program: str, built: None, environment: "dict[str, str]", tmp_path: Path) -> None:
    script = json.loads((HERE / "script.json").read_text())["conversations"]
    if program == "langgraph":  # whose middleware shows the figures
        script[0]["turns"][2]["expect"]["image"] = True
    with ScriptedModel(Script(script)) as model:
        env = {**environment, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "scripted"}
        said = run(node(newest=True), f"out/{program}.js", "--out", str(tmp_path), env=env)
        assert model.refused == []
    assert said.rstrip().splitlines()[-1] == f"= {best_region()} sold most."
    picture = decode_png((tmp_path / "chart-1.png").read_bytes())
    assert picture.has_colours(3)
    messages = model.requests[-1]["messages"]
    broken, mended = [text_of(message) for message in messages if message["role"] == "tool"]
    assert broken.endswith("KeyError: 'Region'") and "site-packages" not in broken, "a traceback of the model's own code"
    assert f"[figure 1: PNG, {picture.width}×{picture.height} pixels]" in mended and "base64" not in mended and "<table" not in mended
    assert len(images_of(messages[-1])) == (program == "langgraph")
    tool = model.requests[0]["tools"][0]["function"]
    assert tool["parameters"]["properties"]["code"]["type"] == "string" and "Variables, imports and files stay" in tool["description"]
