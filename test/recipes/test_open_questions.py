"""Questions that the published documents leave open, each settled one way."""

from __future__ import annotations

import json
import threading

import pytest
from daemon import Daemon
from pandastack import BadRequestError, Client, CodeContext, NotFoundError, PandastackError, Sandbox, ServerError

PLT = "import matplotlib.pyplot as plt\n"


def mimes(ctx: CodeContext, code: str) -> "list[list[str]]":
    ex = ctx.run_code(code)
    assert ex.error is None, ex.error
    return [sorted(r.data) for r in ex.results]


def test_results_are_the_value_first_then_displays_in_order(ctx: CodeContext) -> None:
    ex = ctx.run_code("display('one'); display('two'); 'value'")
    assert [r.text for r in ex.results] == ["'value'", "'one'", "'two'"]
    assert [r.is_last_expression for r in ex.results] == [True, False, False]


def test_figures_carry_no_text(ctx: CodeContext) -> None:
    assert mimes(ctx, PLT + "plt.plot([1])\nplt.show()") == [["image/png"]]


def test_a_plot_as_the_last_expression_is_its_repr_and_one_picture(ctx: CodeContext) -> None:
    ex = ctx.run_code(PLT + "import pandas as pd\npd.DataFrame({'a': [1, 2]}).plot()")
    assert "Axes" in ex.text and len([r for r in ex.results if r.png]) == 1


def test_a_figure_as_the_last_expression_is_one_picture(ctx: CodeContext) -> None:
    ex = ctx.run_code(PLT + "fig, ax = plt.subplots()\nax.plot([1, 2])\nfig")
    assert len([r for r in ex.results if r.png]) == 1


@pytest.mark.parametrize(
    "code, count",
    [
        ("plt.plot([1]); plt.show(); x = 1", 1),  # not the last line
        ("plt.plot([1]); plt.show(); plt.plot([2]); plt.show()", 2),
        ("plt.plot([1])", 1),  # left open
        ("plt.figure(); plt.plot([1]); plt.figure(); plt.plot([2])", 2),
        ("plt.plot([1]); plt.show(); plt.show()", 1),
        ("plt.plot([1]); plt.savefig('/tmp/x.png'); plt.close()", 0),
        ("pass", 0),
    ],
)
def test_each_figure_is_captured_once(ctx: CodeContext, code: str, count: int) -> None:
    ex = ctx.run_code(PLT + code)
    assert len([r for r in ex.results if r.png]) == count
    assert not [r for r in ctx.run_code("2").results if r.png], "nothing of it comes again with the next cell"


def test_what_was_drawn_before_an_exception_is_kept(ctx: CodeContext) -> None:
    ex = ctx.run_code(PLT + "plt.plot([1]); plt.show()\ndisplay('kept')\nprint('printed')\n1/0")
    assert ex.png and ex.error_name == "ZeroDivisionError" and ex.stdout == "printed\n"
    assert "'kept'" in [r.text for r in ex.results]


def test_plotly_gives_html_json_and_a_picture(ctx: CodeContext) -> None:
    ex = ctx.run_code("import plotly.express as px\npx.bar(x=['a', 'b'], y=[1, 3])", timeout_seconds=120)
    assert ex.error is None, ex.error
    assert ex.html and ex.png
    (bundle,) = [r for r in ex.results if "application/vnd.plotly.v1+json" in r.data]
    assert json.loads(bundle.extra["application/vnd.plotly.v1+json"])["data"]


def test_an_exception_is_in_error_and_in_the_exit_code_and_not_in_stderr(ctx: CodeContext) -> None:
    ex = ctx.run_code("import sys; print('mine', file=sys.stderr); raise ValueError('x')")
    assert (ex.exit_code, ex.stderr) == (1, "mine\n") and "ValueError: x" in ex.error


def test_a_timeout_returns_with_the_state_kept(ctx: CodeContext) -> None:
    ctx.run_code("kept = 1")
    ex = ctx.run_code("print('so far')\nwhile True: pass", timeout_seconds=1)
    assert (ex.end, ex.stdout, ex.state_survived) == ("timeout", "so far\n", True)
    assert ctx.run_code("kept").text == "1"


def test_run_code_of_a_sandbox_is_python_and_keeps_state(shared_sandbox: Sandbox) -> None:
    shared_sandbox.run_code("v = 20")
    assert shared_sandbox.run_code("v + 1").text == "21"
    assert shared_sandbox.context().run_code("v").text == "20", "it is the context called default"
    assert shared_sandbox.run_code("echo hi; exit 3", language="bash").exit_code == 3


def test_two_cells_at_once_wait_for_each_other(ctx: CodeContext) -> None:
    ctx.run_code("order = []")
    threads = [
        threading.Thread(target=ctx.run_code, args=(f"import time; time.sleep(0.2); order.append({i})",)) for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ctx.run_code("sorted(order)").text == "[0, 1, 2, 3]"
    assert ctx.run_code("len(order)").execution_count == 7


def test_closing_a_context_twice_and_after_the_kill(sandbox: Sandbox) -> None:
    ctx = sandbox.create_code_context()
    ctx.close()
    ctx.close()
    sandbox.kill()
    ctx.close()


def test_the_ends_of_a_life_are_said(sandbox: Sandbox) -> None:
    life = sandbox.set_ttl(100)
    assert life.ttl_seconds == 100 and life.expires_at is not None
    assert 0 <= sandbox.lifecycle().idle_seconds < 60
    try:
        assert sandbox.set_persistent(True).persistent is True
    except ServerError as error:
        assert (error.status_code, error.code) == (501, "unsupported")
    with pytest.raises(BadRequestError, match="ttl_seconds"):
        sandbox.set_ttl(10**9)


def test_relative_paths_are_refused_by_name(shared_sandbox: Sandbox) -> None:
    for call in (shared_sandbox.filesystem.read, shared_sandbox.filesystem.list, shared_sandbox.filesystem.stat):
        with pytest.raises(BadRequestError, match="path") as caught:
            call("workspace/x")
        assert caught.value.field == "path"


@pytest.mark.parametrize(
    "code, stdout, text",
    [
        ("import os; os.system('echo from a child')", "from a child\n", "0"),
        ("!echo magic", "magic\n", None),
        ("%timeit -n1 -r1 pass", None, None),
        ("import asyncio\nawait asyncio.sleep(0)\n'awaited'", "", "'awaited'"),
        ("import ctypes; ctypes.CDLL(None).puts(b'from C')\nNone", "from C\n", None),
        ("'grün 数据 🎉'", "", "'grün 数据 🎉'"),
        ("print('grün 数据 🎉')", "grün 数据 🎉\n", None),
        ("_ = 5\n_", "", "5"),
        ("x = 1;", "", None),
    ],
)
def test_a_cell_is_as_in_a_notebook(ctx: CodeContext, code: str, stdout: "str | None", text: "str | None") -> None:
    ex = ctx.run_code(code)
    assert ex.error is None, ex.error
    assert stdout is None or ex.stdout == stdout
    assert ex.text == text


def test_json_travels_as_text(ctx: CodeContext) -> None:
    ex = ctx.run_code("from IPython.display import JSON\nJSON({'ü': [1, 2.5, None]})")
    (bundle,) = ex.results
    assert isinstance(bundle.data["application/json"], str)
    assert bundle.json == {"ü": [1, 2.5, None]}


def test_the_default_template_or_a_word_about_it(daemon: Daemon) -> None:
    """`ubuntu-24.04` means `base`. Where that is not built, the error names what is."""
    built = {t.name for t in Client(daemon.url, daemon.key).templates.list()}
    if "base" in built:
        with Sandbox.create(api_url=daemon.url, api_key=daemon.key, ttl_seconds=60) as sb:
            assert sb.template == "base"
    else:
        with pytest.raises(NotFoundError, match="code-interpreter"):
            Sandbox.create(api_url=daemon.url, api_key=daemon.key, ttl_seconds=60)


def test_keys_look_as_published(daemon: Daemon) -> None:
    assert daemon.key.startswith("pds_") and len(daemon.key) == 4 + 32
    int(daemon.key[4:], 16)


def test_what_this_server_cannot_do_is_said(daemon: Daemon) -> None:
    with pytest.raises(PandastackError) as caught:
        Sandbox.create(template="code-interpreter", api_url=daemon.url, api_key=daemon.key, volumes=[{"name": "v", "read_only": True}])
    assert caught.value.status_code == 501 and caught.value.code == "unsupported" and caught.value.hint
