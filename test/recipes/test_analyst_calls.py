"""What a data analyst does with the SDK: a CSV written once, read once, asked many times, charts handed on."""

from __future__ import annotations

import base64
import json

import pytest
from pandastack import CodeContext, Sandbox

CSV = "date,region,revenue\n2025-01-03,Nord,10\n2025-02-01,Süd,30\n2025-02-20,Nord,5\n"


@pytest.fixture
def loaded(shared_sandbox: Sandbox, ctx: CodeContext) -> CodeContext:
    shared_sandbox.filesystem.write("/workspace/sales.csv", CSV)
    ex = ctx.run_code("""
import pandas as pd
import matplotlib.pyplot as plt
df = pd.read_csv('/workspace/sales.csv', parse_dates=['date'])
""")
    assert (ex.error, ex.results, ex.text, ex.stdout) == (None, [], None, ""), "a cell of assignments shows nothing"
    return ctx


def tool_text(ex: "object") -> str:
    """A table if there is one first, else the value, else what was printed."""
    first = ex.results[0].html if ex.results else None
    return first or ex.text or ex.stdout


def test_a_file_written_into_workspace_is_there_for_the_kernel(sandbox: Sandbox) -> None:
    sandbox.filesystem.write("/workspace/new/deep/sales.csv", CSV)
    assert sandbox.run_code("open('/workspace/new/deep/sales.csv', encoding='utf-8').read()").text == repr(CSV)
    assert sandbox.run_code("import os; os.getcwd()").text == "'/workspace'"


def test_a_table_as_the_last_line_is_html_first(loaded: CodeContext) -> None:
    ex = loaded.run_code("df.groupby('region')['revenue'].sum().to_frame()", timeout_seconds=60)
    assert "<table" in ex.results[0].html and "Süd" in ex.results[0].html
    assert tool_text(ex) == ex.results[0].html
    assert ex.results[0].is_last_expression and "Nord" in ex.text


def test_the_table_stays_first_when_the_cell_also_draws(loaded: CodeContext) -> None:
    for code in ("df.plot.bar(x='region', y='revenue'); plt.show()\ndf", "df.plot.bar(x='region', y='revenue')\ndf"):
        ex = loaded.run_code(code)
        assert "<table" in ex.results[0].html
        assert [bool(r.png) for r in ex.results] == [False, True]
        assert "<table" in tool_text(ex) and ex.png


def test_a_chart_alone_has_no_html_and_no_text(loaded: CodeContext) -> None:
    ex = loaded.run_code("df.groupby(df['date'].dt.month)['revenue'].sum().plot.bar(); plt.show()")
    assert [list(r.data) for r in ex.results] == [["image/png"]], "one picture, once"
    assert (ex.results[0].html, ex.text, tool_text(ex)) == (None, None, "")
    assert base64.b64decode(ex.png).startswith(b"\x89PNG")
    assert ex.results[0].chart == ex.png


def test_imports_and_frames_last(loaded: CodeContext) -> None:
    assert loaded.run_code("int(df.groupby(df['date'].dt.month)['revenue'].sum().idxmax())").text == "2"
    peak = loaded.run_code("peak = df[df['date'].dt.month == 2]\nlen(peak)")
    assert peak.text == "2"
    assert loaded.run_code("int(peak['revenue'].sum())").text == "35"


def test_what_a_tool_returns_is_always_a_string(loaded: CodeContext) -> None:
    for code in ("df", "1+1", "print('x')", "y = 1", "plt.plot([1]); plt.show()", "None"):
        text = tool_text(loaded.run_code(code))
        assert isinstance(text, str)
        json.dumps({"content": text})


def test_text_is_the_repr_of_the_last_expression(loaded: CodeContext) -> None:
    assert loaded.run_code("print('printed')\n'ü' * 2").text == "'üü'"
    assert loaded.run_code("display('shown'); 5").text == "5"


@pytest.mark.slow
def test_a_longer_deadline_than_a_clients_usual_patience(loaded: CodeContext) -> None:
    """A cell of more than the 30 s that an ordinary call may take."""
    ex = loaded.run_code("import time; time.sleep(31); 'done'", timeout_seconds=60)
    assert (ex.end, ex.text) == ("ok", "'done'")
