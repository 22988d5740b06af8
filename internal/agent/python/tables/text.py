"""Text whose cells are separated: CSV, TSV and their like."""

import csv
import io
import itertools
import os
import re
import statistics

import pandas as pd

from .columns import Tidy
from .describe import DESCRIBED
from .encodings import LINE, PIECE, encoding_of
from .errors import Unreadable
from .frames import held, on_disk
from .header import HEAD_ROWS, Header

PLACES = 32  # of a large file that are looked at, besides its start
CELL_LINES = 50  # more in a cell are told of


def tables(recipe, path, size, say):
    encoding, errors, notes = encoding_of(path)
    sample = sampled(path, encoding, size, min(recipe.limit, 8 * PIECE))
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
    body = rows[header.first + header.rows :]
    if header.width == 1 and all(re.search(r"\S[\s:^~]", row[0]) for row in body[:HEAD_ROWS]):
        notes.append("it has one column: neither , ; tab nor | separates cells in it")
    short = [i for i, row in enumerate(body, 1) if len(row) < header.width and (len(row) > 1 or i < len(body) - 4)]  # what stands below a table is told of elsewhere
    if short:
        notes.append(f"{len(short):,} lines have fewer than {header.width} cells, the first of them is row {short[0]:,}: those at their end are empty")
    name = recipe.name(path)
    recipe.import_("pandas as pd")
    remedies = [Longer(header.width, sum(len(r) > header.width for r in body)), Unclosed()]
    tidy = None
    if size > recipe.limit:
        frame = pd.DataFrame([r[: header.width] + [""] * (header.width - len(r)) for r in body], columns=header.names, dtype="str")
        tidy = Tidy(frame, separator == ";")
        del frame
    del sample, rows, body  # the memory is needed

    def make():
        taken = [r for r in remedies if r.taken]
        said = notes + [r.words for r in taken]
        read = f"pd.read_csv({recipe.shown(path)!r}, {options}{''.join(r.option for r in taken)}"
        if taken:
            read += ", engine='python'"
        if tidy is not None:
            read = read.replace("{", "{{").replace("}", "}}")
            return on_disk(recipe, name, read + ", chunksize={chunk})", tidy, said + header.remarks + tidy.remarks, size, say)
        return held(recipe, name, f"{name} = {read})", separator == ";", said + header.remarks, look=long_cells)

    while True:
        try:
            return [make()]
        except pd.errors.ParserError as error:  # of lines where nobody looked
            remedy = next((r for r in remedies if not r.taken and r.mends(str(error))), None)
            if remedy is None:
                raise Unreadable(f"{os.path.basename(path)} cannot be read as a table: {str(error)[:200]}") from None
            remedy.taken = True


class Longer:
    """For lines that have more cells than there are columns."""

    def __init__(self, width, seen):
        self.taken = seen > 0
        self.option = f", on_bad_lines=lambda cells: cells[:{width}]"
        self.words = f"some lines have more than {width} cells: what is beyond was left out" + (f" ({seen:,} among those that were looked at)" if seen else "")

    def mends(self, error):
        return "Expected" in error and "saw" in error


class Unclosed:
    """For a quotation mark that is never closed, as in tables that have no quoting."""

    taken, option = False, ", quoting=3"
    words = "a quotation mark in it is never closed, so all of them were taken for text"

    def mends(self, error):
        return "EOF inside string" in error or "unexpected end of data" in error or "end of data" in error


def long_cells(frame):
    """What is said of cells that have many lines."""
    said = []
    for column in list(frame)[:DESCRIBED]:
        lines = frame[column].str.count("\n").max()
        if lines > CELL_LINES:
            said.append(f"a cell of {column!r} has {int(lines):,} lines: a quotation mark may be missing, and rows with it")
    return said


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
                file.seek(PIECE + max(size - 2 * PIECE, 0) * i // PLACES)
                file.readline(LINE)
                raw = file.read(PIECE // 16)
                raw = raw[: raw.rfind(b"\n") + 1]
                if raw.count(b'"') % 2 == 0:  # not in the middle of a quoted line break
                    parts.append(raw.decode(encoding, "replace"))
        return "".join(parts)


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
