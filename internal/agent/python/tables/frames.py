"""From code that reads rows as text to a table with types: a DataFrame, or a Parquet file where that is too large."""

import contextlib
import os
import re
import time

import pandas as pd

from .cells import MISSING, listed, looks_typed
from .columns import Tidy
from .numbers import digits_of

CHUNK_CELLS = 250_000  # of a large file that are in memory
UNLIKE_NUMBERS = r"0[0-9]+|[0-9]{16,}"  # as ids are written
TOTAL = re.compile(r"^\W*(?:grand total|sub-?total|total|totals|sum|summe|gesamt|gesamtsumme|gesamtergebnis|totaal|totale|somme|suma|итого|合計|总计)\b", re.I)
WITHIN = rf"(?:{TOTAL.pattern}|\b(?:sub)?totals?$|\b(?:summe|ergebnis)$)"  # as Excel's subtotals are called


def held(recipe, name, read, european, notes, before="", look=None):
    """A table of text that is held as a DataFrame. The rows at its end that are none are found on the whole of it.

    before: code that was run already; look: gives remarks on the text as it was read.
    """
    code = [before + read]
    recipe.run(read)

    def more(line):
        recipe.run(line)
        code.append(line)

    frame = recipe.space[name]
    remarks = []
    if again := repeated_names(frame):
        more(f"{name} = {name}.drop(index={again!r}).reset_index(drop=True)")
        remarks.append(f"the line of names is there again in {len(again)} row{'s' if len(again) > 1 else ''}, which {'were' if len(again) > 1 else 'was'} left out")
    nothing = [c for c in frame if re.fullmatch(r"column_\d+", c) and not filled(frame[c]).any()]
    cut, said = tail_of(recipe.space[name])
    remarks += said
    if nothing:
        more(f"{name} = {name}.drop(columns={nothing!r})")
        remarks.append(f"columns without name and values left out: {listed(nothing)}")
    if cut:
        more(f"{name} = {name}.iloc[:-{cut}].copy()")
    text = recipe.space[name]
    remarks += totals_within(text)
    if look is not None:
        remarks += look(text)
    tidy = Tidy(text, european)
    remarks += tidy.remarks
    if tidy.lines:
        code.append(f"\n{tidy.code()}\n{name} = tidy({name})")
        recipe.needs_of(tidy)
        recipe.run(tidy.code() + f"{name} = tidy({name})")
        remarks += worse(text, recipe.space[name], tidy.typed)
    return recipe.table(name, "\n".join(code), notes + remarks)


def typed(recipe, name, read, notes):
    """A table that has types, and that the code has read: only its columns of text are looked at."""
    frame = recipe.space[name]
    if not all(isinstance(c, str) for c in frame):
        read += f"\n{name}.columns = [str(column) for column in {name}]"
        frame.columns = [str(column) for column in frame]
    text = [c for c in frame if str(frame[c].dtype) in ("str", "string", "object") and frame[c].dropna().map(lambda v: isinstance(v, str)).all()]
    tidy = Tidy(frame[text].astype("str"), False)
    tidy.lines = [line for line in tidy.lines if "= numbers(" in line or "= dates(" in line]
    if lost := inexact(frame):
        notes = [*notes, f"whole numbers of more than 15 digits lost some of them, since others are missing: {listed(lost)}"]
    notes = notes + several_kinds(frame.drop(columns=text)) + tidy.remarks
    code = read
    if tidy.lines:
        code += f"\n\n{tidy.code()}\n{name} = tidy({name})"
        recipe.needs_of(tidy)
        recipe.run(tidy.code() + f"{name} = tidy({name})")
        notes += worse(frame, recipe.space[name], tidy.typed)
    return recipe.table(name, code, notes)


def on_disk(recipe, name, read, tidy, notes, size, say):
    """A table that is too large for a DataFrame: it goes to a Parquet file, some rows at a time.

    read: an expression that gives chunks of it, with a place for {chunk}, the rows of one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = f"{name}.parquet"
    recipe.needs_of(tidy)
    recipe.import_("pyarrow as pa", "pyarrow.parquet as pq", "duckdb")
    recipe.needs("sql")
    recipe.run(tidy.code())
    make, rows, odd, began = recipe.space["tidy"], 0, {}, time.monotonic()
    fields = [(c, {"number": pa.float64(), "date": pa.timestamp("us")}.get(tidy.typed.get(c), pa.string())) for c in tidy_columns(read, recipe.space)]
    schema = pa.schema(fields)
    target = os.path.join(recipe.folder, file)
    size_of_chunk = max(CHUNK_CELLS // len(fields), min(1000, 10 * CHUNK_CELLS // len(fields)), 1)  # each has a price of its own
    chunks = eval(read.format(chunk=size_of_chunk), recipe.space)  # noqa: S307
    told = time.monotonic()
    with pq.ParquetWriter(target, schema) as out, contextlib.closing(chunks):
        for chunk in chunks:
            done = make(chunk)
            for what, found in (("bad", worse_values(chunk, done, tidy.typed)), ("ids", shortened(chunk, tidy))):
                for column, examples in found:
                    count, shown = odd.setdefault((what, column), [0, []])
                    odd[what, column] = [count + len(examples), shown + examples[: 3 - len(shown)]]
            out.write_table(pa.Table.from_pandas(done, schema=schema, preserve_index=False))
            rows += len(chunk)
            if time.monotonic() - told > 2:
                told = time.monotonic()
                at = read_share(chunks, size)
                say(f"{name}: {rows:,} rows" + (f", {at:.0%}" if at else "") + f" after {told - began:.0f} s")
    recipe.space["on_disk"][name] = target
    notes = notes + [(f"{size >> 20} MB" if size > recipe.limit else f"{rows:,} rows") + f" are too much for a DataFrame here: it is in {file}, and sql(\"SELECT … FROM {name}\") gives DataFrames"]
    if len({c.casefold() for c, _ in fields}) < len(fields):
        notes.append("some of its columns have one name, but for capital letters, which DuckDB does not tell apart: it numbers them, as they are listed")
    words = {"bad": "are no {}s and became missing", "ids": "lost leading zeros or digits, as {}s do"}
    notes += [f"{column!r}: {n:,} values {words[what].format(tidy.typed[column])}, as {', '.join(map(repr, ex))}" for (what, column), (n, ex) in odd.items()]
    code = (
        f"{tidy.code()}\n"
        f"schema = pa.schema([{', '.join(f'({c!r}, pa.{type_code(t)})' for c, t in fields)}])\n"
        f"with pq.ParquetWriter({file!r}, schema) as out:\n"
        f"    for chunk in {read.format(chunk=size_of_chunk)}:\n"
        f"        out.write_table(pa.Table.from_pandas(tidy(chunk), schema=schema, preserve_index=False))\n"
        f"on_disk[{name!r}] = {file!r}"
    )
    return recipe.table(name, code, notes, on_disk=True)


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


def filled(column):
    """Which values of a column of text, or of Excel, are something."""
    return column.notna() & (column.astype("str").str.strip() != "")


def repeated_names(frame):
    """The rows that are the line of names again, as where files were put together."""
    names = [c for c in frame if not re.fullmatch(r"column_\d+", c)][:3]
    if len(names) < 2:
        return []
    same = pd.concat([frame[c].astype("str").str.strip() == c for c in names], axis=1).all(axis=1)
    return [int(i) for i in frame.index[same]]


def totals_within(frame):
    """What is said of rows among the others that look like totals."""
    for column in list(frame)[:2]:
        if str(frame[column].dtype) not in ("str", "object"):
            continue
        text = frame[column].astype("str").str.strip()
        found = text[text.str.contains(WITHIN, case=False).fillna(False).astype(bool)]
        if 0 < len(found) <= max(1, len(text) // 3):
            return [f"{len(found)} row{'s' if len(found) > 1 else ''} of {column!r} read{'s' if len(found) == 1 else ''} like totals, and {'are' if len(found) > 1 else 'is'} still among the others: {', '.join(map(repr, found.iloc[:3]))}"]
    return []


def inexact(frame):
    """The columns of whole numbers that became floats, since some are missing, and are longer than those are exact."""
    found = []
    for column in frame:
        values = frame[column]
        if values.dtype.kind == "f" and values.isna().any() and values.abs().max() >= 2**53 and (values.dropna() % 1 == 0).all():
            found.append(column)
    return found


def several_kinds(frame):
    """What is said of columns whose values are of several kinds."""
    out = []
    for column in frame:
        if frame[column].dtype == object:
            kinds = frame[column].dropna().map(lambda v: type(v).__name__).unique()
            if len(kinds) > 1:
                out.append(f"{column!r} has values of several kinds, left as they are: {', '.join(sorted(kinds))}")
    return out


def worse_values(before, after, columns):
    """Of each of the columns the values that were there and are missing now."""
    for column in columns:
        if after[column].dtype.kind in "iu":
            continue
        missing = after[column].isna().to_numpy()
        if missing.any():
            was = before[column][missing]
            lost = was[was.notna() & ~was.astype("str").str.strip().isin(MISSING)]
            if len(lost):
                yield column, [str(v)[:40] for v in lost]


def worse(before, after, columns):
    return [f"{column!r}: {len(ex)} value{'s' if len(ex) > 1 else ''} could not be read and became missing, as {', '.join(map(repr, ex[:3]))}" for column, ex in worse_values(before, after, columns)]


def shortened(chunk, tidy):
    """Of each column of numbers the values whose digits a number does not keep."""
    for column, kind in tidy.typed.items():
        if kind != "number":
            continue
        values = chunk[column]
        if pd.api.types.is_numeric_dtype(values.dtype):
            lost = values[values.abs() > 2**53]
        else:
            text = values.astype("str").str.strip()
            lost = text[text.str.fullmatch(UNLIKE_NUMBERS).fillna(False).astype(bool)]
        if len(lost):
            yield column, [str(v) for v in lost]


def tidy_columns(read, space):
    with contextlib.closing(eval(read.format(chunk=1000), space)) as chunks:  # noqa: S307
        return list(next(iter(chunks)).columns)


def read_share(chunks, size):
    handles = getattr(chunks, "handles", None)
    try:
        raw = handles.handle.buffer if hasattr(handles.handle, "buffer") else handles.handle
        return min(raw.tell() / size, 1)
    except (AttributeError, OSError, ValueError):
        return 0


def type_code(t):
    return {"double": "float64()", "string": "string()"}.get(str(t), "timestamp('us')")
