"""What an analyst's run loads its files with: finds out how a file is written, says what it found, and makes tables of it.

It runs inside the sandbox. What it decides becomes plain code for pandas, which is what it then runs, and what stands in the
notebook: nothing of this module is needed to do it again.
"""

import builtins
import codecs
import contextlib
import csv
import inspect
import io
import itertools
import json
import keyword
import os
import re
import sqlite3
import statistics
import time
import unicodedata
from urllib.parse import quote

TABLES = "application/vnd.pandastack.tables+json"

PIECE = 1 << 20  # bytes at its start that are looked at of a large file, and a sixteenth of it at each other place
PLACES = 32  # of a large file that are looked at, besides its start
LOOKED_AT = 200_000  # rows that decide how a column is written
HEAD_ROWS = 60  # in which header and separator are looked for
HEADER_ROWS = 3
CHUNK_CELLS = 250_000  # of a large file that are in memory
SHARE = 16  # a file of more than this part of the memory stays on disk
EXCEL_MB = 40  # openpyxl takes some fifty times of a file's size in memory
MOST_TABLES = 50
MOST_NOTES = 50  # of a table
SHOWN_COLUMNS = 60
BAD_SHARE = 0.02  # of a column's values that may be no numbers, or dates, in a column of them

# Missing in columns of numbers and dates. In columns of words fewer are, see words(): NA is a country, too.
MISSING = ["", "-", "--", "—", "–", ".", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None", "none", "#N/A", "#NA", "#DIV/0!", "#VALUE!", "#REF!", "k.A.", "k. A.", "n.v."]
TOTAL = re.compile(r"^\W*(grand total|sub-?total|total|totals|sum|summe|gesamt|gesamtsumme|totaal|totale|somme|suma|итого|合計|总计)\b", re.I)


# Names that the code for files has a use for, and those of Python's own.
TAKEN = {*dir(builtins), "pd", "pa", "pq", "json", "sqlite3", "openpyxl", "duckdb", "sql", "numbers", "dates", "words", "sheet", "tidy", "records", "rows", "file", "schema", "out", "chunk", "on_disk", "np", "plt", "math", "sys", "os", "re", "datetime", "collections", "pandas"}


class Unreadable(Exception):
    """A file that no table can be made of; the words say why, and what to do."""


# --- what the code for a file consists of --------------------------------------------------------------------------


def numbers(column, decimal=".", thousands=""):
    """Numbers as people write them: 1.234,50 €, (12), 7-, 3 %."""
    text = column.astype("str").str.strip()
    for sign in thousands:
        text = text.str.replace(sign, "", regex=False)
    text = text.str.replace(decimal, ".", regex=False).str.replace("\u2212", "-", regex=False)
    values = pd.to_numeric(text, errors="coerce")
    rest = text[values.isna() & text.notna()]
    if len(rest):
        money = r"(?:€|R?\$|£|¥|₹|EUR|USD|GBP|CHF|kr|zł|Fr\.?|%)?"
        parts = rest.str.extract(rf"^([-+(\s]*){money}([-+\s]*)(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*{money}([\s)-]*)$")
        found = pd.to_numeric(parts[2], errors="coerce")
        negative = (parts[0] + parts[1] + parts[3]).str.contains("[-(]", regex=True).fillna(False).astype(bool)
        values = values.fillna(found.mask(negative, -found))
    if column.dtype == object:  # of Excel: beside text there are numbers
        ready = column.map(lambda value: isinstance(value, (int, float)))
        values = values.mask(ready, pd.to_numeric(column.where(ready), errors="coerce"))
    return values


def words(column):
    """Text without the spaces around it; what stands for nothing is missing."""
    text = column.astype("str").str.strip()
    return text.mask(text.isin(["", "N/A", "n/a", "#N/A", "NaN", "NULL", "null"]))


def dates(column, *formats):
    """Dates that are written in several ways; "serial" is Excel's count of days."""
    text, out = column.astype("str").str.strip(), pd.Series(pd.NaT, index=column.index, dtype="datetime64[us]")
    for format in formats:
        if format == "serial":
            days = pd.to_numeric(text, errors="coerce")
            found = pd.to_datetime(days.where(days.between(20000, 80000)), unit="D", origin="1899-12-30")
        elif "%z" in format:
            found = pd.to_datetime(text, format=format, errors="coerce", utc=True).dt.tz_localize(None)
        else:
            found = pd.to_datetime(text, format=format, errors="coerce")
        out = out.fillna(found.astype("datetime64[us]"))
    return out


def sheet(path, name, last_row, last_column):
    """The cells of a sheet as far as they are filled, the merged ones, too."""
    page = openpyxl.load_workbook(path, data_only=True)[name]
    rows = [list(row) for row in page.iter_rows(max_row=last_row, max_col=last_column, values_only=True)]
    for area in page.merged_cells.ranges:
        for row in range(area.min_row - 1, min(area.max_row, last_row)):
            rows[row][area.min_col - 1 : area.max_col] = [page.cell(area.min_row, area.min_col).value] * (area.max_col - area.min_col + 1)
    return rows


def sql(query):
    """Asks the tables that stay on disk, by their names, and gives a DataFrame."""
    with duckdb.connect(config={"memory_limit": "DUCKDB_MB", "threads": 2, "temp_directory": "/tmp/duckdb"}) as con:
        for name, file in on_disk.items():
            con.from_parquet(file).create_view(name)
        return con.sql(query).df()


# --- how text is written -------------------------------------------------------------------------------------------


def encoding_of(path):
    """The encoding of a text file, what its errors are to become, and remarks."""
    with open(path, "rb") as file:
        start = file.read(4)
        for mark, name in ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
            if start.startswith(mark):
                return name, "strict", [f"encoding {name}, as its first bytes say"]
        file.seek(0)
        sample = file.read(PIECE)
        if sample.count(0) > len(sample) // 5:
            name = "utf-16-le" if sample[1::2].count(0) > sample[::2].count(0) else "utf-16-be"
            return name, "strict", [f"encoding {name}: every other byte is 0"]
        file.seek(0)
        good, bad, lines = 0, 0, []
        for piece in iter(lambda: file.read(16 << 20), b""):
            piece += file.readline()
            try:
                if not piece.isascii():
                    piece.decode()
                    good += 1
                continue
            except UnicodeDecodeError:
                pass
            for line in piece.splitlines(keepends=True):
                if line.isascii():
                    continue
                try:
                    line.decode()
                    good += 1
                except UnicodeDecodeError:
                    bad += 1
                if len(lines) < 4000:
                    lines.append(line)
    if not bad:
        return "utf-8", "strict", []
    if good > 10 * bad:
        return "utf-8", "replace", [f"encoding utf-8; {bad} lines have bytes that are none, which became \ufffd"]
    return guessed(b"".join(lines))


# Those that tables come in. Others that charset-normalizer knows look like these and are hardly written.
CODEPAGES = ["cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r", "cp437", "cp850", "cp866", "mac_roman", "cp932", "euc_jp", "gb18030", "big5", "cp949"]


def guessed(sample):
    """The encoding of bytes that are no UTF-8, by charset-normalizer."""
    from charset_normalizer import from_bytes

    names = [m.encoding for m in from_bytes(sample[:200_000], cp_isolation=CODEPAGES, threshold=0.4)]
    text = decoded(sample, "cp1252")
    if text is not None and western(text):
        names.insert(0, "cp1252")  # of those with a byte a letter by far the most frequent
    for name in names or ["cp1252"]:
        if decoded(sample, name) is not None:
            others = [n for n in dict.fromkeys(names) if n != name][:2]
            return name, "replace", [f"encoding {name}, guessed from its bytes" + (f"; it might be {' or '.join(others)}" if others and names[0] != "cp1252" else "")]
    return "latin-1", "strict", ["encoding latin-1, since no other fits"]


def western(text):
    """Whether a text reads as one of Western Europe: single letters with accents among plain ones, signs not within words."""
    runs = re.findall(r"[^\x00-\x7f]+", text)
    letters = [r for r in runs if len(r) <= 2 and all(c in "äöüßéèêëàâçôûùîïñáíóúãõåæøœýìòðþº" for c in r.lower())]
    signs = [r for r in runs if re.fullmatch(r"[€£§µ²³°½¼«»…•–—‘’“”„´®©·±×\u00a0¿¡]+", r)]
    within = len(re.findall(r"[a-zA-Z][²³µ€£§°½¼¿¡±×][a-zA-Z]|\b[³¿¼][a-z]", text))
    return len(letters) + len(signs) >= 0.9 * len(runs) and within <= 0.02 * len(runs)


def decoded(sample, name):
    try:
        return sample.decode(name)
    except UnicodeDecodeError:
        return None


def csv_reader(text, separator):
    """Rows of a text. Lines end where they do for pandas, which is not everywhere that Unicode ends one."""
    csv.field_size_limit(1 << 30)  # pandas has none
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator)


def text_rows(text, separator):
    """Rows of cells, without empty lines."""
    return [[cell.strip() for cell in row] for row in csv_reader(text, separator) if any(cell.strip() for cell in row)]


def separator_of(text):
    """What separates cells: what gives the most rows the same number of them, and more than one."""
    best, choice = (0, 0), ","
    lines = "".join(itertools.islice(io.StringIO(text, newline=""), 200))
    for separator in ",;\t|":
        try:
            widths = [len(row) for row in text_rows(lines, separator)]
        except csv.Error:
            continue
        if not widths:
            continue
        width = statistics.mode(widths)
        alike = sum(w == width for w in widths) / len(widths)
        score = (alike if width > 1 else 0, width)
        if score[0] > best[0] + 0.05 or (abs(score[0] - best[0]) <= 0.05 and score[1] > best[1]):
            best, choice = score, separator
    return choice


# --- how values are written ----------------------------------------------------------------------------------------

MONEY = r"(?:€|R?\$|£|¥|₹|EUR|USD|GBP|CHF|kr|zł|Fr\.?|%)"
NUMBER = re.compile(rf"^\(?\s*[-+\u2212]?\s*{MONEY}?\s*[-+\u2212]?\s*((?:\d[\d.,'’ \u00a0\u202f]*)?\d(?:[eE][-+]?\d+)?|[.,]\d+)\s*{MONEY}?\s*\)?-?$")
SPACES = "'’ \u00a0\u202f"


def digits_of(value):
    """What of a value are its digits and their separators; None when it is no number."""
    if len(value) > 40:
        return None
    m = NUMBER.match(value)
    return m and m[1]


class Numbers:
    """How the numbers of a column are written."""

    def __init__(self, cores):
        self.spaces = {c for core in cores for c in core if c in SPACES}
        self.point, self.comma = self._role(cores, ".", ","), self._role(cores, ",", ".")
        self.used = {s for core in cores for s in ".," if s in core}

    @staticmethod
    def _role(cores, sign, other):
        """"decimal", "thousands", "either", "" when it is not used, or "both"."""
        roles = set()
        for core in cores:
            if sign not in core:
                continue
            parts = core.split(sign)
            if other in core:
                roles.add("decimal" if core.rindex(sign) > core.rindex(other) else "thousands")
            elif len(parts) > 2:
                roles.add("thousands")
            elif len(parts[1]) != 3 or len(re.sub(rf"[{SPACES}]", "", parts[0])) > 3 or parts[0].startswith("0") or parts[0] == "":
                roles.add("decimal")
            else:
                roles.add("either")
        if {"decimal", "thousands"} <= roles:
            return "both"
        return next((r for r in ("decimal", "thousands", "either") if r in roles), "")

    def signs(self, comma_is_decimal):
        """Decimal sign, thousands, whether that is a guess; None when they contradict each other."""
        point, comma = self.point, self.comma
        if "both" in (point, comma) or point == comma == "decimal" or point == comma == "thousands":
            return None
        guess = False
        if comma == "either":
            guess = point != "decimal"
            comma = "thousands" if point == "decimal" else "decimal" if point == "thousands" or comma_is_decimal else "thousands"
        if point == "either":
            guess = comma != "decimal" and comma_is_decimal
            point = "thousands" if comma == "decimal" or (comma_is_decimal and comma != "thousands") else "decimal"
        decimal = "," if comma == "decimal" or point == "thousands" else "."
        thousands = "".join(sorted(self.spaces)) + ("." if point == "thousands" else "") + ("," if comma == "thousands" else "")
        return decimal, thousands, guess


MONTH = r"[A-Za-z]{3,9}"
TIME = r"(?:([ T])(\d{1,2}:\d{2})(:\d{2})?(\.\d+)?(Z|[+-]\d{2}:?\d{2})?)?"
SHAPES = [
    (re.compile(rf"^\d{{4}}-\d{{1,2}}-\d{{1,2}}{TIME}$"), "%Y-%m-%d"),
    (re.compile(rf"^\d{{4}}/\d{{1,2}}/\d{{1,2}}{TIME}$"), "%Y/%m/%d"),
    (re.compile(rf"^\d{{4}}\.\d{{1,2}}\.\d{{1,2}}{TIME}$"), "%Y.%m.%d"),
    (re.compile(rf"^\d{{1,2}}([./-])\d{{1,2}}\1\d{{4}}{TIME}$"), "{0}\\1{1}\\1%Y"),
    (re.compile(rf"^\d{{1,2}}([./-])\d{{1,2}}\1\d{{2}}{TIME}$"), "{0}\\1{1}\\1%y"),
    (re.compile(rf"^\d{{1,2}}([ -]){MONTH}\1\d{{4}}{TIME}$"), "%d\\1%b\\1%Y"),
    (re.compile(rf"^\d{{1,2}}([ -]){MONTH}\1\d{{2}}{TIME}$"), "%d\\1%b\\1%y"),
    (re.compile(rf"^{MONTH} \d{{1,2}}, \d{{4}}{TIME}$"), "%b %d, %Y"),
    (re.compile(r"^\d{4}-\d{2}$"), "%Y-%m"),
    (re.compile(rf"^{MONTH} \d{{4}}$"), "%b %Y"),
]
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()


def date_format(value):
    """The format of a date, with {0} and {1} where day and month are not told apart; None when it is none."""
    if not 6 <= len(value) <= 40:
        return None
    for shape, form in SHAPES:
        m = shape.match(value)
        if not m:
            continue
        groups = list(m.groups())
        if "\\1" in form:
            form = form.replace("\\1", groups.pop(0))
        if "%b" in form:
            month = re.search(MONTH, value)[0].lower()
            if month[:3] not in MONTHS:
                return None
            if len(month) > 3 and month != "sept":
                form = form.replace("%b", "%B")
        if groups and groups[0]:
            form += groups[0] + "%H:%M" + ("" if not groups[2] else ":%S") + ("" if not groups[3] else ".%f") + ("" if not groups[4] else "%z")
        return form
    return None


class Dates:
    """How the dates of a column are written."""

    def __init__(self, values):
        self.forms, self.serials, self.none = {}, 0, []
        first, second = 0, 0
        for v in values:
            form = date_format(v)
            if form is None:
                if re.fullmatch(r"[2-7]\d{4}(\.0)?", v):
                    self.serials += 1
                else:
                    self.none.append(v)
                continue
            self.forms[form] = self.forms.get(form, 0) + 1
            if "{0}" in form:
                a, b = map(int, re.findall(r"\d+", v)[:2])
                first, second = max(first, a), max(second, b)
                if a > 31 or b > 31 or (a > 12 and b > 12):
                    self.none.append(v)
        self.share = (sum(self.forms.values()) + (self.serials if self.forms else 0)) / max(len(values), 1)
        self.numeric = any("{0}" in f for f in self.forms)
        self.order = "both" if first > 12 and second > 12 else "day" if first > 12 else "month" if second > 12 else "either" if self.numeric else ""

    def formats(self, day_first):
        order = "%d %m" if day_first else "%m %d"
        return [f.format(*order.split()) for f in sorted(self.forms, key=self.forms.get, reverse=True)] + (["serial"] if self.serials else [])


def looks_typed(value):
    """Whether a cell is a number or a date."""
    return not isinstance(value, str) and value is not None or isinstance(value, str) and bool(digits_of(value) or date_format(value))


# --- header --------------------------------------------------------------------------------------------------------


class Header:
    """Where a table begins, and what its columns are called."""

    def __init__(self, rows):
        self.remarks = []
        filled = [sum(c not in ("", None) for c in row) for row in rows]
        width = statistics.mode(len(row) for row in rows)
        full = max(filled)
        self.width = width if any(len(r) == width and n >= 0.6 * full for r, n in zip(rows, filled)) else max(map(len, rows))
        enough = max(min(2, full), 0.5 * full)

        def begins(row, n):
            """Whether a table can begin with this line: what stands above one is short, or one text in merged cells."""
            return n >= enough and len(row) >= self.width - 1 and (n == 1 or len(set(map(str, row)) - {"", "None"}) > 1)

        self.first = next((i for i, (row, n) in enumerate(zip(rows, filled)) if begins(row, n)), 0)
        if len(rows) > self.first + 1 and len(rows[self.first]) == self.width - 1 and all(len(r) == self.width for r in rows[self.first + 1 :]):
            rows[self.first] = ["", *rows[self.first]]  # R and others give the column of row names no name
        rows = [list(row) + [""] * (self.width - len(row)) for row in rows]
        body = rows[self.first :]
        self.rows = self._rows(body)
        above = [" ".join(dict.fromkeys(str(c) for c in row if c not in ("", None))) for row in rows[: self.first]]
        if above:
            self.remarks.append(f"{len(above)} line{'s' if len(above) > 1 else ''} above the table left out: {' / '.join(above)[:200]}")
        if self.rows == 0:
            self.names = [f"column_{i + 1}" for i in range(self.width)]
            self.remarks.append("it has no line with the columns' names, so they are column_1, column_2, …")
        else:
            self.names = self._names(body[: self.rows])

    def _rows(self, body):
        """How many lines of names there are."""
        typed = []
        for i in range(self.width):
            cells = [row[i] for row in body[HEADER_ROWS:] or body[1:] if row[i] not in MISSING and row[i] is not None]
            if cells and sum(map(looks_typed, cells)) >= 0.7 * len(cells):
                typed.append(i)
        if not typed:
            return 1
        n = 0
        for row in body[: min(HEADER_ROWS, len(body) - 1)]:
            cells = [row[i] for i in typed if row[i] not in ("", None)]
            if any(c in MISSING for c in cells) or any(looks_typed(c) and not a_year(c) for c in cells):
                break
            if n and not cells:
                break
            if not any(isinstance(c, str) and c and not looks_typed(c) for c in row):
                break
            if cells and all(a_year(c) for c in cells) and n == 0 and len(body) > 1 and any(a_year(body[1][i]) for i in typed):
                break
            n += 1
        return n

    def _names(self, lines):
        if len(lines) > 1:
            upper = []
            for line in lines[:-1]:
                last = ""
                upper.append([last := str(c) if c not in ("", None) else last for c in line])
            joined = []
            for i in range(self.width):
                low = lines[-1][i]
                parts = [u[i] for u in upper if u[i]] if low not in ("", None) else [str(line[i]) for line in lines[:-1] if line[i] not in ("", None)]
                parts += [str(low)] if low not in ("", None) else []
                joined.append(" ".join(dict.fromkeys(parts)))
            self.remarks.append(f"{len(lines)} lines of names, joined: {', '.join(joined)[:200]}")
            names = joined
        else:
            names = ["" if c is None else str(c) for c in lines[0]]
        out, numbers = {}, {}  # files may have tens of thousands of columns
        for i, name in enumerate(names):
            name = " ".join(name.split()) or f"column_{i + 1}"
            n, unique = numbers.get(name, 1), name
            while unique in out:
                n += 1
                unique = f"{name}_{n}"
            numbers[name] = n
            if unique != name:
                self.remarks.append(f"the name {name!r} is there more than once: {unique!r}")
            out[unique] = None
        return list(out)


def a_year(c):
    return isinstance(c, (int, str)) and bool(re.fullmatch(r"(19|20)\d\d", str(c)))


# --- from text to columns ------------------------------------------------------------------------------------------


class Tidy:
    """What becomes of the columns of a table that is read as text: found on a sample, written as code."""

    def __init__(self, frame, european):
        import pandas as pd

        self.remarks, self.lines, self.typed = [], [], {}
        found, columns = {}, {}
        for name in frame:
            if frame[name].dtype != object and not isinstance(frame[name].dtype, pd.StringDtype):
                continue  # it has a type
            given = frame[name].dropna().head(LOOKED_AT)
            columns[name] = [str(v).strip() for v in given if not isinstance(v, (int, float))]
            values = [v for v in columns[name] if v not in MISSING]
            found[name] = self._kind(name, values) if values else Numbers([]) if len(given) > len(columns[name]) else None
        comma = european or any(isinstance(f, Numbers) and f.comma == "decimal" for f in found.values())
        orders = {f.order for f in found.values() if isinstance(f, Dates)}
        others, texts = {}, []
        for name, how in found.items():
            if isinstance(how, Numbers):
                signs = how.signs(comma)
                if signs is None:
                    self.remarks.append(f"{name!r} stays text: its numbers are written in two ways that contradict each other")
                    texts.append(name)
                    continue
                decimal, thousands, guess = signs
                if guess:
                    word = "thousands" if thousands else "decimals"
                    self.remarks.append(f"{name!r}: 1{',' if ',' in how.used else '.'}234 could be read in two ways; its sign was taken to separate {word}" + (", as the file is written as in most of Europe" if comma else ""))
                others.setdefault(("numbers", decimal, thousands), []).append(name)
                self.typed[name] = "number"
            elif isinstance(how, Dates):
                day = self._day_first(name, how, orders, comma, columns[name])
                if day is None:
                    texts.append(name)
                    continue
                others.setdefault(("dates", *how.formats(day)), []).append(name)
                self.typed[name] = "date"
            else:
                texts.append(name)
        for (kind, *args), names in others.items():
            if kind == "numbers":
                decimal, thousands = args
                if decimal != "." or thousands:
                    self.remarks.append(f"numbers with decimal {decimal!r}" + (f" and thousands {' '.join(map(repr, thousands))}" if thousands else "") + f": {listed(names)}")
                rest = (f', decimal="{decimal}"' if decimal != "." else "") + (f", thousands={thousands!r}" if thousands else "")
                self.lines.append(f"for name in {names!r}:\n    df[name] = numbers(df[name]{rest})")
            else:
                self.remarks.append(f"dates written as {', '.join(args)}: {listed(names)}")
                self.lines.append(f"for name in {names!r}:\n    df[name] = dates(df[name], {', '.join(map(repr, args))})")
        if texts:
            self.lines.insert(0, f"for name in {texts!r}:\n    df[name] = words(df[name])")

    def _kind(self, name, values):
        cores = [digits_of(v) for v in values]
        bad = [v for v, c in zip(values, cores) if not c]
        if len(bad) <= BAD_SHARE * len(values):
            cores = [c for c in cores if c]
            if any(re.fullmatch(r"0\d+", c) for c in cores):
                self.remarks.append(f"{name!r} stays text: it has leading zeros, as in {next(c for c in cores if re.fullmatch(r'0[0-9]+', c))}")
                return None
            if any(len(c) > 15 and c.isdigit() for c in cores):
                self.remarks.append(f"{name!r} stays text: its numbers are longer than numbers are exact")
                return None
            if not all(grouped(c) for c in cores):
                d = Dates(values)
                return d if d.share >= 1 - BAD_SHARE and d.forms else None
            d = Dates(values[:1000])
            if d.forms and d.share >= 1 - BAD_SHARE:
                return Dates(values)
            if any("%" in v for v in values):
                self.remarks.append(f"{name!r} is in percent: 12 % is 12")
            return Numbers(cores)
        d = Dates(values)
        if d.forms and d.share >= 1 - BAD_SHARE:
            return d
        return None

    def _day_first(self, name, how, orders, comma, values):
        """Whether days come first; None when it cannot be."""
        if how.order == "both":
            self.remarks.append(f"{name!r} stays text: some of its dates have the day first and some the month, so most cannot be told")
            return None
        if how.order in ("", "day", "month"):
            return how.order != "month"
        clear = orders - {"", "either", "both"}
        if len(clear) == 1:
            return clear == {"day"}
        dotted = any("." in f for f in how.forms)
        day = dotted or comma
        if not dotted:
            self.remarks.append(f"{name!r}: no date tells whether day or month is first; {'the day' if day else 'the month'} was taken" + (", as the file is written as in most of Europe" if day else ""))
        return day

    def code(self):
        """A function that does all of it."""
        body = "\n".join(self.lines) or "pass"
        return "def tidy(df):\n" + "\n".join("    " + line for line in body.splitlines()) + "\n    return df\n"


def grouped(core):
    """Whether what separates thousands stands where it can."""
    return bool(re.fullmatch(rf"\d+(?:[.,]\d*)?(?:[eE][-+]?\d+)?|[.,]\d+|\d{{1,3}}(?:[.,{SPACES}]\d{{2,3}})*[.,{SPACES}]\d{{3}}(?:[.,]\d+)?", core))


def listed(names):
    return ", ".join(map(str, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# --- files ---------------------------------------------------------------------------------------------------------


class Loader:
    """Makes tables of files, in the namespace of a context, and says what it found."""

    def __init__(self, space, say=print, memory=None, folder="/workspace"):
        self.space, self.say, self.folder = space, say, folder
        self.limit = (memory or memory_of_sandbox()) // SHARE
        self.duckdb = f"{max(100, self.limit * 4 >> 20)}MB"  # the rest goes to its temporary folder
        self.names, self.tables, self.code = set(), [], {"imports": {}, "helpers": {}}

    def load(self, path):
        """Tables of one file. Raises Unreadable."""
        full = os.path.join(self.folder, path)
        if not os.path.isfile(full):
            raise Unreadable(f"there is no file {path}")
        size = os.path.getsize(full)
        if size == 0:
            raise Unreadable(f"{path} is empty")
        with open(full, "rb") as file:
            start = file.read(4096)
        began = time.monotonic()
        if start.startswith(b"PAR1"):
            made = self._parquet(full, size)
        elif start.startswith(b"SQLite format 3\0"):
            made = self._sqlite(full, size)
        elif start.startswith(b"PK\x03\x04"):
            made = self._excel(full, size)
        elif start.startswith(b"\xd0\xcf\x11\xe0"):
            raise Unreadable(f"{path} is an Excel file of before 2007: save it as .xlsx, or as CSV")
        elif path.lower().endswith((".json", ".jsonl", ".ndjson")) or start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"[", b"{"):
            made = self._json(full, size)
        else:
            made = self._text(full, size)
        for table in made:
            table.update(file=path, seconds=round(time.monotonic() - began, 2), bytes=size)
            self.tables.append(table)
            rows = f"{table['rows']:,} rows, {len(table['columns'])} columns"
            self.say(f"{table['name']}: {path}, {rows}" + (", stays on disk" if table["on_disk"] else ""))
            for note in table["notes"]:
                self.say(f"  {note}")
        return made

    # Each format gives code that makes the table, and remarks.

    def _text(self, path, size):
        encoding, errors, notes = encoding_of(path)
        sample = sampled(path, encoding, size, min(self.limit, 8 * PIECE))
        if "\0" in sample[:4096]:
            raise Unreadable(f"{os.path.basename(path)} is not text, and of no kind that is known: CSV, TSV, Excel, Parquet, JSON, SQLite")
        separator = separator_of(sample)
        try:
            rows = text_rows(sample, separator)
        except csv.Error as error:
            raise Unreadable(f"{os.path.basename(path)} cannot be read as a table: {error}") from None
        if not rows:
            raise Unreadable(f"{os.path.basename(path)} has no rows")
        if separator != ",":
            notes.append("separator " + {"\t": "tab"}.get(separator, separator))
        header = Header(rows[:HEAD_ROWS])
        skip = lines_above(sample, separator, header.first + header.rows)
        options = f"sep={separator!r}, header=None, skiprows={skip}, names={header.names!r}, index_col=False, dtype='str', keep_default_na=False"
        if encoding != "utf-8":
            options += f", encoding={encoding!r}"
        if errors != "strict":
            options += f", encoding_errors={errors!r}"
        import pandas as pd

        longer = f", on_bad_lines=lambda cells: cells[:{header.width}], engine='python'"
        beyond = f"some lines have more than {header.width} cells: what is beyond was left out"
        if any(len(r) > header.width for r in rows[header.first + header.rows :]):
            options, longer = options + longer, ""
            notes.append(beyond)

        body = [r + [""] * (header.width - len(r)) for r in rows[header.first + header.rows :]]
        name = self._name(path)
        self._import("pandas as pd")
        read = f"pd.read_csv({self._shown(path)!r}, {options}"
        european = separator == ";" and not any("." in v and digits_of(v) for v in body[0]) if body else False
        if size > self.limit:
            frame = pd.DataFrame([r[: header.width] for r in body], columns=header.names, dtype="str")
            tidy = Tidy(frame, european)
            del sample, rows, body, frame  # the memory is needed
            make = lambda more, said: self._large(name, f"{read.replace('{', '{{').replace('}', '}}')}{more}, chunksize={{chunk}})", tidy, notes + said + header.remarks + tidy.remarks, size)  # noqa: E731
        else:
            make = lambda more, said: self._small(name, f"{name} = {read}{more})", european, notes + said + header.remarks)  # noqa: E731
        try:
            return [make("", [])]
        except pd.errors.ParserError:
            if not longer:
                raise
            return [make(longer, [beyond])]  # such lines are where nobody looked

    def _small(self, name, read, european, notes):
        """A table that is held as a DataFrame. The rows at its end that are none are found on the whole of it."""
        self.run(read)
        whole = self.space[name]
        cut, remarks = tail_of(whole)
        code = read
        nothing = [c for c in whole if re.fullmatch(r"column_\d+", c) and not whole[c].map(lambda v: v is not None and v == v and str(v).strip() != "").any()]
        if nothing:
            code += f"\n{name} = {name}.drop(columns={nothing!r})"
            self.run(f"{name} = {name}.drop(columns={nothing!r})")
            remarks.append(f"columns without name and values left out: {listed(nothing)}")
        if cut:
            code += f"\n{name} = {name}.iloc[:-{cut}].copy()"
            self.run(f"{name} = {name}.iloc[:-{cut}].copy()")
        tidy = Tidy(self.space[name], european)
        text = self.space[name].copy(deep=False)
        before = {c: missing_before(text[c]) for c in tidy.typed}
        if tidy.lines:
            code += f"\n\n{tidy.code()}\n{name} = tidy({name})"
            self._helpers(tidy)
            self.run(tidy.code() + f"{name} = tidy({name})")
        bad = worse(text, self.space[name], before)
        return self._described(name, code, notes + remarks + tidy.remarks + bad)

    def _large(self, name, read, tidy, notes, size):
        """A table that is too large for a DataFrame: it goes to a Parquet file, some rows at a time."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = f"{name}.parquet"
        self._helpers(tidy)
        for what in ("pyarrow as pa", "pyarrow.parquet as pq", "duckdb"):
            self._import(what)
        self._needs("sql")
        self.run(tidy.code())
        make, rows, bad, began = self.space["tidy"], 0, {}, time.monotonic()
        fields = [(c, {"number": pa.float64(), "date": pa.timestamp("us")}.get(tidy.typed.get(c), pa.string())) for c in tidy_columns(read, self.space)]
        schema = pa.schema(fields)
        target = os.path.join(self.folder, file)
        size_of_chunk = max(1000, CHUNK_CELLS // max(len(fields), 1))
        chunks = eval(read.format(chunk=size_of_chunk), self.space)  # noqa: S307
        told = time.monotonic()
        with pq.ParquetWriter(target, schema) as out, contextlib.closing(chunks):
            for chunk in chunks:
                before = {c: missing_before(chunk[c]) for c in tidy.typed}
                done = make(chunk.copy())
                for column, examples in worse_values(chunk, done, before):
                    bad.setdefault(column, [0, []])
                    bad[column][0] += len(examples)
                    bad[column][1] += examples[: max(0, 3 - len(bad[column][1]))]
                out.write_table(pa.Table.from_pandas(done, schema=schema, preserve_index=False))
                rows += len(chunk)
                if time.monotonic() - told > 2:
                    told = time.monotonic()
                    at = read_share(chunks, size)
                    self.say(f"{name}: {rows:,} rows" + (f", {at:.0%}" if at else "") + f" after {told - began:.0f} s")
        self.space.setdefault("on_disk", {})[name] = target
        notes = notes + [f"{size >> 20} MB are too much for a DataFrame here: it is in {file}, and sql(\"SELECT … FROM {name}\") gives DataFrames"]
        notes += [f"{column!r}: {n} values are no {tidy.typed[column]}s and became missing, as {', '.join(map(repr, ex))}" for column, (n, ex) in bad.items()]
        code = (
            f"{tidy.code()}\n"
            f"schema = pa.schema([{', '.join(f'({c!r}, pa.{type_code(t)})' for c, t in fields)}])\n"
            f"with pq.ParquetWriter({file!r}, schema) as out:\n"
            f"    for chunk in {read.format(chunk=size_of_chunk)}:\n"
            f"        out.write_table(pa.Table.from_pandas(tidy(chunk), schema=schema, preserve_index=False))\n"
            f"on_disk[{name!r}] = {file!r}"
        )
        return self._described(name, code, notes, on_disk=True)

    def _excel(self, path, size):
        import zipfile

        if not any(n.startswith("xl/") for n in zipfile.ZipFile(path).namelist()):
            raise Unreadable(f"{os.path.basename(path)} is an archive: unpack it first")
        if size > EXCEL_MB << 20:
            raise Unreadable(f"{os.path.basename(path)} has {size >> 20} MB; Excel files are read up to {EXCEL_MB} MB: save its sheets as CSV")
        import openpyxl
        import pandas as pd

        book, formulas = openpyxl.load_workbook(path, data_only=True), openpyxl.load_workbook(path)
        self._import("openpyxl")
        self._import("pandas as pd")
        self._needs("sheet")
        self.space["openpyxl"] = openpyxl
        made = []
        pages = [p for p in book.worksheets if p.max_row and any(any(v is not None for v in r) for r in p.iter_rows(max_row=HEAD_ROWS, values_only=True))]
        hidden = [p.title for p in pages if p.sheet_state != "visible"]
        if not pages:
            raise Unreadable(f"{os.path.basename(path)} has no filled sheets")
        for page in pages[:MOST_TABLES]:
            last_row, last_column = filled_of(page)
            rows = self.space["sheet"](path, page.title, last_row, last_column)
            rows = [[v.strip() if isinstance(v, str) else v for v in row] for row in rows]
            kept = [(i, r) for i, r in enumerate(rows) if any(v not in ("", None) for v in r)]
            used = max(i for _, r in kept for i, v in enumerate(r) if v not in ("", None)) + 1
            left = min(i for _, r in kept for i, v in enumerate(r) if v not in ("", None))
            header = Header([r[left:used] for _, r in kept[:HEAD_ROWS]])
            start = kept[min(header.first + header.rows, len(kept) - 1)][0] if len(kept) > header.first + header.rows else len(rows)
            name = self._name(path, page.title if len(pages) > 1 else "")
            notes = [f"sheet {page.title!r}"] + (["it is hidden"] if page.title in hidden else []) + header.remarks
            if page.merged_cells.ranges:
                notes.append(f"{len(page.merged_cells.ranges)} areas of merged cells, filled with what they show")
            unread = sum(1 for c in cells_of(page) if isinstance(c.value, str) and c.value.startswith("#") and c.value.endswith(("!", "?", "A")))
            if unread:
                notes.append(f"{unread} cells hold an error of Excel's, such as #DIV/0!")
            uncomputed = sum(1 for c in cells_of(formulas[page.title]) if c.data_type == "f" and page.cell(c.row, c.column).value is None)
            if uncomputed:
                notes.append(f"{uncomputed} formulas were never computed, and are missing: open the file in Excel and save it")
            columns = slice(left, left + header.width)
            read = (
                f"rows = sheet({self._shown(path)!r}, {page.title!r}, {last_row}, {last_column})[{start}:]\n"
                f"{name} = pd.DataFrame([row[{columns.start}:{columns.stop}] for row in rows], columns={header.names!r}).dropna(how='all').reset_index(drop=True)\n"
                "del rows"
            )
            made.append(self._small(name, read, False, notes))
        return made

    def _json(self, path, size):
        import pandas as pd

        name = self._name(path)
        self._import("pandas as pd")
        with open(path, encoding="utf-8-sig") as file:
            try:
                first = file.read(1 << 16)
            except UnicodeDecodeError:
                raise Unreadable(f"{os.path.basename(path)} is no JSON in UTF-8") from None
        lines = [line for line in first.splitlines() if line.strip()]
        try:
            by_line = len(lines) > 1 and all(isinstance(json.loads(line), dict) for line in lines[: max(1, min(5, len(lines) - 1))])
        except ValueError:
            by_line = False
        if size > self.limit:
            return [self._large_json(name, path, size)]
        self._import("json")
        if by_line:
            read = f"with open({self._shown(path)!r}, encoding='utf-8-sig') as file:\n    records = [json.loads(line) for line in file if line.strip()]"
            notes = ["JSON, a record a line"]
        else:
            with open(path, encoding="utf-8-sig") as file:
                try:
                    whole = json.load(file)
                except ValueError as error:
                    raise Unreadable(f"{os.path.basename(path)} is no JSON: {error}") from None
            where, records = records_in(whole)
            if records is None:
                raise Unreadable(f"{os.path.basename(path)} has no list of records in it")
            read = f"with open({self._shown(path)!r}, encoding='utf-8-sig') as file:\n    records = json.load(file){where}"
            notes = ["JSON" + (f", the records of {where}" if where else "")]
        read += f"\n{name} = pd.json_normalize(records)\ndel records"
        self.run(self._imports() + read)
        frame = self.space[name]
        nested = [c for c in frame if "." in c]
        if nested:
            notes.append(f"nested fields became columns: {listed(nested)}")
        return [self._typed(name, read, notes)]

    def _typed(self, name, read, notes):
        """A table that has types: only its columns of text are looked at."""
        frame = self.space[name]
        if not all(isinstance(c, str) for c in frame):
            read += f"\n{name}.columns = [str(column) for column in {name}]"
            frame.columns = [str(column) for column in frame]
        text = [c for c in frame if str(frame[c].dtype) in ("str", "string", "object") and frame[c].dropna().map(lambda v: isinstance(v, str)).all()]
        tidy = Tidy(frame[text].astype("str"), False)
        tidy.lines = [line for line in tidy.lines if "= numbers(" in line or "= dates(" in line]
        code = read
        if tidy.lines:
            before = {c: missing_before(frame[c].astype("str")) for c in tidy.typed}
            code += f"\n\n{tidy.code()}\n{name} = tidy({name})"
            self._helpers(tidy)
            self.run(tidy.code() + f"{name} = tidy({name}.copy())")
            notes = notes + tidy.remarks + worse(frame[list(tidy.typed)].astype("str"), self.space[name], before)
        return self._described(name, code, notes)

    def _large_json(self, name, path, size):
        import duckdb

        file = f"{name}.parquet"
        self._import("duckdb")
        self._needs("sql")
        code = (
            f"with duckdb.connect(config={{'memory_limit': '{self.duckdb}', 'threads': 2, 'temp_directory': '/tmp/duckdb', 'preserve_insertion_order': False}}) as con:\n"
            f"    con.execute(\"COPY (SELECT * FROM read_json_auto('{self._shown(path).replace(chr(39), chr(39) * 2)}')) TO '{file}'\")\n"
            f"on_disk[{name!r}] = {file!r}"
        )
        try:
            self.run(self._imports() + code)
        except duckdb.Error as error:
            raise Unreadable(f"{os.path.basename(path)} cannot be read: {str(error)[:300]}") from None
        return self._described(name, code, ["JSON", f"{size >> 20} MB are too much for a DataFrame here: it is in {file}, and sql(\"SELECT … FROM {name}\") gives DataFrames"], on_disk=True)

    def _parquet(self, path, size):
        import pyarrow.parquet as pq

        try:
            meta = pq.ParquetFile(path).metadata
        except Exception as error:
            raise Unreadable(f"{os.path.basename(path)} is a damaged Parquet file: {str(error)[:200]}") from None
        name = self._name(path)
        if sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups)) > self.limit:
            self._import("duckdb")
            self._needs("sql")
            code = f"on_disk[{name!r}] = {self._shown(path)!r}"
            self.space.setdefault("on_disk", {})[name] = path
            return [self._described(name, code, [f"Parquet, too much for a DataFrame here: sql(\"SELECT … FROM {name}\") gives DataFrames"], on_disk=True)]
        self._import("pandas as pd")
        read = f"{name} = pd.read_parquet({self._shown(path)!r})"
        self.run(self._imports() + read)
        return [self._typed(name, read, ["Parquet"])]

    def _sqlite(self, path, size):
        import pandas as pd

        self._import("pandas as pd")
        self._import("sqlite3")
        with contextlib.closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as db:
            try:
                tables = [t for (t,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name")]
            except sqlite3.DatabaseError as error:
                raise Unreadable(f"{os.path.basename(path)} is a damaged SQLite file: {error}") from None
        if not tables:
            raise Unreadable(f"{os.path.basename(path)} has no tables")
        made, failed = [], []
        for table in tables[:MOST_TABLES]:
            try:
                made.append(self._sqlite_table(path, size, table, len(tables) > 1))
            except (sqlite3.Error, pd.errors.DatabaseError) as error:  # a view of what is not there, text in no UTF-8
                failed.append(f"{table!r} cannot be read: {str(error)[:200]}")
        if not made:
            raise Unreadable(f"{os.path.basename(path)}: {'; '.join(failed[:3])}")
        if len(tables) > MOST_TABLES:
            failed.append(f"only the first {MOST_TABLES} of {len(tables)} tables are loaded")
        made[0]["notes"] += failed
        return made

    def _sqlite_table(self, path, size, table, several):
        import pandas as pd

        name = self._name(path, table if several else "")
        query = f'SELECT * FROM "{table.replace(chr(34), chr(34) * 2)}"'
        call = f"pd.read_sql_query({query!r}, sqlite3.connect({self._shown(path)!r})"
        notes = [f"SQLite, table {table!r}"]
        if size <= self.limit:
            read = f"{name} = {call})"
            self.run(self._imports() + read)
            return self._typed(name, read, notes)
        with contextlib.closing(sqlite3.connect(path)) as db:
            head = pd.read_sql_query(query + " LIMIT 20000", db)
        tidy = Tidy(head.astype("str"), False)
        for column in head:
            if head[column].dtype.kind in "if":
                tidy.typed[column] = "number"
        tidy.lines = ["df = df.astype('str')", *tidy.lines]
        call = call.replace("{", "{{").replace("}", "}}")
        return self._large(name, call + ", chunksize={chunk})", tidy, notes + tidy.remarks, size)

    # What the code needs.

    def run(self, code):
        exec(compile(self._imports() + code, "<tables>", "exec"), self.space)  # noqa: S102

    def _import(self, what):
        self.code["imports"][what] = f"import {what}"

    def _imports(self):
        return "".join(line + "\n" for line in self.code["imports"].values())

    def _helpers(self, tidy):
        for helper in ("numbers", "dates", "words"):
            if any(f"= {helper}(" in line for line in tidy.lines):
                self._needs(helper)

    def _needs(self, helper):
        if helper in self.code["helpers"]:
            return
        self._import({"sheet": "openpyxl", "sql": "duckdb"}.get(helper, "pandas as pd"))
        source = inspect.getsource(globals()[helper])
        if helper == "sql":
            source = "on_disk = {}\n\n" + source.replace("DUCKDB_MB", self.duckdb)
            self.space.setdefault("on_disk", {})
        self.code["helpers"][helper] = source
        exec(compile(self._imports() + source.replace("on_disk = {}\n\n", ""), "<tables>", "exec"), self.space)  # noqa: S102

    def _name(self, path, part=""):
        stem = re.sub(r"\.(csv|tsv|txt|tab|json|jsonl|ndjson|parquet|xlsx|xlsm|db|sqlite3?)$", "", os.path.basename(path), flags=re.I)
        name = unicodedata.normalize("NFKC", (f"{stem}_{part}" if part else stem).lower())  # as Python does with names
        name = "".join(c if ("a" + c).isidentifier() else " " for c in name)
        name = "_".join(name.split()).strip("_") or "table"
        if name[0].isdigit() or keyword.iskeyword(name) or name in TAKEN or not name.isidentifier():
            name = "t_" + name
        unique = next(n for n in itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2))) if n not in self.names)
        self.names.add(unique)
        return unique

    def _shown(self, path):
        """A path as the notebook has it, which lies beside its files."""
        return os.path.relpath(path, self.folder) if path.startswith(self.folder + "/") else path

    def _described(self, name, code, notes, on_disk=False):
        columns, rows = (on_disk_columns if on_disk else frame_columns)(self.space, name)
        if len(notes) > MOST_NOTES:
            notes = [*notes[: MOST_NOTES - 1], f"and {len(notes) - MOST_NOTES + 1} more notes like these"]
        return {"name": name, "rows": rows, "columns": columns, "notes": notes, "code": code, "on_disk": on_disk}

    def source(self):
        """The code of all that was loaded, as a cell."""
        helpers = "\n\n".join(self.code["helpers"].values())
        parts = [self._imports().strip()] + ([helpers.strip()] if helpers else []) + [t["code"] for t in self.tables]
        return "\n\n".join(parts)


def cells_of(page):
    """The cells that a sheet of openpyxl has. It makes one of each that is asked for, up to a stray one in the last row."""
    return list(page._cells.values())


def filled_of(page):
    """The last row and the last column of a sheet that show something."""
    filled = [(c.row, c.column) for c in cells_of(page) if c.value is not None]
    filled += [(area.max_row, area.max_col) for area in page.merged_cells.ranges if page.cell(area.min_row, area.min_col).value is not None]
    return max(row for row, _ in filled), max(column for _, column in filled)


def memory_of_sandbox():
    with open("/proc/meminfo") as info:
        return int(info.readline().split()[1]) << 10


def sampled(path, encoding, size, whole):
    """A text of up to `whole` bytes, or its start, and lines from all over it."""
    with open(path, "rb") as file:
        if size <= whole:
            return file.read().decode(encoding, "replace")
        step = 2 if encoding.startswith(("utf-16", "utf-32")) else 1
        raw = file.read(PIECE)
        text = raw[: raw.rfind(b"\n") + 1] if step == 1 else raw
        parts = [text.decode(encoding, "replace")]
        if step == 1:
            for i in range(1, PLACES + 1):
                file.seek(PIECE + (size - 2 * PIECE) * i // PLACES)
                file.readline()
                raw = file.read(PIECE // 16)
                raw = raw[: raw.rfind(b"\n") + 1]
                if raw.count(b'"') % 2 == 0:  # not in the middle of a quoted line break
                    parts.append(raw.decode(encoding, "replace"))
        return "".join(parts)


def lines_above(text, separator, rows):
    """How many lines of a text the first so many filled rows take."""
    if rows == 0:
        return 0
    reader = csv_reader(text, separator)
    for row in reader:
        if any(cell.strip() for cell in row):
            rows -= 1
            if rows == 0:
                return reader.line_num
    return reader.line_num


def tail_of(frame):
    """How many rows at the end are no records: a total, a source, and what is said of them."""
    cut, said = 0, []
    for i in range(len(frame) - 1, max(len(frame) - 6, 0), -1):
        row = [str(v).strip() for v in frame.iloc[i] if v is not None and v == v and str(v).strip()]
        if not row:
            cut += 1
        elif len(row) == 1 and frame.shape[1] > 2 and not looks_typed(row[0]):
            cut = len(frame) - i
            said.append(f"its end left out: {row[0][:150]}")
        elif TOTAL.match(row[0]) and any(digits_of(v) for v in row[1:]):
            cut = len(frame) - i
            said.append(f"its total left out: {', '.join(row)[:150]}")
        else:
            break
    return cut, said


def missing_before(column):
    return column.isna() | column.astype("str").str.strip().isin(MISSING)


def worse_values(before, after, missing):
    """Of each column the values that were there and are missing now."""
    for column, was in missing.items():
        lost = before[column][(~was & after[column].isna()).to_numpy()]
        if len(lost):
            yield column, [str(v)[:40] for v in lost]


def worse(before, after, missing):
    return [f"{column!r}: {len(ex)} value{'s' if len(ex) > 1 else ''} could not be read and became missing, as {', '.join(map(repr, ex[:3]))}" for column, ex in worse_values(before, after, missing)]


def read_share(chunks, size):
    handles = getattr(chunks, "handles", None)
    try:
        raw = handles.handle.buffer if hasattr(handles.handle, "buffer") else handles.handle
        return min(raw.tell() / size, 1)
    except (AttributeError, OSError, ValueError):
        return 0


def tidy_columns(read, space):
    with contextlib.closing(eval(read.format(chunk=1000), space)) as chunks:  # noqa: S307
        return list(next(iter(chunks)).columns)


def type_code(t):
    return {"double": "float64()", "string": "string()"}.get(str(t), "timestamp('us')")


def records_in(value, depth=3):
    """Where in a JSON value its records are, and they: the longest list of objects."""
    if isinstance(value, list):
        return ("", value) if value and all(isinstance(v, dict) for v in value[:100]) else ("", None)
    best = ("", None)
    if isinstance(value, dict) and depth:
        for key, inner in value.items():
            where, found = records_in(inner, depth - 1)
            if found is not None and (best[1] is None or len(found) > len(best[1])):
                best = (f"[{key!r}]{where}", found)
    return best


def frame_columns(space, name):
    frame = space[name]
    out = []
    for column in list(frame)[:SHOWN_COLUMNS]:
        values = frame[column]
        out.append({"name": str(column), "type": str(values.dtype), "missing": int(values.isna().sum()), "about": about(values)})
    out += [{"name": str(c), "type": str(frame[c].dtype), "missing": 0, "about": ""} for c in list(frame)[SHOWN_COLUMNS:500]]
    return out, len(frame)


def about(values):
    """A few words of a column: its range, or its most frequent values."""
    values = values.dropna()
    if not len(values):
        return "nothing"
    if values.dtype.kind in "iufM":
        low, high = values.min(), values.max()
        return f"{short_value(low)} … {short_value(high)}"
    try:
        different = values.nunique()
        common = [short_value(v) for v in values.value_counts().index[:4]]
    except TypeError:
        return f"such as {short_value(values.iloc[0])}"
    return f"{different:,} different: " + ", ".join(common) + (", …" if different > 4 else "")


def short_value(value):
    text = str(value)
    text = text.removesuffix(" 00:00:00")
    return " ".join(text[:40].split()) + ("…" if len(text) > 40 else "")


def on_disk_columns(space, name):
    rows = int(space["sql"](f'SELECT count(*) AS n FROM "{name}"')["n"][0])
    summary = space["sql"](f'SUMMARIZE "{name}"')
    out = []
    for row in summary.to_dict("records")[:500]:
        few = f", about {int(row['approx_unique']):,} different" if row["column_type"] == "VARCHAR" else ""
        out.append({"name": row["column_name"], "type": row["column_type"].lower(), "missing": round(float(row["null_percentage"]) * rows / 100), "about": f"{short_value(row['min'])} … {short_value(row['max'])}{few}"})
    return out, rows


def load(shell, paths):
    """Loads files into a context's variables, and publishes what came of it."""
    loader, failed = Loader(shell.user_ns), []
    for path in paths:
        try:
            loader.load(path)
        except Unreadable as error:
            failed.append({"file": path, "error": str(error)})
        except MemoryError:
            failed.append({"file": path, "error": f"{path} takes more memory than the sandbox has: give it more (memory_mb)"})
        except Exception as error:  # of a reader that was given nonsense; whoever asked is told
            failed.append({"file": path, "error": f"{path} cannot be read: {type(error).__name__}: {str(error)[:300]}"})
    for entry in failed:
        print(entry["error"])
    shell.display_pub.publish({TABLES: json.dumps({"tables": loader.tables, "failed": failed, "code": loader.source()}, default=str)}, {})
