"""plotly and altair: HTML, JSON and a picture, drawn without a network and outside the kernel."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import agent
import pytest
from conftest import needs

PLOTLY = "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(x=['α', '中'], y=[1, 2]))\n"


@pytest.fixture(scope="module")
def drawing(zygote):
    """A context whose browser is up already."""
    made = zygote.context()
    yield made
    made.close()


TYPES = {"text/html", "application/vnd.plotly.v1+json", "image/png"}


@needs("plotly", "kaleido")
@pytest.mark.parametrize(
    "show",
    [
        "fig",
        "display(fig)",
        "fig.show()",
        "fig.show(renderer='browser')",
        "import plotly.io as pio; pio.renderers.default = 'notebook'\nfig.show()",
        "import plotly.io as pio\npio.show(fig)",
        "from plotly.offline import iplot, init_notebook_mode\ninit_notebook_mode(connected=False)\niplot(fig)",
    ],
)
def test_plotly(drawing, show):
    ran = drawing.run(PLOTLY + show)
    assert ran.ok and ran.stderr == "", (ran.end, ran.stderr)
    (data,) = ran.data
    assert set(data) == TYPES
    assert len(data["text/html"]) < 100_000 and data["text/html"].startswith("<div") and "plotly-graph-div" in data["text/html"]
    assert json.loads(data["application/vnd.plotly.v1+json"])["data"][0]["x"] == ["α", "中"]
    assert base64.b64decode(data["image/png"])[:4] == b"\x89PNG"


@needs("plotly", "kaleido")
def test_plotly_writes_images_and_brings_no_thread(drawing, tmp_path):
    ran = drawing.run(PLOTLY + f"fig.write_image('{tmp_path}/a.svg'); fig.write_image('{tmp_path}/a.png', width=300, height=200)\nlen(fig.to_image(format='pdf')) > 500")
    assert ran.text == "True", ran.end
    assert "<svg" in (tmp_path / "a.svg").read_text()
    assert drawing.run("import os; len(os.listdir('/proc/self/task'))").text == "1"


@needs("plotly", "kaleido")
def test_plotly_without_a_browser_keeps_html_and_json(zygote):
    context = zygote.context(envs={"BROWSER_PATH": "/nowhere/browser"})
    ran = context.run(PLOTLY + "fig")
    assert ran.ok and set(ran.data[0]) == TYPES - {"image/png"}
    assert "no picture" in ran.stderr and ran.stderr.count("\n") == 1
    context.close()


@needs("plotly", "kaleido")
def test_a_drawing_process_that_hangs_is_given_up_and_replaced(zygote):
    context = zygote.context()
    context.run(PLOTLY + "fig")
    ran = context.run(
        "import os, signal, pandastack_kernel.renderer as r\n"
        "workers = [int(p) for p in os.listdir('/proc') if p.isdigit() and b'render_worker' in open(f'/proc/{p}/cmdline', 'rb').read() and open(f'/proc/{p}/stat').read().rsplit(')', 1)[1].split()[1] == str(os.getpid())]\n"
        "r.PICTURE_SECONDS = 1\nos.kill(workers[0], signal.SIGSTOP)\nfig"
    )
    assert ran.ok and "image/png" not in ran.data[0] and "no picture after 1 s" in ran.stderr, ran
    assert "image/png" in context.run("fig").data[0]
    context.close()


@needs("plotly", "kaleido")
def test_an_interrupt_while_drawing(zygote):
    context = zygote.context()
    ran = context.run_interrupted(PLOTLY + "print('go', flush=True)\nfor i in range(10_000): fig.to_image()", "go")
    assert ran.end["error_name"] == "KeyboardInterrupt"
    assert "image/png" in context.run("fig").data[0]
    context.close()


@needs("plotly", "kaleido")
def test_the_browser_ends_with_the_context(zygote):
    before = drawing_processes()
    context = zygote.context()
    context.run(PLOTLY + "fig")
    started = drawing_processes() - before
    assert len(started) >= 2  # the worker and its browser
    context.close()
    deadline = time.monotonic() + agent.PATIENCE
    while started & drawing_processes():
        assert time.monotonic() < deadline, started & drawing_processes()
        time.sleep(0.05)


def drawing_processes():
    """The ids of all workers and browsers that are alive."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if b"render_worker" in command or b"--user-data-dir" in command:
                found.add(int(process.name))
    return found


@needs("altair", "vl_convert")
@pytest.mark.parametrize("show", ["chart", "chart.show()", "display(chart)", "chart | chart"])
def test_altair(drawing, show):
    ran = drawing.run(
        "import altair as alt, pandas as pd\n"
        "chart = alt.Chart(pd.DataFrame({'a': ['中', 'b'], 'b': [3, 4]})).mark_bar().encode(x='a', y='b')\n" + show
    )
    assert ran.ok and ran.stderr == "", (ran.end, ran.stderr)
    (data,) = ran.data
    assert {"text/html", "image/png"} < set(data)
    (vega,) = [value for mime, value in data.items() if mime.startswith("application/vnd.vegalite.")]
    assert "$schema" in json.loads(vega)
    assert base64.b64decode(data["image/png"])[:4] == b"\x89PNG" and len(data["text/html"]) < 100_000
    assert drawing.run("import os; len(os.listdir('/proc/self/task'))").text == "1"


@needs("altair")
def test_an_altair_chart_that_is_wrong_says_so(context):
    ran = context.run("import altair as alt, pandas as pd\nalt.Chart(pd.DataFrame({'a': range(6000)})).mark_bar().encode(x='a')")
    assert "MaxRowsError" in ran.stderr


@needs("seaborn")
def test_seaborn(context):
    ran = context.run("import seaborn as sns\nsns.set_theme()\nsns.barplot(x=['中文', '😀'], y=[1, 2])")
    assert [set(data) for data in ran.data] == [{"text/plain"}, {"image/png"}] and "missing from" not in ran.stderr
