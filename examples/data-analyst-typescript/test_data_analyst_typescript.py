"""The program in TypeScript gives the same answer as the one in Python, and leaves its chart."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from scripted_model import Script, ScriptedModel

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parent / "data-analyst"


def run(*command: str, env: "dict[str, str]") -> str:
    done = subprocess.run(command, cwd=HERE, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_program_answers_and_leaves_the_chart(environment: Any, tmp_path: Path) -> None:
    run("npm", "ci", "--silent", env=environment)
    run("npm", "run", "--silent", "build", env=environment)
    with ScriptedModel(Script.load(PYTHON / "script.json")) as model:
        env = {**environment, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "scripted"}
        said = run("node", "out/main.js", "--out", str(tmp_path), env=env)
        assert model.refused == []
    peak = said.rsplit("peak month: ", 1)[1].split()[0]  # as the cell printed it, behind the code that does
    answer = said.rstrip().splitlines()[-1]
    assert answer.startswith(f"= {peak} brought in the most revenue, ") and "was the strongest region" in answer
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG"), "and the model was shown it, or it would have refused"
