"""Values as MIME bundles: every value a string, nothing that breaks or floods the line."""

from __future__ import annotations

import base64
import json

import pytest
from conftest import needs


def last(ran):
    assert ran.ok, ran.end
    (frame,) = [frame for frame in ran.results if frame["last"]]
    return frame["data"]


@needs("pandas")
def test_a_table_is_html_and_text(context):
    ran = context.run("import pandas as pd\npd.DataFrame({'город': ['Москва'], 'n': [1]})")
    data = last(ran)
    assert "<table" in data["text/html"] and "Москва" in data["text/html"] and "Москва" in data["text/plain"]


@needs("pandas")
def test_a_wide_table_is_cut_as_in_a_notebook(context):
    data = last(context.run("import pandas as pd\npd.DataFrame({f'c{i}': range(100) for i in range(60)})"))
    assert "c59" in data["text/html"] and "c30<" not in data["text/html"]
    assert data["text/html"].count("<tr") < 20


def test_every_value_is_a_string(context):
    ran = context.run(
        "from IPython.display import JSON, HTML, Markdown, Latex, SVG, Javascript\n"
        "display(JSON({'a': [1, None, 'ü']}), HTML('<b>x</b>'), Markdown('*x*'), Latex('$x$'),"
        " SVG('<svg xmlns=\"x\"/>'), Javascript('1'))\n"
        "class Own:\n    def _repr_mimebundle_(self, **kw): return {'application/vnd.own+json': {'k': (1, 2)}, 'text/html': '<i/>'}\n"
        "Own()"
    )
    assert ran.ok and len(ran.data) == 7
    for data in ran.data:
        assert all(isinstance(value, str) for value in data.values()), data
    assert json.loads(ran.data[0]["application/json"]) == {"a": [1, None, "ü"]}
    assert json.loads(ran.data[-1]["application/vnd.own+json"]) == {"k": [1, 2]}


def test_what_json_cannot_hold_harms_nobody(context):
    ran = context.run(
        "class Own:\n"
        "    def _repr_mimebundle_(self, **kw):\n"
        "        return {'application/json': {'o': object(), 3: 4}, 'text/plain': 'fine'}, {'meta': object()}\n"
        "Own()"
    )
    assert ran.text == "fine"
    loop = "loop = []; loop.append(loop)\nfrom IPython.display import display\ndisplay({'application/json': loop, 'text/plain': 'p'}, raw=True)"
    assert context.run(loop).data[0] == {"text/plain": "p"}


def test_pictures_are_base64_in_one_line(context):
    ran = context.run(
        "import base64\n"
        "class Own:\n"
        "    def _repr_png_(self): return b'\\x89PNG' + bytes(200)\n"
        "class Lines:\n"
        "    def _repr_jpeg_(self): return base64.encodebytes(bytes(200)).decode()\n"
        "display(Own(), Lines())"
    )
    assert base64.b64decode(ran.data[0]["image/png"])[:4] == b"\x89PNG"
    assert "\n" not in ran.data[0]["image/png"] + ran.data[1]["image/jpeg"]


@pytest.mark.parametrize("method", ["_repr_html_", "_repr_png_", "_repr_mimebundle_", "_ipython_display_"])
def test_a_method_that_raises_leaves_the_others(context, method):
    ran = context.run(f"class Odd:\n    def {method}(self, **kw): raise RuntimeError('broken')\n    def __repr__(self): return 'odd'\nOdd()")
    assert ran.ok and ran.text == "odd"
    assert method in ran.stderr and "RuntimeError: broken" in ran.stderr


@pytest.mark.parametrize("failure", ["raise ValueError('no')", "return 5", "raise SystemExit"])
def test_a_repr_that_raises(context, failure):
    ran = context.run(f"class Odd:\n    def __repr__(self): {failure}\nkept = 1\nOdd()")
    if "SystemExit" in failure:
        assert ran.end["status"] in ("ok", "error")
    else:
        assert ran.ok and "Odd object at 0x" in ran.text
    assert context.run("kept").text == "1"


def test_a_method_that_never_ends_is_given_up(zygote):
    context = zygote.context()
    context.run("import pandastack_kernel.display as d; d.FORMATTER_SECONDS = 0.5")
    ran = context.run("class Slow:\n    def _repr_html_(self):\n        while True: pass\n    def __repr__(self): return 'slow'\nSlow()")
    assert ran.ok and ran.text == "slow" and "_repr_html_ of a Slow took more than" in ran.stderr
    ran = context.run("class Slower:\n    def __repr__(self):\n        while True:\n            try: pass\n            except Exception: pass\nSlower()")
    assert ran.ok and "Slower object at" in ran.text
    context.close()


def test_an_interrupt_ends_a_method_that_never_ends(context):
    ran = context.run_interrupted("class Slow:\n    def _repr_html_(self):\n        print('going', flush=True)\n        while True: pass\nSlow()", "going")
    assert ran.end["error_name"] == "KeyboardInterrupt"
    assert context.run("1").text == "1"


def test_an_alarm_of_the_user_survives_formatting(context):
    ran = context.run(
        "import signal, time\nrang = []\n"
        "old = signal.signal(signal.SIGALRM, lambda *_: rang.append(1))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.2)\n"
        "display([1])\n"
        "while not rang: time.sleep(0.01)\n"
        "rang"
    )
    assert ran.text == "[1]"


def test_a_huge_repr_is_cut_in_the_middle(context):
    ran = context.run("'a' * 30_000_000 + 'tail'")
    assert 1_000_000 < len(ran.text) < 1_100_000 and ran.text.endswith("tail'") and "characters left out" in ran.text
    assert len(context.run("list(range(10_000_000))").text) < 100_000


def test_a_huge_result_is_replaced_by_words(context):
    ran = context.run("from IPython.display import HTML, Image\nimport os\nHTML('x' * 30_000_000)")
    assert set(ran.data[0]) == {"text/plain"} and "text/html of 30.0 MB left out" in ran.data[0]["text/plain"]
    ran = context.run("Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(20_000_000), format='png')")
    assert "image/png" not in ran.data[0] and "left out" in ran.data[0]["text/plain"]
    ran = context.run("display({'text/plain': '\\x01' * 30_000_000, 'application/x-y': '\\x01' * 10_000_000}, raw=True)")
    assert ran.ok and "left out" in ran.data[0]["text/plain"]
    assert context.run("1").text == "1"


def test_ast_node_interactivity(context):
    context.run("get_ipython().ast_node_interactivity = 'all'")
    assert context.run("1\n2").transcript == "result:1 result:2"


@needs("sympy")
def test_sympy_is_latex_and_text(context):
    data = last(context.run("import sympy\nsympy.sqrt(sympy.Symbol('x')) / 2"))
    assert data["text/plain"] == "sqrt(x)/2" and "sqrt" in data["text/latex"]


@needs("PIL")
def test_pillow_is_png_only(context):
    data = last(context.run("from PIL import Image\nImage.new('RGB', (8, 8), 'red')"))
    assert set(data) == {"text/plain", "image/png"}
    ran = context.run("Image.new('RGB', (8, 8)).show()")
    assert ["image/png" in data for data in ran.data] == [True]


@needs("pandas", "jinja2")
def test_styler_is_html(context):
    data = last(context.run("import pandas as pd\npd.DataFrame({'a': [1]}).style.highlight_max()"))
    assert "<style" in data["text/html"]
