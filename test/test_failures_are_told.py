"""A failure is shown while other tests still run: conftest.py at the top."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import ROOT

TESTS = """
import os, pytest, time

def test_a():
    print("said before it failed")
    assert 6 * 7 == 54, "the words of the failure"

@pytest.fixture
def broken():
    raise OSError("the words of the fixture")

def test_b(broken):
    pass

def test_c():
    until = time.monotonic() + 60
    while not os.path.exists("shown"):
        assert time.monotonic() < until, "nobody was shown a failure"
        time.sleep(0.02)
"""


@pytest.mark.parametrize("spread", [[], ["-n", "2"]], ids=["alone", "spread over workers"])
def test_a_failure_is_shown_when_it_happens_and_once(tmp_path: Path, spread: list[str]) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_three.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *spread, "test_three.py"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout
        said = ""
        for line in run.stdout:
            said += line
            if said.count("said before it failed") > 1 and "OSError: the words of the fixture" in said:
                break
        assert "nobody was shown" not in said, said
        assert "the words of the failure" in said and "test_three.py::test_b setup" in said, said
        (tmp_path / "shown").touch()
        rest = run.stdout.read()
    assert run.returncode == 1
    assert "FAILED test_three.py::test_a" in rest and "ERROR test_three.py::test_b" in rest and "2 failed" not in rest, rest
    assert "1 failed, 1 passed, 1 error" in rest
    assert (said + rest).count("raise OSError") == 1 and "FAILURES" not in said + rest
