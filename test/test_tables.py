"""How an analyst's files are read, in a sandbox: what is found out about small files with one oddity each."""

from __future__ import annotations

import ast
import io
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest
from openpyxl.styles import Font

TABLES = Path(__file__).resolve().parent.parent / "internal" / "agent" / "python" / "tables"

LOAD = """
import json, os, sys
sys.path.insert(0, "/tmp")
import tables
space = {{}}
loader = tables.Loader(space, say=lambda words: None, memory={memory})
{before}
try:
    made = loader.load({name!r})
    print(repr([(t["name"], [(c["name"], c["type"]) for c in t["columns"]], t["notes"], [[str(v) if hasattr(v, "__len__") else None if v is None or repr(v) == "<NA>" or v != v else v if isinstance(v, (int, float)) else str(v) for v in row] for row in space[t["name"]].astype(object).values.tolist()]) for t in made]))
    again = {{}}
    exec(loader.source(), again)
    assert all(again[t["name"]].equals(space[t["name"]]) for t in made), "the code for the notebook gives something else"
except tables.Unreadable as error:
    print(repr(str(error)))
"""


@pytest.fixture(scope="module")
def load(shared_sandbox):
    for module in TABLES.glob("*.py"):
        shared_sandbox.filesystem.upload(module, f"/tmp/tables/{module.name}")

    def load(name: str, content: str | bytes | None, before: str = "", memory: int | None = None) -> Any:
        """What comes of a file: for each table its variable, columns with types, notes and rows; or the words of an error.

        before: code that runs before it is loaded; memory: bytes, in place of what the sandbox has.
        """
        if content is not None:
            shared_sandbox.filesystem.write(f"/workspace/{name}", content)
        ran = shared_sandbox.run_code(LOAD.format(name=name, before=before, memory=memory), timeout_seconds=60)
        assert ran.error is None, ran.error
        return ast.literal_eval(ran.stdout)

    return load


S, I, F, D = "str", "int64", "float64", "datetime64[us]"

# name: content, types of the columns, words of the notes, rows that are there
CASES: dict[str, tuple[str | bytes, list[tuple[str, str]], list[str], list[list[Any]]]] = {
    "headerless.csv": ("1,2\n3,4\n5,6\n", [("column_1", I), ("column_2", I)], ["no line with the columns' names"], [[1, 2]]),
    "years.csv": ("Region,2021,2022\nNorth,1,2\nSouth,4,5\n", [("Region", S), ("2021", I), ("2022", I)], [], [["South", 4, 5]]),
    "all text.csv": ("name,city\nAnn,Rome\nBob,Oslo\n", [("name", S), ("city", S)], [], [["Ann", "Rome"]]),
    "longer.csv": ("a,b\n1,2\n3,4,5\n6,7\n", [("a", I), ("b", I)], ["some lines have more than 2 cells"], [[3, 4], [6, 7]]),
    "day or month.csv": ("d;x\n01/02/2024;1\n03/04/2024;2\n", [("d", D), ("x", I)], ["no date tells whether day or month is first; the day was taken"], [["2024-02-01 00:00:00", 1]]),
    "day or month, US.csv": ("d,x\n01/02/2024,1.5\n03/04/2024,2\n", [("d", D), ("x", F)], ["the month was taken"], [["2024-01-02 00:00:00", 1.5]]),
    "another column tells.csv": ("d,e\n01/02/2024,13/02/2024\n03/04/2024,24/04/2024\n", [("d", D), ("e", D)], ["%d/%m/%Y: d, e"], [["2024-02-01 00:00:00", "2024-02-13 00:00:00"]]),
    "both orders.csv": ("d,x\n13/02/2024,1\n03/24/2024,2\n", [("d", S), ("x", I)], ["'d' stays text"], [["13/02/2024", 1]]),
    "contradiction.csv": ('v,x\n"1.234,56",1\n"1,234.56",2\n', [("v", S), ("x", I)], ["contradict each other"], [["1.234,56", 1]]),
    "thousands or not.csv": ("v;x\n1.234;1,5\n5.678;2,5\n", [("v", I), ("x", F)], ["1.234 could be read in two ways"], [[1234, 1.5]]),
    "units.csv": ("time,speed\ns,km/h\n1,2.5\n2,3.5\n", [("time s", I), ("speed km/h", F)], ["2 lines of names"], [[1, 2.5]]),
    "R.csv": ("mpg,cyl\nMazda,21.0,6\nDatsun,22.8,4\n", [("column_1", S), ("mpg", F), ("cyl", I)], [], [["Mazda", 21.0, 6]]),
    "trailing.csv": ("a;b;\n1;2;\n3;4;\n", [("a", I), ("b", I)], ["columns without name and values left out"], [[3, 4]]),
    "quotes.csv": ('id,text\n1,"two\nlines; and, more"\n2,"x ""y"""\n', [("id", I), ("text", S)], [], [[1, "two\nlines; and, more"], [2, 'x "y"']]),
    "two encodings.csv": (("name,v\n" + "Köln,1\n" * 50).encode() + b"M\xfcnchen,2\n", [("name", S), ("v", I)], ["1 lines have bytes that are none"], [["K\u00f6ln", 1], ["M\ufffdnchen", 2]]),
    "big-endian.csv": (b"\xfe\xff" + "a;b\nä;1\n".encode("utf-16-be"), [("a", S), ("b", I)], ["utf-16"], [["ä", 1]]),
    "no mark.csv": ("a;b\nä;1\n".encode("utf-16-le"), [("a", S), ("b", I)], ["every other byte is 0"], [["ä", 1]]),
    "polish.csv": ("Miasto;Sprzedaż\nŁódź;1\nGdańsk;2\nZażółć gęślą jaźń;3\n".encode("cp1250"), [("Miasto", S), ("Sprzedaż", I)], ["cp1250"], [["Łódź", 1]]),
    "japanese.csv": ("都市,売上\n東京,100\n大阪,200\nサッポロ,30\n".encode("cp932"), [("都市", S), ("売上", I)], ["cp932"], [["大阪", 200]]),
    "zones.csv": ("t,v\n2024-01-01T10:00:00Z,1\n2024-01-01T12:00:00+02:00,2\n", [("t", D), ("v", I)], ["%z"], [["2024-01-01 10:00:00", 1], ["2024-01-01 10:00:00", 2]]),
    "serials.csv": ("date,v\n45292,1\n2024-01-02,2\n45294,3\n", [("date", D), ("v", I)], ["serial"], [["2024-01-01 00:00:00", 1], ["2024-01-03 00:00:00", 3]]),
    "one bad of 200.csv": ("v,w\n" + "".join(f"{i},x\n" for i in range(200)) + "broken3,y\n", [("v", F), ("w", S)], ["1 value could not be read and became missing, as 'broken3'"], [[None, "y"]]),
    "half bad.csv": ("v,w\n1,x\nbroken,y\n", [("v", S), ("w", S)], [], [["broken", "y"]]),
    "negative.csv": ("v,w\n(12),5-\n(1.5),6-\n3,\u22127\n", [("v", F), ("w", F)], [], [[-12.0, -5], [-1.5, -6], [3.0, -7]]),
    "phones.csv": ("p,n\n+49 170 1234567,1\n+1 555 123 4567,2\n", [("p", S), ("n", I)], [], [["+49 170 1234567", 1]]),
    "Total Energies.csv": ("region,v\nNorth,1\nTotal Energies,5\nSouth,2\n", [("region", S), ("v", I)], [], [["Total Energies", 5]]),
    "sep line.csv": ("sep=;\na;b\n1;2\n3;4\n", [("a", I), ("b", I)], ["1 line above the table left out"], [[1, 2]]),
    "class.csv": ("class,def\n1,2\n", [("class", I), ("def", I)], [], [[1, 2]]),
    "sum.csv": ("a {b}\n1\n2\n", [("a {b}", I)], [], [[2]]),
    "records.json": ('[{"a": 1, "b": "2024-01-01"}, {"a": 2, "b": "2024-02-01"}]', [("a", I), ("b", D)], [], [[1, "2024-01-01 00:00:00"]]),
    "売上２０２４.csv": ("a,b\n1,2\n", [("a", I), ("b", I)], [], [[1, 2]]),
    "m².csv": ("a,b\n1,2\n", [("a", I), ("b", I)], [], [[1, 2]]),
    "no ends of lines.csv": ("Report\x0bof things\u2028here\n\na,b\n1,x\u2028y\n3,z\n", [("a", I), ("b", S)], ["1 line above the table"], [[1, "x\u2028y"], [3, "z"]]),
    "long cell.csv": ("a,b\n1," + "x" * 200_000 + "\n2,y\n", [("a", I), ("b", S)], [], [[2, "y"]]),
    "lines.jsonl": ('{"a": 1}\n{"a": 2, "c": {"d": "x"}}\n', [("a", I), ("c.d", S)], ["a record a line"], [[1, None], [2, "x"]]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_found_out(load, name):
    check(load, name, *CASES[name])


def check(load: Any, name: str, content: str | bytes, columns: list[tuple[str, str]], words: list[str], rows: list[list[Any]]) -> None:
    ((variable, got, notes, values),) = load(name, content)
    assert got == columns, notes
    assert variable.isidentifier() and variable not in ("sum", "records", "class")
    for w in words:
        assert any(w in note for note in notes), notes
    for row in rows:
        assert row in values, values


def test_sheets(load):
    """Hidden ones, numbers and dates beside text, formulas that nobody computed."""
    book = openpyxl.Workbook()
    page = book.active
    page.title = "Mixed"
    for line in (["day", "amount", "twice"], ["2024-01-03", "1.234,50", "=B2*2"], ["04.01.2024", 7, "=B3*2"], [None, 2.5, "=B4*2"]):
        page.append(line)
    hidden = book.create_sheet("Hidden")
    hidden.append(["n"])
    hidden.append([1])
    hidden.sheet_state = "hidden"
    out = io.BytesIO()
    book.save(out)
    mixed, other = load("mixed.xlsx", out.getvalue())
    assert mixed[1][:2] == [("day", D), ("amount", F)] and [row[:2] for row in mixed[3]] == [["2024-01-03 00:00:00", 1234.5], ["2024-01-04 00:00:00", 7.0], [None, 2.5]]
    assert any("3 formulas were never computed" in note for note in mixed[2])
    assert other[0] == "mixed_hidden" and "it is hidden" in other[2]


def test_what_is_no_table(load):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("a.csv", "a\n1\n")
    assert "is an archive" in load("a.zip", archive.getvalue())
    assert "no list of records" in load("scalar.json", '{"a": 1}')
    assert "is not text" in load("nul.csv", b"a,b\n1,\x002\n")


def database(path: Path, *statements: str) -> bytes:
    with sqlite3.connect(path) as db:
        for one in statements:
            db.execute(one)
    db.close()
    return path.read_bytes()


def test_databases(load, tmp_path):
    """Names that mean something in an address; a view that is broken leaves the rest."""
    content = database(
        tmp_path / "db", "CREATE TABLE sqlite2024 (a, b)", "INSERT INTO sqlite2024 VALUES (1, 'x')", "CREATE TABLE \"q\"\"u'{o}\" (c)",
        "CREATE VIEW broken AS SELECT * FROM nowhere",
    )
    for name in ("what?.db", "no #1.db", "per%41cent.db"):
        other, good = load(name, content)
        assert good[1] == [("a", I), ("b", S)] and good[3] == [[1, "x"]], name
        assert other[1] == [("c", "object")] and any("'broken' cannot be read" in note for note in other[2])
    assert "no such table" in load("broken.db", database(tmp_path / "other", "CREATE VIEW broken AS SELECT * FROM nowhere"))


def test_a_database_that_stays_on_disk(shared_sandbox, load, tmp_path):
    content = database(
        tmp_path / "db", "CREATE TABLE t (a, b)",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) INSERT INTO t SELECT i, i || ',5' FROM n",
    )
    load("large.db", content)
    ran = shared_sandbox.run_code("""
space = {}
loader = tables.Loader(space, say=lambda words: None, memory=1 << 19)
made = loader.load("large.db")
print(made[0]["on_disk"], space["sql"]("SELECT count(*) AS n, sum(b) AS b FROM large").values.tolist())
again = {}
exec(loader.source(), again)
print(again["sql"]("SELECT count(*) AS n, sum(b) AS b FROM large").values.tolist())
""", timeout_seconds=60)
    total = [[3000.0, 3000 * 3001 / 2 + 1500]]
    assert ran.error is None and ran.stdout == f"True {total}\n{total}\n", ran.error


def test_columns_of_lists_and_names_that_are_no_text(load):
    table = pyarrow.table({"id": ["1,5", "2,5"], "many": [["a"], ["b", "c"]], "inner": [{"x": 1}, None]})
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out)
    ((_, columns, notes, values),) = load("lists.parquet", out.getvalue())
    assert columns == [("id", F), ("many", "object"), ("inner", "object")], notes
    assert values[1] == [2.5, "['b' 'c']", None]
    numbered = table.select(["id"]).to_pandas().set_axis([0], axis=1)
    out = io.BytesIO()
    numbered.to_parquet(out)
    ((_, columns, _, values),) = load("numbered.parquet", out.getvalue())
    assert columns == [("0", F)] and values == [[1.5], [2.5]]


def test_a_stray_cell_in_the_last_row_of_a_sheet(load):
    book = openpyxl.Workbook()
    page = book.active
    for line in (["a", "b"], [1, 2], [None, 3]):
        page.append(line)
    page.merge_cells("A2:A3")
    page.cell(1_048_576, 16_384).font = Font(bold=True)
    out = io.BytesIO()
    book.save(out)
    ((_, _, _, values),) = load("far.xlsx", out.getvalue())
    assert values == [[1, 2], [1, 3]]


def test_thousands_of_columns_with_one_name(load):
    ((_, columns, notes, values),) = load("wide.csv", ",".join(["a"] * 1000) + "\n" + ",".join(["1"] * 1000) + "\n")
    assert columns[:2] == [("a", I), ("a_2", I)] and len(values[0]) == 1000
    assert len(notes) == 50 and notes[-1].startswith("and 95")


def test_thousands_of_columns_are_put_together_once(shared_sandbox, load):
    """To set one by one costs the square of how many there are."""
    load("many.csv", ",".join(f"c{i}" for i in range(3000)) + "\n" + "1,x,2024-01-01\n".replace("\n", ",") * 999 + "1,x,2024-01-01\n")
    ran = shared_sandbox.run_code("""
import pandas as pd
set_one, times = pd.DataFrame.__setitem__, 0
def counted(*args):
    global times
    times += 1
    set_one(*args)
pd.DataFrame.__setitem__ = counted
try:
    space = {}
    made = tables.Loader(space).load("many.csv")
finally:
    pd.DataFrame.__setitem__ = set_one
print(times, space["many"].shape, len(made[0]["columns"]))
""", timeout_seconds=120)
    assert ran.error is None, ran.error
    assert "many: many.csv, 1 rows, 3,000 columns\n" in ran.stdout and "it has 3,000 columns, of which the first 200 are described" in ran.stdout
    assert ran.stdout.endswith("\n0 (1, 3000) 200\n"), ran.stdout


def test_what_stays_on_disk_can_be_asked_by_its_name(shared_sandbox, load):
    """Also where SQL has a use for the name, or takes two columns for one."""
    load("small.csv", "a\n1\n")
    shared_sandbox.filesystem.write("/workspace/order.csv", "Total,total,v\n" + "1,2,x\n" * 90_000)
    ran = shared_sandbox.run_code("""
space = {}
made = tables.Loader(space, say=lambda words: None, memory=1 << 22).load("order.csv")
(table,) = made
print(table["on_disk"], [c["name"] for c in table["columns"]], space["sql"](f"SELECT sum(total_1) AS n FROM {table['name']}").n[0], table["notes"])
""", timeout_seconds=60)
    assert ran.error is None, ran.error
    assert ran.stdout.startswith("True ['Total', 'total_1', 'v'] 180000.0 ") and "capital letters, which DuckDB does not tell apart" in ran.stdout, ran.stdout
