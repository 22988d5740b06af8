"""Files as banks, offices and programs write them: what is guessed of one is said, and what cannot be told stays text."""

from __future__ import annotations

import datetime
import io
import json
from typing import Any

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest
from test_tables import D, F, I, S, check, database, load

BANK = '''"Kontonummer:";"DE12 5001 0517 0648 4898 90";;;;
"Kontostand vom 31.03.2024:";"12.345,67 EUR";;;;
;;;;;
"Buchungstag";"Wertstellung";"Buchungstext";"Verwendungszweck";"IBAN";"Betrag (EUR)"
"02.01.2024";"03.01.2024";"Lastschrift";"Miete; Januar";"DE02120300000000202051";"-1.250,00"
"05.01.2024";"05.01.2024";"Gutschrift";"Gehalt
Januar";"DE02500105170137075030";"3.812,44"
"08.02.2024";"08.02.2024";"Kartenzahlung";"REWE ""Markt"" 12";"DE88100900001234567892";"-43,10"
'''.encode("cp1252")

FRENCH = """Région;2023;;2024;
;CA (€);Marge;CA (€);Marge
Nord;1\u202f234\u202f567,50 €;12,5 %;1\u202f300\u202f000,00 €;13 %
Sud;987\u202f654,00 €;8,1 %;1\u202f000\u202f000,25 €;7,9 %
Ouest;12\u2009345,10 €;-2 %;13\u2009000,00 €;0 %
Total général;2\u202f234\u202f566,60 €;;2\u202f313\u202f000,25 €;
"""

MEMBERS = """nr,phone,home,active,actif,aktiv,attivo,country,points,note
00123,+49 170 123 456,030 123 456,yes,oui,ja,sì,NA,1,NULL
00124,+49 170 123 457,030 123 457,no,non,nein,no,NO,n/a,
01125,+49 170 123 458,040 222 333,yes,oui,ja,sì,NL,3,ok
"""

MIXED = "id\tname\ttext\tv\r\n1\tÄrger\t\"two\nlines\"\t1,5\n2\tZoë\tplain\t2,5\r\n3\tŁ\t\"a\r\nb\"\t3,5\n"

# name: content, types of the columns, words of the notes, rows that are there
CASES: dict[str, tuple[str | bytes, list[tuple[str, str]], list[str], list[list[Any]]]] = {
    "bank.csv": (BANK, [("Buchungstag", D), ("Wertstellung", D), ("Buchungstext", S), ("Verwendungszweck", S), ("IBAN", S), ("Betrag (EUR)", F)],
                 ["2 lines above the table left out: Kontonummer:", "decimal ',' and thousands '.'"],
                 [["2024-01-05 00:00:00", "2024-01-05 00:00:00", "Gutschrift", "Gehalt\nJanuar", "DE02500105170137075030", 3812.44]]),
    "ventes.csv": (FRENCH, [("Région", S), ("2023 CA (€)", F), ("2023 Marge", F), ("2024 CA (€)", F), ("2024 Marge", F)],
                   ["2 lines of names, joined", "its total left out: Total général", "'2023 CA (€)' is in EUR", "'2023 Marge' is in percent"],
                   [["Nord", 1234567.5, 12.5, 1300000.0, 13.0], ["Ouest", 12345.1, -2.0, 13000.0, 0.0]]),
    "members.csv": (MEMBERS, [*((n, S) for n in ("nr", "phone", "home", "active", "actif", "aktiv", "attivo", "country")), ("points", F), ("note", S)],
                    ["'nr' stays text: it has leading zeros", "'phone' stays text: its values look like telephone numbers", "'home' stays text: it has leading zeros, as in 030 123 456"],
                    [["00124", "+49 170 123 457", "030 123 457", "no", "non", "nein", "no", "NO", None, None]]),
    "mixed.tsv": (b"\xff\xfe" + MIXED.encode("utf-16-le"), [("id", I), ("name", S), ("text", S), ("v", F)], ["encoding utf-16"], [[1, "Ärger", "two\nlines", 1.5], [3, "Ł", "a\r\nb", 3.5]]),
    "lager.csv": ("Datum;Artikel;Bestand\n45292;A-1;1.234\n45293;A-2;12.500\n", [("Datum", D), ("Artikel", S), ("Bestand", I)],
                  ["1.234 could be read in two ways; its sign was taken to separate thousands", "whole numbers were taken for Excel's count of days"], [["2024-01-01 00:00:00", "A-1", 1234]]),
    "decimal points.csv": ("a;b\n1.234;0.5\n2.345;1.5\n", [("a", F), ("b", F)], [], [[1.234, 0.5]]),
    "geburt.csv": ("name;geboren\nAnn;01.02.68\nBob;03.04.70\n", [("name", S), ("geboren", D)], ["years of two digits: 69 to 99 were taken for 19.., 00 to 68 for 20..: geboren"], [["Bob", "1970-04-03 00:00:00"]]),
    "put together.csv": ("day,team,amount\n2024-01-01,North,10\nSubtotal,,10\nday,team,amount\n2024-01-04,South\n2024-01-05,South,7\n", [("day", S), ("team", S), ("amount", F)],
                         ["the line of names is there again in 1 row", "1 row of 'day' reads like totals, and is still among the others: 'Subtotal'", "1 lines have fewer than 3 cells, the first of them is row 4"], [["2024-01-04", "South", None]]),
    "subtotals.csv": ("region,team,v\nNorth,a,1\nNorth,b,2\nNorth Total,,3\nSouth,a,4\nSouth,b,5\nSouth Total,,9\nGrand Total,,12\n", [("region", S), ("team", S), ("v", I)],
                      ["2 rows of 'region' read like totals, and are still among the others: 'North Total', 'South Total'", "its total left out: Grand Total, 12"], [["North Total", None, 3]]),
    "parts.tsv": ("part\tsize\tn\nA\t5\" pipe\t1\nB\t\"3 inch\t2\nC\tx\t3\n", [("part", S), ("size", S), ("n", I)], ["a quotation mark in it is never closed"], [["B", '"3 inch', 2], ["C", "x", 3]]),
    "one mark too many.csv": ("a,b\n\"x,1\n" + "y,2\n" * 60 + "\"z,3\n" + "w,4\n" * 3, [("a", S), ("b", I)], ["a cell of 'a' has 61 lines: a quotation mark may be missing, and rows with it"], [["w", 4]]),
    "currencies.csv": ("price,paid,rate\n$5.00,EUR 5.00,5%\n€7.50,EUR 7.50,0.07\n£1,EUR 1.00,8%\n", [("price", S), ("paid", F), ("rate", S)],
                       ["'price' stays text: it has USD and GBP and EUR", "'paid' is in EUR, which was left out", "'rate' stays text: it has % and numbers without"], [["€7.50", 7.5, "0.07"]]),
    "dashes.csv": ("what,v\na,-\nb,5\nc,6\n", [("what", S), ("v", F)], ["'v': - was taken for missing; where it stands for 0, fill it"], [["a", None]]),
    "addresses.csv": ("ip,n\n192.168.100.101,1\n192.168.100.102,2\n", [("ip", S), ("n", I)], ["'ip' stays text: its values look like addresses"], [["192.168.100.101", 1]]),
    "fiscal.csv": ("year,v\n2009-10,1\n2010-11,2\n2011-12,3\n", [("year", S), ("v", I)], ["2009-10 may be a month, or a year that ends in the next"], [["2009-10", 1]]),
    "seasons.csv": ("year,v\n2022-23,1\n2023-24,2\n", [("year", S), ("v", I)], [], [["2022-23", 1]]),
    "months.csv": ("month,v\n2024-01,1\n2024-02,2\n", [("month", D), ("v", I)], ["%Y-%m"], [["2024-02-01 00:00:00", 2]]),
    "sept.csv": ("d,v\n1 Sept 2024,1\n2 Oct 2024,2\n", [("d", D), ("v", I)], ["%d %b %Y"], [["2024-09-01 00:00:00", 1]]),
    "zoned and not.csv": ("t,v\n2024-01-01T10:00:00Z,1\n2024-01-02T11:00:00,2\n", [("t", D), ("v", I)], ["times with a zone became UTC; those without one were left as they are: t"], [["2024-01-02 11:00:00", 2]]),
    "digits.csv": ("a,b\n\u0661\u0662\u0663,1\n\u0664\u0665\u0666,2\n", [("a", S), ("b", I)], [], [["\u0661\u0662\u0663", 1]]),
    "spaces.txt": ("x y z\n1 2 3\n4 5 6\n", [("x y z", S)], ["it has one column: neither , ; tab nor | separates cells"], [["1 2 3"]]),
    "codes.csv": ("code,v\n12E4,1\n34E5,2\n", [("code", S), ("v", I)], ["12E4 may be a code, or a number with an exponent"], [["12E4", 1]]),
    "exponents.csv": ("x;v\n1e+05;\u20131\n2.5e-03;\u20132,5\n", [("x", F), ("v", F)], [], [[100000.0, -1.0], [0.0025, -2.5]]),
    "rubles.csv": ("Сумма;Доля\n1 234,50 руб.;10%\n99,00 руб.;0\n", [("Сумма", F), ("Доля", F)], ["'Сумма' is in RUB", "'Доля' is in percent"], [[1234.5, 10.0], [99.0, 0.0]]),
    "marked.csv": (b"\xef\xbb\xbfa,b\n" + "ä,1\n".encode() * 30 + b"\xe4,2\n", [("a", S), ("b", I)], ["encoding utf-8-sig; 1 lines have bytes that are none"], [["ä", 1], ["\ufffd", 2]]),
    "one.jsonl": ('{"a": 1}\n', [("a", I)], ["a record a line"], [[1]]),
    "several.json": (json.dumps({"orders": [{"n": 1}, {"n": 2}], "people": [{"m": 1}]}), [("n", I)], ["the records of ['orders']", "other lists in it were left out: ['people'] (1)"], [[2]]),
    "utf-16.json": (b"\xff\xfe" + '[{"a": "ä"}]'.encode("utf-16-le"), [("a", S)], ["encoding utf-16"], [["ä"]]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(load, name):
    check(load, name, *CASES[name])


def test_records_with_long_numbers(load):
    """Of which one is missing, so that pandas makes floats of them."""
    lines = [{"id": 1234567890123456789, "user": {"zip": "01234"}, "extra": 5}, {"id": 1234567890123456790, "extra": "x"}, {"user": {"zip": "99999"}}]
    ((_, columns, notes, values),) = load("events.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert columns == [("id", S), ("extra", "object"), ("user.zip", S)]
    assert [row[0] for row in values] == ["1234567890123456789", "1234567890123456790", None]
    assert any("numbers of more than 15 digits stay text" in note for note in notes) and "'extra' has values of several kinds, left as they are: int, str" in notes


def test_a_line_that_is_no_record(load):
    assert "in line 3 of the file: '{\"a\": 3'" in load("bad.jsonl", '{"a": 1}\n{"a": 2}\n{"a": 3\n{"a": 4}\n')


def test_databases_with_odd_names_and_long_numbers(load, tmp_path):
    content = database(
        tmp_path / "db", 'CREATE TABLE "order by" (id INTEGER, "group ""x""" TEXT)', f"INSERT INTO \"order by\" VALUES ({2**60 + 1}, '007'), (NULL, '008')",
        'CREATE TABLE "" (n)', 'INSERT INTO "" VALUES (1)', 'CREATE TABLE "select * from x; --" (n)', 'CREATE TABLE "%s {x}" (n)',
    )
    made = {name: (columns, notes, values) for name, columns, notes, values in load("odd.db", content)}
    columns, notes, values = made["odd_order_by"]
    assert columns == [("id", S), ('group "x"', S)] and values == [[str(2**60 + 1), "007"], [None, "008"]] and len(made) == 4
    assert any("numbers of more than 15 digits stay text" in note for note in notes)


def test_parquet_with_long_numbers(load):
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"id": [2**60 + 1, None]}), out)
    ((_, _, notes, _),) = load("long.parquet", out.getvalue())
    assert any("whole numbers of more than 15 digits lost some of them, since others are missing: id" in note for note in notes)


def pivot() -> bytes:
    """Years over quarters, in merged cells; the second sheet has days as Excel counts them, ids, and truth that is missing."""
    book = openpyxl.Workbook()
    page = book.active
    page.title = "Pivot"
    page["A1"], page["A3"] = "Revenue by quarter", "Region"
    page.merge_cells("A1:I1")
    page.merge_cells("A3:A4")
    for i, year in enumerate((2023, 2024)):
        page.cell(3, 2 + 4 * i, year)
        page.merge_cells(start_row=3, end_row=3, start_column=2 + 4 * i, end_column=5 + 4 * i)
        for q in range(4):
            page.cell(4, 2 + 4 * i + q, f"Q{q + 1}")
    for row, region in enumerate(("North", "South", "West", "Grand Total")):
        page.cell(5 + row, 1, region)
        for c in range(8):
            page.cell(5 + row, 2 + c, 100 * (row + 1) + c)
    other = book.create_sheet("Serials")
    for line in (["Date", "Order", "Paid", "when"], [45292, "0007", True, datetime.datetime(2024, 1, 1)], [45293, "0008", None, 45293], [45294, "0009", False, "03.01.2024"]):
        other.append(line)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


@pytest.mark.parametrize("name", ["pivot.xlsx", "really Excel.xls"])
def test_a_wide_pivot(load, name):
    wide, serials = load(name, pivot())
    assert [c for c, _ in wide[1]] == ["Region", *(f"{y} Q{q}" for y in (2023, 2024) for q in (1, 2, 3, 4))]
    assert wide[3] == [[region, *(100 * n + c for c in range(8))] for n, region in enumerate(("North", "South", "West"), 1)]
    assert any("its total left out: Grand Total" in note for note in wide[2])
    assert serials[1] == [("Date", D), ("Order", S), ("Paid", "boolean"), ("when", D)]
    assert serials[3] == [[f"2024-01-0{n} 00:00:00", f"000{6 + n}", paid, f"2024-01-0{n} 00:00:00"] for n, paid in ((1, True), (2, None), (3, False))]


def test_a_second_table_on_a_sheet(load):
    book = openpyxl.Workbook()
    for line in (["a", "b"], [1, 2], [3, 4], [], ["c", "d"], [5, 6]):
        book.active.append(line)
    out = io.BytesIO()
    book.save(out)
    ((_, _, notes, _),) = load("two.xlsx", out.getvalue())
    assert any("if another table begins in row 5, its rows are among these" in note for note in notes)


def test_ids_that_begin_far_behind_the_start(load, shared_sandbox):
    """Where nobody looked: said, since a number cannot keep their zeros."""
    shared_sandbox.filesystem.write("/workspace/late.csv", "id,v\n" + "".join(f"{i},x\n" for i in range(500_000)) + "00042,y\n" + "500000,x\n" * 9)
    load("small.csv", "a\n1\n")
    ran = shared_sandbox.run_code("space = {}\nloader = tables.Loader(space, memory=32 << 20)\nmade = loader.load('late.csv')", timeout_seconds=120)
    assert ran.error is None and "'id': 1 values lost leading zeros or digits, as numbers do, as '00042'" in ran.stdout, (ran.stdout, ran.error)
