"""JSON: a list of objects, one a line, or the longest such list within."""

import itertools
import json
import os

from .cells import listed
from .errors import Unreadable
from .frames import inexact, typed


def tables(recipe, path, size):
    name, base = recipe.name(path), os.path.basename(path)
    recipe.import_("pandas as pd")
    with open(path, "rb") as file:
        encoding = json.detect_encoding(file.read(1 << 16))
    if size > recipe.limit:
        if not encoding.startswith("utf-8"):
            raise Unreadable(f"{base} is JSON in {encoding}, and too large for a DataFrame here: convert it to UTF-8 (iconv -f {encoding} -t utf-8)")
        return [_large(recipe, name, path, size)]
    recipe.import_("json")
    encoding = {"utf-8": "utf-8-sig"}.get(encoding, encoding)
    notes = [] if encoding == "utf-8-sig" else [f"encoding {encoding}"]
    opened = f"with open({recipe.shown(path)!r}, encoding={encoding!r}) as file:\n    records = "
    try:
        if by_line(path, encoding):
            read = f"{opened}[json.loads(line) for line in file if line.strip()]"
            notes.append("JSON, a record a line")
        else:
            with open(path, encoding=encoding) as file:
                where, records, others = records_in(json.load(file))
            if records is None:
                raise Unreadable(f"{base} has no list of records in it")
            read = f"{opened}json.load(file){where}"
            notes.append("JSON" + (f", the records of {where}" if where else ""))
            if others:
                notes.append(f"other lists in it were left out: {', '.join(others[:8])}")
        recipe.run(read)
    except json.JSONDecodeError as error:
        raise Unreadable(f"{base} is no JSON: {error}{_line(path, encoding)}") from None
    except UnicodeDecodeError:
        raise Unreadable(f"{base} is no JSON in UTF-8: convert it (iconv -f windows-1252 -t utf-8, or what it is written in)") from None
    except RecursionError:
        raise Unreadable(f"{base} is nested too deeply to be a table") from None
    if not all(isinstance(record, dict) for record in recipe.space["records"]):
        raise Unreadable(f"{base} is no list of records: some of its entries are no objects")
    made = f"{name} = pd.json_normalize(records)\ndel records"
    recipe.run(made)
    if lost := inexact(recipe.space[name]):
        exact = "parse_int=lambda digits: int(digits) if len(digits) < 16 else digits"
        read = read.replace("json.loads(line)", f"json.loads(line, {exact})").replace("json.load(file)", f"json.load(file, {exact})")
        recipe.run(f"{read}\n{made}")
        notes.append(f"numbers of more than 15 digits stay text, since some are missing: {listed(lost)}")
    nested = [c for c in recipe.space[name] if "." in c]
    if nested:
        notes.append(f"nested fields became columns: {listed(nested)}")
    return [typed(recipe, name, f"{read}\n{made}", notes)]


def by_line(path, encoding):
    """Whether each line is an object: the first two that are not empty are."""
    with open(path, encoding=encoding) as file:
        lines = list(itertools.islice((line for line in file if line.strip()), 2))
    try:
        return (len(lines) > 1 or path.lower().endswith((".jsonl", ".ndjson"))) and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return len(lines) > 1 and path.lower().endswith((".jsonl", ".ndjson"))


def _line(path, encoding):
    """Where in a file of a record a line the error is, which json counts within the line."""
    if not by_line(path, encoding):
        return ""
    with open(path, encoding=encoding) as file:
        for number, line in enumerate(file, 1):
            try:
                line.strip() and json.loads(line)
            except ValueError:
                return f", in line {number} of the file: {line.strip()[:80]!r}"
    return ""


def _large(recipe, name, path, size):
    """By DuckDB, to a Parquet file."""
    import duckdb

    file = f"{name}.parquet"
    recipe.import_("duckdb")
    recipe.needs("sql")
    code = (
        f"with duckdb.connect(config={{'memory_limit': '{recipe.duckdb}', 'threads': 2, 'temp_directory': '/tmp/duckdb', 'preserve_insertion_order': False}}) as con:\n"
        f"    con.execute(\"COPY (SELECT * FROM read_json_auto('{recipe.shown(path).replace(chr(39), chr(39) * 2)}')) TO '{file}'\")\n"
        f"on_disk[{name!r}] = {file!r}"
    )
    try:
        recipe.run(code)
    except duckdb.Error as error:
        raise Unreadable(f"{os.path.basename(path)} cannot be read: {str(error)[:300]}") from None
    return recipe.table(name, code, ["JSON", f"{size >> 20} MB are too much for a DataFrame here: it is in {file}, and sql(\"SELECT … FROM {name}\") gives DataFrames"], on_disk=True)


def records_in(value):
    """Where in a JSON value its records are, they, the longest list of objects, and where others are."""
    found = sorted(_lists(value, "", 3), key=lambda one: -len(one[1]))
    if not found:
        return "", None, []
    return *found[0], [f"{where} ({len(records)})" for where, records in found[1:]]


def _lists(value, where, depth):
    if isinstance(value, list):
        if value and all(isinstance(v, dict) for v in value[:100]):
            yield where, value
    elif isinstance(value, dict) and depth:
        for key, inner in value.items():
            yield from _lists(inner, f"{where}[{key!r}]", depth - 1)
