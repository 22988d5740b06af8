"""What a notebook user expects of a cell."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("1 + 1", "2"),
        ("\n\n1 + 1\n", "2"),
        ("x = 3", None),
        ("1 + 1;", None),
        ("None", None),
        ("'grüße 世界 😀'", "'grüße 世界 😀'"),
        ("%%time\n5", "5"),
        ("import asyncio\nawait asyncio.sleep(0)\n'awaited'", "'awaited'"),
        ("import asyncio\nasync def f():\n    return 7\nasyncio.run(f())", "7"),
        ("%who_ls", "[]"),
        ("", None),
        ("# only a comment", None),
    ],
)
def test_last_expression(context, code, text):
    ran = context.run(code)
    assert ran.ok, ran.end
    assert ran.text == text


def test_underscore_in_and_out(context):
    context.run("40 + 2")
    assert context.run("_").text == "42"
    assert context.run("Out[1], In[1]").text == "(42, '40 + 2')"
    assert context.run("_1").text == "42"


def test_state_stays(context):
    context.run("def f(x):\n    return x * 2")
    assert context.run("f(21)").text == "42"


def test_results_of_display_come_in_order_before_the_last(context):
    ran = context.run("display(1)\nprint('between')\ndisplay('two')\n3")
    assert ran.transcript == "result:1 stdout:between result:'two' result:3"
    assert [frame["last"] for frame in ran.results] == [False, False, True]


def test_updates_of_a_display_arrive_once(context):
    ran = context.run("h = display(0, display_id=True)\nfor i in range(50):\n    h.update(i)\nprint('done')")
    assert [data["text/plain"] for data in ran.data] == ["0", "49"]


def test_clear_output_prints_nothing(context):
    ran = context.run("from IPython.display import clear_output\nprint(1); clear_output(); print(2)")
    assert ran.stdout == "1\n2\n" and ran.stderr == ""


def test_shell_commands(context):
    ran = context.run("name = 'wörld'\n!echo hello $name; echo oops >&2; exit 3\n_exit_code")
    assert (ran.stdout, ran.stderr, ran.text) == ("hello wörld\n", "oops\n", "3")
    assert context.run("files = !echo a; echo b\nfiles").text == "['a', 'b']"


def test_bash_magic_streams_and_fails(context):
    ran = context.run("%%bash\necho out\necho err >&2")
    assert ran.ok and (ran.stdout, ran.stderr) == ("out\n", "err\n")
    assert context.run("%%bash --out kept\necho inside").stdout == ""
    assert context.run("kept").text == "'inside\\n'"
    assert context.run("%%bash\nexit 3").end["error_name"] == "CalledProcessError"
    assert context.run("import threading; threading.active_count()").text == "1"


def test_magics(context):
    assert "loop" in context.run("%timeit -n1 -r1 sum(range(10))").stdout
    assert context.run("%%capture kept\nprint('hidden')\n'x'").transcript == ""
    assert context.run("kept.stdout").text == "'hidden\\n'"
    ran = context.run("%no_such_magic")
    assert ran.end["error_name"] == "UsageError" and "no_such_magic" in ran.end["traceback"]
    assert context.run("len?").stdout.startswith("Signature:")


def test_run_reports_the_error_of_a_script(context, tmp_path):
    (tmp_path / "script.py").write_text("x = 1\nraise ValueError('inside')\n")
    ran = context.run(f"%run {tmp_path}/script.py")
    assert ran.end["error_name"] == "ValueError"
    assert f"File {tmp_path}/script.py, line 2" in ran.end["traceback"]
    assert context.run("x").text == "1"


def test_pip_installs_a_local_wheel(context, tmp_path):
    import zipfile

    name = tmp_path / "tiny_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(name, "w") as wheel:
        wheel.writestr("tiny_wheel.py", "value = 'installed'\n")
        wheel.writestr("tiny_wheel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-wheel\nVersion: 1.0\n")
        wheel.writestr("tiny_wheel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny_wheel-1.0.dist-info/RECORD", "")
    target = tmp_path / "site"
    ran = context.run(f"%pip install --no-index --target {target} {name}")
    assert ran.ok and "Successfully installed tiny-wheel-1.0" in ran.stdout, ran
    assert context.run(f"import sys; sys.path.append('{target}')\nimport tiny_wheel; tiny_wheel.value").text == "'installed'"


@pytest.mark.parametrize("call", ["input('name? ')", "import getpass; getpass.getpass()"])
def test_input_says_that_nobody_can_answer(context, call):
    ran = context.run(call)
    assert ran.end["error_name"] == "StdinNotImplementedError"
    assert "nobody can answer" in ran.end["error_value"]
    assert context.run("import sys; sys.stdin.read()").text == "''"


@pytest.mark.parametrize("code", ["exit()", "quit()", "exit", "import sys; sys.exit()", "raise SystemExit(0)"])
def test_exit_ends_the_cell_only(context, code):
    context.run("kept = 1")
    ran = context.run(code)
    assert ran.ok and "ends the cell" in ran.stderr and "To exit" not in ran.stderr
    assert context.run("kept").text == "1"


def test_exit_with_a_status_is_an_error(context):
    ran = context.run("import sys; sys.exit('went wrong')")
    assert (ran.end["error_name"], ran.end["error_value"]) == ("SystemExit", "went wrong")


def test_source_of_a_cell_can_be_read(context):
    context.run("def f():\n    return 'body'")
    assert "return 'body'" in context.run("import inspect; print(inspect.getsource(f))").stdout


def test_warnings_name_cell_and_line(context):
    ran = context.run("import warnings\nwarnings.warn('careful')")
    assert "Cell In[1]:2: UserWarning: careful" in ran.stderr


@pytest.mark.parametrize("code", ["x = '\\x00'\nx", "'a' + '\x00'", "'\ud800'", "\ufeff1", "x = 1\r\nx"])
def test_strange_characters_in_code(context, code):
    ran = context.run(code)
    assert ran.end["status"] in ("ok", "error")
    assert context.run("1").text == "1"


def test_a_large_cell(context):
    ran = context.run("x = '" + "é" * 2_000_000 + "'\nlen(x)")
    assert ran.text == "2000000"
