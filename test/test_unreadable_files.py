"""Files that an analyst's reader must not trust: what is no file, what unpacks to more than there is, what changes meanwhile, what never ends."""

from __future__ import annotations

import io
import struct
import zipfile

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest
from test_tables import I, S, database, load


@pytest.mark.parametrize(("make", "words"), [
    ("os.mkdir(path)", "is a folder: name the files in it"),
    ("os.mkfifo(path)", "is a pipe"),
    ("import socket; socket.socket(socket.AF_UNIX).bind(path)", "is a socket"),
    ("os.symlink('/dev/zero', path)", "is a device"),
    ("os.symlink('/workspace/nowhere', path)", "is a link to /workspace/nowhere, which is not there"),
    ("os.symlink(path, path)", "cannot be opened: Too many levels of symbolic links"),
    ("open(path, 'w').close()", "is empty: upload it again"),
    ("pass", "there is no file odd: upload it"),
])
def test_what_is_no_file(load, make, words):
    before = f"import shutil\npath = '/workspace/odd'\nif os.path.isdir(path): shutil.rmtree(path)\nelif os.path.lexists(path): os.remove(path)\n{make}"
    assert words in load("odd", None, before)


def test_a_file_that_may_not_be_read(load, shared_sandbox):
    try:
        assert "may not be read by the user that runs code: let it, with chmod a+r" in load("secret.csv", "a,b\n1,2\n", "os.chmod('/workspace/secret.csv', 0)\nos.seteuid(65534)")
    finally:
        shared_sandbox.run_code("os.seteuid(os.getuid())")


@pytest.mark.parametrize(("meanwhile", "words"), [
    ("os.remove(path)", "vanished while it was read"),
    ("os.truncate(path, 7)", "was changed while it was read"),
    ("open(path, 'a').write('5,6\\n')", "was changed while it was read"),
    ("open(path + '.new', 'w').write('x,y\\n7,8\\n'); os.replace(path + '.new', path)", "was changed while it was read"),
])
def test_a_file_that_becomes_another_while_it_is_read(load, meanwhile, words):
    before = f"""
real = tables.text.encoding_of
def meanwhile(path):
    tables.text.encoding_of = real
    found = real(path)
    {meanwhile}
    return found
tables.text.encoding_of = meanwhile
"""
    assert words in load("moving.csv", "a,b\n1,2\n3,4\n", before)


@pytest.mark.parametrize(("name", "content", "words"), [
    ("data.csv.gz", b"\x1f\x8b\x08" + bytes(100), "is compressed, with gzip: unpack it first (gunzip)"),
    ("data.csv.xz", b"\xfd7zXZ\0" + bytes(100), "unxz"),
    ("export.xls", b"\n<html xmlns:o=\"urn\"><body><table><tr><td>1,5</td></tr></table></body></html>", "is HTML or XML, whatever its name says"),
    ("data.xml", b"<?xml version='1.0'?><rows><row a='1'/></rows>", "is HTML or XML"),
    ("secret.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "or one with a password"),
    ("paper.csv", b"%PDF-1.7\n1,2\n3,4\n", "is a PDF"),
    ("ends.csv", b"PK\x03\x04" + bytes(100), "damaged Excel file, or archive"),
    ("endless.csv", b"a,b\n" + b"1" * (33 << 20), "has a line of more than 16 MB"),
])
def test_what_is_known_and_no_table(load, name, content, words):
    assert words in load(name, content)


def book(*rows: list[object]) -> bytes:
    made = openpyxl.Workbook()
    for row in rows:
        made.active.append(row)
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


SHEET = "xl/worksheets/sheet1.xml"


def with_more(content: bytes, more: bytes) -> bytes:
    """An Excel file with more behind the rows of its sheet."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"</sheetData>", b"</sheetData>" + more))
    return out.getvalue()


def merged(area: str) -> bytes:
    return f'<mergeCells count="1"><mergeCell ref="{area}"/></mergeCells>'.encode()


def test_an_excel_file_that_unpacks_to_more_than_memory(load):
    bomb = with_more(book(["a", "b"], [1, 2]), b" " * (20 << 20))
    assert len(bomb) < 100_000
    assert "unpacks to 20 MB; with 64 MB of memory, Excel files are read up to 8: save its sheets as CSV" in load("bomb.xlsx", bomb, memory=64 << 20)
    assert load("bomb.xlsx", bomb)[0][3] == [[1, 2]]


def test_an_excel_file_that_lies_of_what_it_unpacks_to(load):
    bomb = with_more(book(["a", "b"], [1, 2]), b" " * (20 << 20))
    with zipfile.ZipFile(io.BytesIO(bomb)) as z:
        size = z.getinfo(SHEET).file_size
    lie = bomb.replace(struct.pack("<L", size), struct.pack("<L", 1000))
    assert lie != bomb
    assert "is a damaged Excel file" in load("lie.xlsx", lie, memory=64 << 20)


def test_a_sheet_that_is_one_merged_cell(load):
    content = with_more(book(["a", "b"], [1, 2], [None, 4]), merged("A1:XFD1048576"))
    ((_, columns, notes, values),) = load("whole.xlsx", content)
    assert columns == [("a", "float64"), ("b", I)] and values == [[1.0, 2], [None, 4]]
    assert any("the sheet is one merged cell, A1:XFD1048576" in note for note in notes)


def test_a_merged_label_of_a_million_rows(load):
    ((_, _, notes, values),) = load("far label.xlsx", with_more(book(["a", "b"], ["x", 2], [None, 3]), merged("A2:A1048576")))
    assert values == [["x", 2], ["x", 3]] and any("1 areas of merged cells" in note for note in notes)


def test_parquet_with_a_name_twice(load):
    table = pyarrow.table([[1, 2], ["x", "y"], [3, 4]], names=["a", "b", "a"])
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out)
    ((_, columns, notes, values),) = load("twice.parquet", out.getvalue())
    assert columns == [("a", I), ("b", S), ("a_2", I)] and values == [[1, "x", 3], [2, "y", 4]]
    assert "the name 'a' is there more than once: 'a_2'" in notes


ENDLESS = "CREATE VIEW endless AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"


def test_a_view_without_end_is_left_out(load, tmp_path):
    content = database(tmp_path / "db", "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)", ENDLESS)
    ((_, _, notes, values),) = load("endless.db", content, "tables.sqlite.VIEW_SECONDS = 0.2")
    assert values == [[1]] and any("the view 'endless' took more than 0.2 s, and was left out" in note for note in notes)


def test_a_view_without_end_hears_the_deadline(load, shared_sandbox, tmp_path):
    """Of the cell, which without hearing it is ended with its interpreter."""
    load("small.csv", "a\n1\n")
    shared_sandbox.filesystem.write("/workspace/endless.db", database(tmp_path / "db", "CREATE TABLE t (a)", ENDLESS))
    shared_sandbox.run_code("kept = 1\ntables.sqlite.VIEW_SECONDS = 3600")
    ran = shared_sandbox.run_code("tables.Loader({}).load('endless.db')", timeout_seconds=3)
    assert ran.end == "timeout" and ran.error is not None and "KeyboardInterrupt" in ran.error, ran
    assert shared_sandbox.run_code("kept").text == "1"


def test_a_view_of_more_rows_than_fit_stays_on_disk(shared_sandbox, load, tmp_path):
    content = database(tmp_path / "db", "CREATE TABLE t (a)", *["INSERT INTO t VALUES (1)"] * 60, "CREATE VIEW many AS SELECT x.a, y.a AS b FROM t x, t y, t z")
    shared_sandbox.filesystem.write("/workspace/many.db", content)
    ran = shared_sandbox.run_code("space = {}\nloader = tables.Loader(space, say=lambda words: None, memory=64 << 20)\nprint([(t['name'], t['rows'], t['on_disk']) for t in loader.load('many.db')])", timeout_seconds=60)
    assert ran.stdout == "[('many_many', 216000, True), ('many_t', 60, False)]\n", ran.error
