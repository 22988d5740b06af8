"""What an agent framework's tool does with the SDK: environment, one context for a session, text, chart, error, clean-up."""

from __future__ import annotations

import ast
import base64
import inspect
import io
import json
from typing import Any, Optional

import pytest
from daemon import ROOT, Daemon
from pandastack import CodeContext, Execution, NotFoundError, Sandbox


@pytest.fixture
def only_the_environment(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key in the environment, the server in the environment, and nothing given by argument."""
    monkeypatch.setenv("PANDASTACK_API_KEY", daemon.key)
    monkeypatch.setenv("PANDASTACK_API", daemon.url)
    monkeypatch.delenv("PANDASTACK_API_URL", raising=False)


def tool_answer(ex: Execution) -> str:
    """What a tool gives the model: the traceback, else what was printed, else the value."""
    return f"Error:\n{ex.error}" if ex.error else ex.stdout or ex.text or "(no output)"


def test_a_session_from_the_environment_alone(only_the_environment: None) -> None:
    """Create by keywords, context without arguments, positional code; close, close again, kill, close after the kill."""
    sandbox = Sandbox.create(template="code-interpreter", ttl_seconds=3600)
    ctx = sandbox.create_code_context()
    assert ctx.language == "python"
    assert tool_answer(ctx.run_code("fib = [1, 1]\nwhile len(fib) < 12: fib.append(fib[-1] + fib[-2])")) == "(no output)"
    assert tool_answer(ctx.run_code("fib[-1]")) == "144"
    assert tool_answer(ctx.run_code("print(sum(fib))")) == "376\n"
    ctx.close()
    ctx.close()
    sandbox.kill()
    ctx.close()
    sandbox.kill()
    with pytest.raises(NotFoundError):
        ctx.run_code("1")


def test_run_code_takes_the_code_alone() -> None:
    parameters = list(inspect.signature(CodeContext.run_code).parameters.values())
    assert [p.name for p in parameters[:2]] == ["self", "code"]
    assert all(p.default is not p.empty for p in parameters[2:])


def test_a_context_closes_itself(shared_sandbox: Sandbox) -> None:
    with shared_sandbox.create_code_context() as ctx:
        assert ctx.run_code("1+1").text == "2"
        name = ctx.id
    assert name not in [c.id for c in shared_sandbox.contexts()]


def test_png_is_bare_base64_or_none(ctx: CodeContext) -> None:
    assert ctx.run_code("x = 1").png is None
    assert ctx.run_code("1/0").png is None
    png: Optional[str] = ctx.run_code("import matplotlib.pyplot as plt\nplt.semilogy([1, 1, 2, 3, 5, 8])\nplt.show()").png
    assert png is not None and "\n" not in png and not png.startswith("data:")
    assert base64.b64decode(png, validate=True).startswith(b"\x89PNG")


def test_a_chart_is_a_picture_of_its_data(ctx: CodeContext) -> None:
    from PIL import Image

    ex = ctx.run_code("import matplotlib.pyplot as plt\nplt.axis('off')\nplt.bar([0, 1, 2], [1, 2, 3], color='#ff0000')\nplt.show()")
    picture = Image.open(io.BytesIO(base64.b64decode(ex.png))).convert("RGB")
    pixels = list(zip(*[iter(picture.tobytes())] * 3))
    columns = [sum(pixels[y * picture.width + x] == (255, 0, 0) for y in range(picture.height)) for x in range(picture.width)]
    heights = [h for i, h in enumerate(columns) if h and h != columns[i - 1]]
    low, middle, high = sorted(set(heights))[-1] / 3, sorted(set(heights))[-1] * 2 / 3, max(heights)
    assert any(abs(h - low) < 3 for h in heights) and any(abs(h - middle) < 3 for h in heights) and high > 100


CACHES = """
import json, os, subprocess, matplotlib
folders = [matplotlib.get_cachedir(), "/var/cache/fontconfig", os.path.expanduser("~/.cache/fontconfig")]
def caches():
    return {p: os.stat(p).st_mtime for folder in folders for at, _, names in os.walk(folder) for p in (os.path.join(at, name) for name in names)}
before = caches()
"""


def test_the_font_caches_come_with_the_template(shared_sandbox: Sandbox, ctx: CodeContext) -> None:
    """The first plot of a sandbox writes none: all are older than it, and stay as they are."""
    ctx.run_code(CACHES)
    ex = ctx.run_code("import matplotlib.pyplot as plt\nplt.plot([1]); plt.title('中文 title'); plt.show()\n"
                      "subprocess.run(['fc-match', 'sans'], check=True, stdout=subprocess.DEVNULL)")
    assert ex.error is None and ex.png and "font cache" not in ex.stderr + ex.stdout
    before, after = json.loads(ctx.run_code("print(json.dumps([before, caches()]))").stdout)
    assert before == after
    assert any("fontlist" in path for path in after), after
    assert all(at < shared_sandbox.created_at.timestamp() for at in after.values()), (shared_sandbox.created_at, after)


def test_error_is_the_traceback_or_falsy(ctx: CodeContext) -> None:
    assert not ctx.run_code("1+1").error
    ex = ctx.run_code("totals = {}\ntotals['Antarctica']")
    assert isinstance(ex.error, str) and "KeyError: 'Antarctica'" in ex.error
    assert "totals['Antarctica']" in ex.error and "Cell In" in ex.error
    assert "pandastack_kernel" not in ex.error, "frames of the harness are not the user's"
    assert (ex.error_name, ex.error_value, ex.exit_code, ex.end) == ("KeyError", "'Antarctica'", 1, "error")
    assert "KeyError" not in ex.stderr


def test_every_accessor_of_every_result(ctx: CodeContext) -> None:
    ex = ctx.run_code(
        "from IPython.display import HTML, JSON, Markdown, Latex, SVG, display\n"
        "display(HTML('<i>i</i>')); display(JSON({'a': [1, None]})); display(Markdown('*m*')); display(Latex('$x$'))\n"
        "display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))\n"
        "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()\n'last'"
    )
    assert ex.error is None, ex.error
    last, html, json, markdown, latex, svg, figure = ex.results
    assert (last.text, last.is_last_expression, last.html, last.png) == ("'last'", True, None, None)
    assert html.html == "<i>i</i>" and json.json == {"a": [1, None]} and markdown.markdown == "*m*" and latex.latex == "$x$"
    assert svg.svg.startswith("<svg") and svg.chart == svg.svg
    assert figure.png and figure.chart == figure.png and figure.text is None
    for result in ex.results:
        for name in "png jpeg svg html markdown latex json pdf javascript text chart".split():
            value: Any = getattr(result, name)
            assert value is None or value != ""


def test_a_session_goes_on_after_the_program_that_began_it(daemon: Daemon, sandbox: Sandbox) -> None:
    """A new process finds the sandbox and the context again by their ids."""
    name = sandbox.create_code_context().id
    sandbox.context(name).run_code("kept = 'over'")
    again = Sandbox.get(sandbox.id, api_url=daemon.url, api_key=daemon.key)
    assert name in [c.id for c in again.contexts()]
    assert again.context(name).run_code("kept").text == "'over'"


class Shown(ast.NodeTransformer):
    """Hands the value of each line that is only an expression to `shown`, as a notebook would show it."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        return ast.Expr(ast.Call(ast.Name("shown", ast.Load()), [node.value], []))


def test_the_example_of_the_readme(only_the_environment: None) -> None:
    """What README.md shows is run as it stands there, and each line gives what its comment says."""
    text = (ROOT / "README.md").read_text()
    block = next(b.split("```")[0] for b in text.split("```python\n")[1:] if "Sandbox.create" in b)
    seen: "list[Any]" = []
    exec(compile(ast.fix_missing_locations(Shown().visit(ast.parse(block))), "README.md", "exec"), {"shown": seen.append})
    assert not [x for x in seen if isinstance(x, Execution) and x.error], "lines that show nothing run well"
    table, chart, traceback, end = (x for x in seen if isinstance(x, str))
    assert "<table" in table and base64.b64decode(chart).startswith(b"\x89PNG")
    assert "KeyError: 'profit'" in traceback and "pandastack_kernel" not in traceback
    assert end == "timeout"
