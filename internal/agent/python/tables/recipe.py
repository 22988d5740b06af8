"""The code that makes the tables, as it is found out piece by piece and run at once, and the variables that it makes."""

import builtins
import inspect
import itertools
import keyword
import os
import re
import unicodedata

from . import helpers
from .describe import frame_columns, on_disk_columns
from .numbers import MONEY

SHARE = 16  # a file of more than this part of the memory stays on disk
MOST_NOTES = 50  # of a table

# Names that the code for files has a use for, and those of Python's own.
TAKEN = {*dir(builtins), "pd", "pa", "pq", "json", "sqlite3", "openpyxl", "duckdb", "sql", "numbers", "dates", "words", "sheet", "database", "tidy", "records", "rows", "merged", "file", "schema", "out", "chunk", "on_disk", "np", "plt", "math", "sys", "os", "re", "zipfile", "urllib", "datetime", "collections", "pandas"}

# Words that DuckDB has reserved: sql() asks tables by their names.
RESERVED = """
all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create default
deferrable desc describe distinct do else end except false fetch for foreign from group having in initially
intersect into lambda lateral leading limit not null offset on only or order pivot pivot_longer pivot_wider placing
primary qualify references returning select show some summarize symmetric table then to trailing true union unique
unpivot using variadic when where window with
""".split()

# What the functions of helpers.py need, beside pandas.
IMPORTS = {"sheet": ["openpyxl", "re", "zipfile"], "sql": ["duckdb"], "database": ["sqlite3", "urllib.parse"]}


class Recipe:
    """Code that is run in a context's namespace, and kept for the notebook.

    memory: bytes that the sandbox has; folder: where the notebook will lie, and its files with it.
    """

    def __init__(self, space, memory, folder):
        self.space, self.folder, self.memory = space, folder, memory
        self.limit = memory // SHARE  # bytes
        self.duckdb = f"{max(100, self.limit * 4 >> 20)}MB"  # the rest goes to its temporary folder
        self.names, self.imports, self.helpers = set(), {}, {}

    def run(self, code):
        exec(compile(self.import_lines() + code, "<tables>", "exec"), self.space)  # noqa: S102

    def import_(self, *what):
        for one in what:
            self.imports[one] = f"import {one}"

    def import_lines(self):
        return "".join(line + "\n" for line in self.imports.values())

    def needs(self, helper):
        """Has the code begin with a function of helpers.py."""
        if helper in self.helpers:
            return
        self.import_(*IMPORTS.get(helper, ["pandas as pd"]))
        source = inspect.getsource(getattr(helpers, helper)).replace('"MONEY?"', f'r"{MONEY}?"')
        if helper == "sql":
            source = "on_disk = {}\n\n" + source.replace("DUCKDB_MB", self.duckdb)
            self.space.setdefault("on_disk", {})
        self.helpers[helper] = source
        self.run(source.replace("on_disk = {}\n\n", ""))

    def needs_of(self, tidy):
        """The functions that the code for columns calls."""
        for helper in ("numbers", "dates", "words"):
            if any(f"= {helper}(" in line for line in tidy.lines):
                self.needs(helper)

    def name(self, path, part=""):
        """A variable for a file, or a part of one, that nothing else has."""
        stem = re.sub(r"\.(csv|tsv|txt|tab|json|jsonl|ndjson|parquet|xlsx|xlsm|db|sqlite3?)$", "", os.path.basename(path), flags=re.I)
        name = unicodedata.normalize("NFKC", (f"{stem}_{part}" if part else stem).lower())  # as Python does with names
        name = "".join(c if ("a" + c).isidentifier() else " " for c in name)
        name = "_".join(name.split()).strip("_") or "table"
        if name[0].isdigit() or keyword.iskeyword(name) or name in TAKEN or name in RESERVED or not name.isidentifier():
            name = "t_" + name
        unique = next(n for n in itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2))) if n not in self.names)
        self.names.add(unique)
        return unique

    def shown(self, path):
        """A path as the notebook has it, which lies beside its files."""
        return os.path.relpath(path, self.folder) if path.startswith(self.folder + "/") else path

    def table(self, name, code, notes, on_disk=False):
        """What is said of a table that the code has made. "width" is how many columns it has, of which not all are described."""
        columns, width, rows = (on_disk_columns if on_disk else frame_columns)(self.space, name)
        if width > len(columns):
            notes = [f"it has {width:,} columns, of which the first {len(columns)} are described", *notes]
        if len(notes) > MOST_NOTES:
            notes = [*notes[: MOST_NOTES - 1], f"and {len(notes) - MOST_NOTES + 1} more notes like these"]
        return {"name": name, "rows": rows, "columns": columns, "notes": notes, "code": code, "on_disk": on_disk, "width": width}

    def source(self, tables):
        """The code of all that was loaded, as a cell."""
        helpers = "\n\n".join(self.helpers.values())
        parts = [self.import_lines().strip()] + ([helpers.strip()] if helpers else []) + [t["code"] for t in tables]
        return "\n\n".join(parts)
