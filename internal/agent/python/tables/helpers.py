"""The functions that the code for a file is written with.

They are copied into the notebook as they stand here: each uses only pandas, or what recipe.py imports for it, by the names
that the notebook has.
"""
# ruff: noqa: F821


def numbers(column, decimal=".", thousands=""):
    """Numbers as people write them: 1.234,50 €, (12), 7-, 3 %."""
    if decimal == "." and not thousands and column.dtype != object:
        try:
            return pd.to_numeric(column)  # most columns are plain, and a table may have tens of thousands
        except ValueError:
            pass
    text = column.astype("str").str.strip()
    for sign in thousands:
        text = text.str.replace(sign, "", regex=False)
    if decimal != ".":
        text = text.str.replace(decimal, ".", regex=False)
    values = pd.to_numeric(text, errors="coerce")
    rest = text[values.isna() & text.notna()]
    if len(rest):
        money = "MONEY?"
        parts = rest.str.replace("[\u2212\u2013]", "-", regex=True).str.extract(rf"^([-+(\s]*){money}([-+\s]*)(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*{money}([\s)-]*)$")
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
    missing = text.isin(["", "N/A", "n/a", "#N/A", "NaN", "NULL", "null"])
    return text.mask(missing) if missing.any() else text


def dates(column, *formats):
    """Dates that are written in several ways; "serial" is Excel's count of days."""
    text, out = column.astype("str").str.strip(), pd.Series(pd.NaT, index=column.index, dtype="datetime64[us]")
    if any("%b" in format for format in formats):
        text = text.str.replace(r"\bSept\b", "Sep", regex=True)
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
    """The rows of a sheet as far as it is filled, and its merged areas, whose empty cells hold what they show."""
    with open(path, "rb") as file:
        page = openpyxl.load_workbook(file, read_only=True, data_only=True)[name]
        rows = [list(row) for row in page.iter_rows(max_row=last_row, max_col=last_column, values_only=True)]
        with zipfile.ZipFile(file) as archive:
            xml = archive.read(page._worksheet_path)
    merged = []
    for area in re.findall(rb"""<(?:\w+:)?mergeCell\s[^>]*?ref=["']([A-Z]+[0-9]+:[A-Z]+[0-9]+)""", xml[xml.rfind(b"/sheetData>") :]):
        left, top, right, bottom = openpyxl.utils.range_boundaries(area.decode())
        if top > last_row or left > last_column:
            continue
        merged.append(area.decode())
        if top == left == 1 and bottom >= last_row and right >= last_column:
            continue  # it labels nothing
        bottom, right = min(bottom, last_row), min(right, last_column)
        shown = rows[top - 1][left - 1]
        for row in rows[top - 1 : bottom]:
            row[left - 1 : right] = [shown if value is None else value for value in row[left - 1 : right]]
    return rows, merged


def sql(query):
    """Asks the tables that stay on disk, by their names, and gives a DataFrame."""
    with duckdb.connect(config={"memory_limit": "DUCKDB_MB", "threads": 2, "temp_directory": "/tmp/duckdb"}) as con:
        for name, file in on_disk.items():
            con.from_parquet(file).create_view(name)
        return con.sql(query).df()


def database(path):
    """A connection to read from. Its handler lets Python hear of interrupts, which SQLite by itself does not."""
    db = sqlite3.connect(f"file:{urllib.parse.quote(path)}?mode=ro", uri=True)
    db.set_progress_handler(lambda: None, 100_000)
    return db
