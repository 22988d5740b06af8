"""Excel: a table for each filled sheet."""

import os
import re
import zipfile
import zlib
from xml.etree.ElementTree import ParseError

from .errors import Unreadable
from .frames import held
from .header import HEAD_ROWS, Header

MOST_TABLES = 50
UNPACKED_SHARE = 8  # the XML in a file may be so much of the memory: as cells it takes some three times of it
LAST_ROW = 1_048_576
FORMULA = re.compile(rb"<(?:\w+:)?f[ />]")
ERRORS = re.compile(r"#[A-Z0-9/ ]+[!?]|#N/A")


def tables(recipe, path):
    _check(recipe, path)
    import openpyxl

    recipe.import_("openpyxl", "pandas as pd")
    recipe.needs("sheet")
    try:
        with open(path, "rb") as file:  # openpyxl goes by the name of one that it opens itself
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            formulas = openpyxl.load_workbook(file, read_only=True)
            with zipfile.ZipFile(file) as archive:
                pages = [Page(page, formulas[page.title] if FORMULA.search(archive.read(page._worksheet_path)) else None) for page in book.worksheets]
            pages = [page for page in pages if page.filled]
    except (zipfile.BadZipFile, ParseError, EOFError, KeyError, IndexError, TypeError, ValueError, zlib.error) as error:
        raise Unreadable(f"{os.path.basename(path)} is a damaged Excel file ({str(error)[:200]}): open it in Excel and save it again, or as CSV") from None
    if not pages:
        raise Unreadable(f"{os.path.basename(path)} has no filled sheets")
    made = [_table(recipe, path, page, len(pages) > 1) for page in pages[:MOST_TABLES]]
    if len(pages) > MOST_TABLES:
        made[0]["notes"].append(f"only the first {MOST_TABLES} of {len(pages)} sheets are loaded")
    return made


def _check(recipe, path):
    """Looks at what the file says of itself before it is unpacked: zipfile reads no more than that of it."""
    name = os.path.basename(path)
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
            names = [part.filename for part in parts]
    except zipfile.BadZipFile as error:
        raise Unreadable(f"{name} is a damaged Excel file, or archive: {error}") from None
    if "xl/workbook.bin" in names:
        raise Unreadable(f"{name} is an Excel file in binary form: save it as .xlsx, or as CSV")
    if not any(n.startswith("xl/") for n in names):
        if "content.xml" in names:
            raise Unreadable(f"{name} is an OpenDocument file: save it as .xlsx, or as CSV")
        raise Unreadable(f"{name} is an archive: unpack it first")
    unpacked, most = sum(part.file_size for part in parts if part.filename.endswith((".xml", ".rels"))), recipe.memory // UNPACKED_SHARE
    if unpacked > most:
        raise Unreadable(f"{name} unpacks to {unpacked >> 20:,} MB; with {recipe.memory >> 20:,} MB of memory, Excel files are read up to {most >> 20:,}: save its sheets as CSV, or give the sandbox more (memory_mb)")


class Page:
    """What there is to know of a sheet before its cells are read: it may say that it has more than it has."""

    def __init__(self, page, formulas):
        self.title, self.hidden = page.title, page.sheet_state != "visible"
        self.last_row = self.last_column = self.errors = self.uncomputed = 0
        page.reset_dimensions()
        for number, row in enumerate(page.iter_rows(max_row=LAST_ROW, values_only=True), 1):
            for column, value in enumerate(row, 1):
                if value is not None:
                    self.last_row, self.last_column = number, max(self.last_column, column)
                    self.errors += isinstance(value, str) and bool(ERRORS.fullmatch(value))
        if formulas is not None:
            formulas.reset_dimensions()
            for row, same in zip(page.iter_rows(max_row=LAST_ROW, values_only=True), formulas.iter_rows(max_row=LAST_ROW)):
                self.uncomputed += sum(cell.data_type == "f" and value is None for value, cell in zip(row, same))
        self.filled = self.last_row > 0

    def notes(self, merged):
        notes = [f"sheet {self.title!r}"] + (["it is hidden"] if self.hidden else [])
        whole = [area for area in merged if self._covered_by(area)]
        if len(merged) > len(whole):
            notes.append(f"{len(merged) - len(whole)} areas of merged cells, filled with what they show")
        if whole:
            notes.append(f"the sheet is one merged cell, {whole[0]}, of which Excel shows the first value: its cells were taken as they lie in the file")
        if self.errors:
            notes.append(f"{self.errors} cells hold an error of Excel's, such as #DIV/0!")
        if self.uncomputed:
            notes.append(f"{self.uncomputed} formulas were never computed, and are missing: open the file in Excel and save it")
        return notes


    def _covered_by(self, area):
        from openpyxl.utils import range_boundaries

        left, top, right, bottom = range_boundaries(area)
        return left == top == 1 and right >= self.last_column and bottom >= self.last_row


def _table(recipe, path, page, several):
    read = f"rows, merged = sheet({recipe.shown(path)!r}, {page.title!r}, {page.last_row}, {page.last_column})"
    recipe.run(read)
    rows, merged = recipe.space["rows"], recipe.space["merged"]
    kept = [(i, [v.strip() if isinstance(v, str) else v for v in row]) for i, row in enumerate(rows)]
    kept = [(i, row) for i, row in kept if any(v not in ("", None) for v in row)]
    used = max(i for _, row in kept for i, v in enumerate(row) if v not in ("", None)) + 1
    left = min(i for _, row in kept for i, v in enumerate(row) if v not in ("", None))
    header = Header([row[left:used] for _, row in kept[:HEAD_ROWS]])
    begin = header.first + header.rows
    start = kept[begin][0] if len(kept) > begin else len(rows)
    name = recipe.name(path, page.title if several else "")
    notes = page.notes(merged) + header.remarks
    gaps = [at for (before, _), (at, _) in zip(kept[begin:], kept[begin + 1 :]) if at - before > 1]
    if gaps:
        notes.append(f"empty rows within were left out; if another table begins in row {' or '.join(str(at + 1) for at in gaps[:3])}, its rows are among these")
    frame = f"pd.DataFrame([row[{left}:{left + header.width}] for row in rows], columns={header.names!r}).dropna(how='all').reset_index(drop=True)"
    return held(recipe, name, f"rows = rows[{start}:]\n{name} = {frame}\ndel rows, merged", False, notes, before=read + "\n")
