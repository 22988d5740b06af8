"""What is said of a table's columns."""

SHOWN_COLUMNS = 60  # in detail
DESCRIBED = 200


def frame_columns(space, name):
    """The first 200 columns of a DataFrame, how many there are, and its rows."""
    frame = space[name]
    out = []
    for column in list(frame)[:SHOWN_COLUMNS]:
        values = frame[column]
        out.append({"name": str(column), "type": str(values.dtype), "missing": int(values.isna().sum()), "about": about(values)})
    out += [{"name": str(c), "type": str(frame[c].dtype), "missing": 0, "about": ""} for c in list(frame)[SHOWN_COLUMNS:DESCRIBED]]
    return out, frame.shape[1], len(frame)


def on_disk_columns(space, name):
    """The same of a table on disk."""
    rows = int(space["sql"](f'SELECT count(*) AS n FROM "{name}"')["n"][0])
    names = list(space["sql"](f'DESCRIBE "{name}"')["column_name"])
    shown = ", ".join('"' + column.replace('"', '""') + '"' for column in names[:DESCRIBED])
    summary = space["sql"](f'SUMMARIZE SELECT {shown} FROM "{name}"')
    out = []
    for row in summary.to_dict("records"):
        few = f", about {int(row['approx_unique']):,} different" if row["column_type"] == "VARCHAR" else ""
        out.append({"name": row["column_name"], "type": row["column_type"].lower(), "missing": round(float(row["null_percentage"]) * rows / 100), "about": f"{short_value(row['min'])} … {short_value(row['max'])}{few}"})
    return out, len(names), rows


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
