"""The comparison of branches that the README names: it runs, and the ways that it compares come to the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import ROOT

sys.path.insert(0, str(ROOT / "scripts" / "docs"))

from pages import blocks  # noqa: E402


@pytest.mark.slow
def test_all_ways_end_with_the_same(tmp_path: Path) -> None:
    line = next(block.text for block in blocks(ROOT / "README.md") if block.by.endswith("::" + test_all_ways_end_with_the_same.__name__)).partition("#")[0]
    # Less of it than a reader does. The program itself holds each way's tables against the file.
    less = f"{line.strip()} --mb 2 --runs 1 --sandboxes 5 --results {tmp_path}"
    done = subprocess.run(["bash", "-euc", less], cwd=ROOT, env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    (written,) = tmp_path.glob("*.json")
    lines = json.loads(written.read_text())["lines"]
    assert [bool(re.search(way, line["name"])) for way, line in zip(("in a row", "forks of the context", "forks of the sandbox", "memory"), lines, strict=True)] == [True] * 4
    assert all(line["median"] > 0 for line in lines)
