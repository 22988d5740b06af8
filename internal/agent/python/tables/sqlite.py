"""SQLite: its tables and views."""

import contextlib
import os
import sqlite3
import time

import pandas as pd

from .cells import listed
from .columns import Tidy
from .errors import Unreadable
from .frames import inexact, on_disk, typed

MOST_TABLES = 50
VIEW_SECONDS = 120  # that counting a view's rows may take: some have no end
VIEW_ROWS = 100_000_000
CELL = 100  # bytes that a cell takes while it is read


def tables(recipe, path, size, say):
    recipe.import_("pandas as pd")
    recipe.needs("database")
    with opened(recipe, path) as db:
        try:
            names = db.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name").fetchall()
        except sqlite3.DatabaseError as error:
            raise Unreadable(f"{os.path.basename(path)} is a damaged SQLite file: {error}") from None
    if not names:
        raise Unreadable(f"{os.path.basename(path)} has no tables")
    made, failed = [], []
    for table, kind in names[:MOST_TABLES]:
        try:
            made.append(_table(recipe, path, size, kind, table, len(names) > 1, say))
        except Unreadable as error:
            failed.append(str(error))
        except (sqlite3.Error, pd.errors.DatabaseError) as error:  # a view of what is not there, text in no UTF-8
            failed.append(f"{table!r} cannot be read: {str(error)[:200]}")
    if not made:
        raise Unreadable(f"{os.path.basename(path)}: {'; '.join(failed[:3])}")
    if len(names) > MOST_TABLES:
        failed.append(f"only the first {MOST_TABLES} of {len(names)} tables are loaded")
    made[0]["notes"] += failed
    return made


def _table(recipe, path, size, kind, table, several, say):
    query = f"SELECT * FROM {quoted(table)}"
    with opened(recipe, path) as db:
        columns = [c[0] for c in db.execute(f"{query} LIMIT 0").description]
        rows = _rows(db, query, kind, table)
        large = size > recipe.limit or rows * len(columns) * CELL > recipe.memory // 4
        head = pd.read_sql_query(query + " LIMIT 20000", db) if large else None
        name = recipe.name(path, table if several else "")
        call = f"pd.read_sql_query({query!r}, database({recipe.shown(path)!r})"
        notes = [f"SQLite, {kind} {table!r}"]
        if not large:
            read = f"{name} = {call})"
            recipe.run(read)
            if lost := inexact(recipe.space[name]):
                exact = ", ".join(f"CAST({quoted(c)} AS TEXT) AS {quoted(c)}" if c in lost else quoted(c) for c in columns)
                read = read.replace(repr(query), repr(f"SELECT {exact} FROM {quoted(table)}"))
                recipe.run(read)
                notes.append(f"numbers of more than 15 digits stay text, since some are missing: {listed(lost)}")
            return typed(recipe, name, read, notes)
        tidy = Tidy(head.astype("str"), False)
        for column in head:
            if head[column].dtype.kind in "if" and not head[column].abs().max() > 2**53:
                tidy.typed[column] = "number"
        tidy.untyped = True
        call = call.replace("{", "{{").replace("}", "}}")
        return on_disk(recipe, name, call + ", chunksize={chunk})", tidy, notes + tidy.remarks, size, say)


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def _rows(db, query, kind, table):
    """How many rows a table or view has. A view is computed for it, and may have no end."""
    if kind == "view":
        end = time.monotonic() + VIEW_SECONDS
        db.set_progress_handler(lambda: time.monotonic() > end, 100_000)
    try:
        (rows,) = db.execute(f"SELECT count(*) FROM ({query})").fetchone()
    except sqlite3.OperationalError as error:
        if interrupted(error) and kind == "view" and time.monotonic() > end:
            raise Unreadable(f"the view {table!r} took more than {VIEW_SECONDS} s, and was left out: ask the file for a part of it, with LIMIT or a WHERE of its own") from None
        raise
    if kind == "view" and rows > VIEW_ROWS:
        raise Unreadable(f"the view {table!r} has {rows:,} rows, and was left out: ask the file for a part of it, with LIMIT or a WHERE of its own")
    return rows


@contextlib.contextmanager
def opened(recipe, path):
    """A connection, in whose block an interrupt is one: SQLite ends what it does with an error of its own."""
    with contextlib.closing(recipe.space["database"](path)) as db:
        try:
            yield db
        except (sqlite3.Error, pd.errors.DatabaseError) as error:
            if interrupted(error):
                raise KeyboardInterrupt from None
            raise


def interrupted(error):
    return getattr(error.__cause__ or error, "sqlite_errorname", "") == "SQLITE_INTERRUPT"
