"""What an exception looks like to the one who has to fix it."""

from __future__ import annotations

import sys

import pytest
from conftest import needs


def traceback(context, code):
    ran = context.run(code)
    assert ran.end["status"] == "error", ran.end
    assert ran.stderr == ""  # a traceback is not repeated as output
    return ran.end["traceback"]


def test_the_whole_look(context):
    context.run("def share(part, whole):\n    rest = whole - part\n    return part / rest")
    assert traceback(context, "total = 3\nprint('so far')\nshare(3, total)") == (
        "Traceback (most recent call last):\n"
        "  Cell In[2], line 3\n"
        "        1 total = 3\n"
        "        2 print('so far')\n"
        "  ----> 3 share(3, total)\n"
        "  Cell In[1], line 3, in share\n"
        "        1 def share(part, whole):\n"
        "        2     rest = whole - part\n"
        "  ----> 3     return part / rest\n"
        "ZeroDivisionError: division by zero"
    )


def test_name_value_and_output_before(context):
    ran = context.run("print('kept')\n{}['Antarctica']")
    assert (ran.end["error_name"], ran.end["error_value"]) == ("KeyError", "'Antarctica'")
    assert ran.stdout == "kept\n"


def test_no_frame_of_ours(context):
    for code in ("1/0", "import json\njson.loads('{')", "display(1/0)", "import asyncio\nawait asyncio.sleep('x')", "!true\n1/0", "%%time\n1/0"):
        text = traceback(context, code)
        assert "pandastack" not in text and "interactiveshell" not in text, text
        assert "Cell In[" in text


def test_frames_of_a_library_are_one_line(context):
    text = traceback(context, "import json\njson.loads('{')")
    assert "[3 frames in json (standard library), the last: json/decoder.py:" in text
    assert text.count("\n") <= 7
    assert text.endswith("JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)")


@needs("pandas")
def test_pandas_key_error_is_short(context):
    text = traceback(context, "import pandas as pd\ndf = pd.DataFrame({'a': [1]})\ndf['amount']")
    assert "----> 3 df['amount']" in text and " in pandas, the last: pandas/" in text
    assert text.endswith("KeyError: 'amount'") and text.count("KeyError") == 1


def test_callbacks_show_both_sides(context):
    text = traceback(context, "def key(x):\n    return x['k']\nimport functools, heapq\nheapq.nlargest(2, [{}, {}, {}], key=key)")
    assert text.index("Cell In[1], line 4") < text.index("heapq") < text.index("line 2, in key")


def test_own_files_are_shown(context, tmp_path):
    (tmp_path / "helper_mod.py").write_text("def go():\n    raise RuntimeError('here')\n")
    text = traceback(context, f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport helper_mod\nhelper_mod.go()")
    assert f"File {tmp_path}/helper_mod.py, line 2, in go" in text and "raise RuntimeError('here')" in text


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("x = 1\ndef f(:\n    pass", ["Cell In[1], line 2", "def f(:", "^", "SyntaxError: invalid syntax"]),
        ("if True:\nprint(1)", ["Cell In[1], line 2", "print(1)", "IndentationError: expected an indented block"]),
        ("print('a", ["Cell In[1], line 1", "SyntaxError: unterminated string literal"]),
        ("%time 1 +", ["SyntaxError"]),
        ("eval('1 +')", ["Cell In[1], line 1", "SyntaxError: invalid syntax"]),
        ("ключ = = 1", ["ключ = = 1", "SyntaxError"]),
    ],
)
def test_syntax_errors(context, code, parts):
    text = traceback(context, code)
    for part in parts:
        assert part in text, text
    assert "pandastack" not in text and ("compilerop" in text) == code.startswith("%")


def test_chains(context):
    text = traceback(context, "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('outer') from e")
    assert text.index("KeyError: 'a'") < text.index("direct cause") < text.index("ValueError: outer")
    text = traceback(context, "try:\n    {}['a']\nexcept KeyError:\n    1/0")
    assert "During handling of the above exception" in text
    text = traceback(context, "try:\n    {}['a']\nexcept KeyError:\n    raise ValueError('clean') from None")
    assert "KeyError: " not in text


def test_groups_and_notes(context):
    text = traceback(
        context,
        "def boom(n):\n    raise ValueError(f'number {n}')\nerrors = []\n"
        "for n in range(3):\n    try: boom(n)\n    except ValueError as e: errors.append(e)\n"
        "group = ExceptionGroup('several', errors)\ngroup.add_note('look at each')\nraise group",
    )
    assert "ExceptionGroup: several (3 sub-exceptions)" in text and "look at each" in text
    assert all(f"ValueError: number {n}" in text for n in range(3))


def test_recursion_is_folded(context):
    text = traceback(context, "def f(n):\n    return f(n + 1)\nf(0)")
    assert "more times]" in text and "RecursionError" in text and len(text) < 3000


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the interpreter offers none")
def test_suggestions_stay(context):
    assert "Did you mean: 'total'" in traceback(context, "total = 1\ntotl")


@pytest.mark.parametrize(
    "body",
    [
        "def __str__(self): raise RuntimeError('no')",
        "def __str__(self): raise SystemExit",
        "def __str__(self): raise KeyboardInterrupt",
        "def __repr__(self): 1/0\n    __str__ = __repr__",
        "def __str__(self): return 5",
    ],
)
def test_exceptions_that_cannot_say_what_they_are(context, body):
    ran = context.run(f"class Odd(Exception):\n    {body}\nraise Odd('x')")
    assert ran.end["error_name"] == "Odd"
    assert "Odd" in ran.end["traceback"] and "Cell In[1], line" in ran.end["traceback"]
    assert context.run("1").text == "1"


def test_an_exception_whose_str_never_ends(context):
    ran = context.run("class Slow(Exception):\n    def __str__(self):\n        while True: pass\nraise Slow()")
    assert ran.end["error_name"] == "Slow" and "took too long" in ran.end["error_value"]
    assert "raise Slow()" in ran.end["traceback"]


def test_huge_messages_are_cut_in_the_middle(context):
    ran = context.run("raise ValueError('a' * 30_000_000 + 'the end')")
    assert len(ran.end["error_value"]) < 100_000 and ran.end["error_value"].endswith("the end")
    assert "characters left out" in ran.end["error_value"]
    assert len(ran.end["traceback"]) < 1_000_000


def test_raising_a_base_exception(context):
    ran = context.run("raise BaseException('bare')")
    assert ran.end["error_name"] == "BaseException"
    assert context.run("raise GeneratorExit").end["error_name"] == "GeneratorExit"
    assert context.run("1").text == "1"


def test_results_before_an_exception_are_kept(context):
    ran = context.run("display('kept')\n1/0")
    assert ran.data[0]["text/plain"] == "'kept'" and not ran.ok


def test_an_error_in_nested_magic_is_the_error_of_the_cell(context):
    ran = context.run("%%time\nx = 1\nx / 0")
    assert ran.end["error_name"] == "ZeroDivisionError"
