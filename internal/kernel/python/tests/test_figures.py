"""matplotlib: every figure once, wherever it was shown."""

from __future__ import annotations

import base64
import struct

import pytest
from conftest import needs

pytestmark = needs("matplotlib", "pandas")

HEAD = "import matplotlib.pyplot as plt\n"


def pictures(ran):
    return [data for data in ran.data if "image/png" in data]


def size(data):
    png = base64.b64decode(data["image/png"])
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize(
    "code",
    [
        "plt.plot([1, 2]); plt.show()",
        "plt.plot([1, 2]); plt.show()\nprint('after')",
        "plt.plot([1, 2]);",
        "fig, ax = plt.subplots(); ax.plot([1, 2])\nfig",
        "fig, ax = plt.subplots(); ax.plot([1, 2])\nfig.show()",
        "fig, ax = plt.subplots(); ax.plot([1, 2])\nfig.show(); plt.show()",
        "fig, ax = plt.subplots(); ax.plot([1, 2])\ndisplay(fig)",
        "fig, ax = plt.subplots(); ax.plot([1, 2])\ndisplay(fig)\nplt.show()",
        "fig, ax = plt.subplots(); ax.plot([1, 2])\ndisplay(fig)\nfig",
        "fig, ax = plt.subplots(); ax.plot([1, 2])\nplt.close()\nfig",
        "from matplotlib.figure import Figure\nfig = Figure(); fig.subplots().plot([1, 2])\nfig",
        "plt.plot([1, 2]); plt.savefig('/tmp/kept.png'); plt.show()",
        "import matplotlib; matplotlib.use('Agg')\nplt.plot([1, 2]); plt.show()",
        "import matplotlib; matplotlib.use('agg', force=True)\nplt.figure(); plt.plot([1, 2])\nplt.show();",
        "%matplotlib inline\nplt.plot([1, 2]); plt.show()",
        "plt.switch_backend('Agg')\nplt.plot([1, 2]); plt.show()",
        "plt.figure()\nplt.figure(); plt.plot([1]); plt.show()",
    ],
)
def test_once(context, code):
    ran = context.run(HEAD + code)
    assert ran.ok, ran.end
    found = pictures(ran)
    if code.count("display(fig)") and code.endswith("\nfig"):
        assert len(found) == 2  # asked for twice
    else:
        assert len(found) == 1, ran.transcript
    assert all("text/plain" not in data for data in found)
    assert ran.stderr == ""
    assert pictures(context.run("plt.show()")) == []
    assert context.run("plt.get_fignums()").text == "[]"


def test_two_shows_are_two_pictures_in_place(context):
    ran = context.run(HEAD + "print('a'); plt.plot([1]); plt.show(); print('b'); plt.plot([2]); plt.show(); print('c')")
    assert ran.transcript == "stdout:a result: stdout:b result: stdout:c"


def test_open_figures_are_sent_when_the_cell_raises(context):
    ran = context.run(HEAD + "plt.plot([1, 2])\n1/0")
    assert len(pictures(ran)) == 1 and ran.end["error_name"] == "ZeroDivisionError"


def test_a_table_comes_before_the_chart_left_open(context):
    ran = context.run(HEAD + "import pandas as pd\nplt.plot([1, 2])\npd.DataFrame({'a': [1]})")
    assert "text/html" in ran.data[0] and "image/png" in ran.data[1]


def test_a_plot_of_pandas_is_text_and_picture(context):
    ran = context.run("import pandas as pd\npd.DataFrame({'a': [1, 2]}).plot()")
    assert ran.text == "<Axes: >" and len(pictures(ran)) == 1


def test_changed_after_showing_is_shown_again(context):
    ran = context.run(HEAD + "fig, ax = plt.subplots(); ax.plot([1, 2])\ndisplay(fig)\nax.set_title('later');")
    assert len(pictures(ran)) == 2


def test_a_figure_with_nothing_in_it_is_no_picture(context):
    assert pictures(context.run(HEAD + "plt.figure();")) == []
    assert "Figure size" in context.run("plt.figure()").text


def test_a_figure_in_the_next_cell(context):
    context.run(HEAD + "fig, ax = plt.subplots(); ax.plot([1, 2]);")
    assert len(pictures(context.run("fig"))) == 1
    assert len(pictures(context.run("ax.set_title('x')\nfig"))) == 1


def test_saved_files_are_files(context, tmp_path):
    context.run(HEAD + f"plt.plot([1, 2]); plt.savefig('{tmp_path}/a.png'); plt.savefig('{tmp_path}/a.svg'); plt.savefig('{tmp_path}/a.pdf')")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "a.pdf").read_bytes()[:4] == b"%PDF" and "<svg" in (tmp_path / "a.svg").read_text()


def test_a_figure_that_cannot_be_drawn_is_an_error(context):
    broken = "plt.plot([1]); plt.title('$\\\\frac{1$')\n"
    for show in ("", "plt.show()", "fig = plt.gcf(); fig", "display(plt.gcf())"):
        ran = context.run(HEAD + broken + show + "\nplt.figure(); plt.plot([1]);")
        assert ran.end["error_name"] == "ValueError" and "frac{1" in ran.end["error_value"], (show, ran.end)
    assert len(pictures(context.run("plt.plot([1]);"))) == 1


def test_size_follows_the_figure(context):
    ran = context.run(HEAD + "plt.figure(figsize=(4, 2), dpi=50); plt.plot([1, 2]); plt.show()")
    width, height = size(ran.data[0])
    assert 120 < width <= 210 and 60 < height <= 110


def test_captured_output_keeps_its_figure(context):
    ran = context.run("%%capture kept\n" + HEAD + "plt.plot([1]); plt.show()")
    assert pictures(ran) == [] and context.run("len(kept.outputs)").text == "1"


def test_another_window_backend_is_refused_by_name(context):
    ran = context.run("%matplotlib widget\n" + HEAD + "plt.plot([1]); plt.show()")
    assert len(pictures(ran)) == 1 and "needs a window" in ran.stderr


def test_retina_when_asked_for(context):
    plot = HEAD + "plt.figure(figsize=(2, 2)); plt.plot([1]); plt.show()"
    plain = size(pictures(context.run(plot))[0])
    assert context.run("%config InlineBackend.figure_format = 'retina'").ok
    ran = context.run(plot)
    assert size(pictures(ran)[0])[0] > 1.8 * plain[0] and ran.results[0]["metadata"]["image/png"]["width"] > 0


def test_svg_when_asked_for(context):
    ran = context.run("from matplotlib_inline.backend_inline import set_matplotlib_formats\nset_matplotlib_formats('svg')\n" + HEAD + "plt.plot([1]); plt.show()")
    assert "<svg" in ran.data[-1].get("image/svg+xml", "") and "text/plain" not in ran.data[-1]


SCRIPTS = "'Ünïcode Кириллица Ελληνικά 中文 日本語 한국어 العربية עברית हिन्दी ไทย 😀 🎉 🚀 ✓ ☎ ∑ ∞ 𝔸'"


@pytest.mark.parametrize(
    "style",
    [
        "",
        "plt.rcParams['font.family'] = 'serif'",
        "plt.rcParams['font.sans-serif'] = ['DejaVu Sans']",
        "plt.rcParams['font.family'] = 'DejaVu Sans Mono'",
        "plt.rcdefaults()",
        "plt.style.use('seaborn-v0_8')",
        "plt.style.use('ggplot')",
    ],
)
@needs("duckdb")  # the template's root filesystem, which has the fonts
def test_every_script_has_glyphs(context, style):
    ran = context.run(
        f"import warnings; warnings.simplefilter('always')\n{HEAD}{style}\n"
        f"fig, ax = plt.subplots()\nax.set_title({SCRIPTS}); ax.set_xlabel({SCRIPTS}, weight='bold'); ax.plot([1], label='图例 😀'); ax.legend()\n"
        "plt.show()"
    )
    assert len(pictures(ran)) == 1
    assert "missing from" not in ran.stderr and "Glyph" not in ran.stderr, ran.stderr
