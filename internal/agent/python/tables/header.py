"""Where a table begins, and what its columns are called."""

import statistics

from .cells import MISSING, a_year, looks_typed

HEAD_ROWS = 60  # in which header and separator are looked for
HEADER_ROWS = 3


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
        names, remarks = distinct(names)
        self.remarks += remarks
        return names


def distinct(names):
    """Names that differ, in place of some that may be empty or there more than once, and remarks."""
    out, numbers, remarks = {}, {}, []  # files may have tens of thousands of columns
    for i, name in enumerate(names):
        name = " ".join(name.split()) or f"column_{i + 1}"
        n, unique = numbers.get(name, 1), name
        while unique in out:
            n += 1
            unique = f"{name}_{n}"
        numbers[name] = n
        if unique != name:
            remarks.append(f"the name {name!r} is there more than once: {unique!r}")
        out[unique] = None
    return list(out), remarks
