"""What becomes of the columns of a table that is read as text."""

import re

import pandas as pd

from .cells import MISSING, listed
from .dates import BAD_SHARE, Dates
from .numbers import Numbers, currencies, digits_of, grouped, unlike_numbers

LOOKED_AT = 200_000  # rows that decide how a column is written
DATE_NAME = re.compile(r"(?:^|[^a-z])date|datum|fecha|(?:^|[^a-z])dato(?:$|[^a-z])|дата|日付|日期|buchungstag|valuta", re.I)


class Tidy:
    """What becomes of the columns of a table that is read as text: found on a sample, written as code.

    european: whether the file is written as where decimals have commas; lines: of the code; typed: "number" or "date", by column.
    """

    def __init__(self, frame, european):
        self.remarks, self.lines, self.typed, self.untyped = [], [], {}, False
        found, columns, logical = {}, {}, []
        for name in frame:
            given = frame[name]
            if given.dtype != object and not isinstance(given.dtype, pd.StringDtype):
                if given.dtype.kind in "if" and DATE_NAME.search(name) and serials(given):
                    found[name], columns[name] = Dates(map(str, given.dropna().head(LOOKED_AT)), serials_too=True), []
                continue  # it has a type
            given = given.tolist() if len(given) <= LOOKED_AT else given.dropna().head(LOOKED_AT).tolist()
            given = [v for v in given if v is not None and v == v and v is not pd.NaT]
            texts = [v for v in given if not isinstance(v, (int, float))]
            columns[name] = [str(v).strip() for v in texts]
            values = [v for v in columns[name] if v not in MISSING]
            if not values and len(given) and all(isinstance(v, bool) for v in given):
                logical.append(name)
                continue
            if values:
                found[name] = self._kind(name, values, [str(v).strip() for v in given] if len(given) > len(texts) else values)
                if isinstance(found[name], Numbers) and "-" in columns[name]:
                    self.remarks.append(f"{name!r}: - was taken for missing; where it stands for 0, fill it")
            else:
                found[name] = Numbers([]) if any(isinstance(v, (int, float)) and not isinstance(v, bool) for v in given) else None
        comma = self._european(found, european)
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
                day = self._day_first(name, how, orders, comma)
                if day is None:
                    texts.append(name)
                    continue
                others.setdefault(("dates", *how.formats(day)), []).append(name)
                self.typed[name] = "date"
            else:
                texts.append(name)
        if texts:
            self._line("words(columns[name])", texts, frame)
        if logical:
            self._line('columns[name].astype("boolean")', logical, frame)
        for (kind, *args), names in others.items():
            if kind == "numbers":
                self._numbers(names, *args, frame)
            else:
                self._dates(names, args, frame)

    def _line(self, what, names, frame):
        every = len(names) > 100 and names == list(frame)  # a long list is not written down once more
        self.lines.append(f"for name in {'columns' if every else repr(names)}:\n    columns[name] = {what}")

    def _numbers(self, names, decimal, thousands, frame):
        if decimal != "." or thousands:
            self.remarks.append(f"numbers with decimal {decimal!r}" + (f" and thousands {' '.join(map(repr, thousands))}" if thousands else "") + f": {listed(names)}")
        rest = (f', decimal="{decimal}"' if decimal != "." else "") + (f", thousands={thousands!r}" if thousands else "")
        self._line(f"numbers(columns[name]{rest})", names, frame)

    def _dates(self, names, formats, frame):
        self.remarks.append(f"dates written as {', '.join(formats)}: {listed(names)}")
        if any("%z" in f for f in formats):
            self.remarks.append("times with a zone became UTC" + ("; those without one were left as they are" if not all("%z" in f for f in formats) else "") + f": {listed(names)}")
        if any("%y" in f for f in formats):
            self.remarks.append(f"years of two digits: 69 to 99 were taken for 19.., 00 to 68 for 20..: {listed(names)}")
        if formats == ["serial"]:
            self.remarks.append(f"whole numbers were taken for Excel's count of days, since the name says that they are dates: {listed(names)}")
        self._line(f"dates(columns[name], {', '.join(map(repr, formats))})", names, frame)

    @staticmethod
    def _european(found, given):
        numbers = [f for f in found.values() if isinstance(f, Numbers)]
        if any(n.comma == "decimal" for n in numbers):
            return True
        return given and not any(n.point == "decimal" for n in numbers)

    def _kind(self, name, values, whole):
        """How a column is written: Numbers, Dates, or None for text.

        values: its text, without what is missing; whole: with the numbers that are among it.
        """
        cores = [digits_of(v) for v in values]
        bad = sum(not c for c in cores)
        if bad > BAD_SHARE * len(values):
            return self._dates_of(name, values, whole)
        good = [v for v, c in zip(values, cores) if c]
        cores = [c for c in cores if c]
        if why := unlike_numbers(good, cores):
            self.remarks.append(f"{name!r} stays text: {why}")
            return None
        if DATE_NAME.search(name) and all(re.fullmatch(r"[2-7][0-9]{4}", v) for v in values):
            return Dates(values, serials_too=True)
        if not all(grouped(c) for c in cores) or Dates(values[:1000]).all:
            return self._dates_of(name, values, whole)
        units = currencies(good)
        if len(units) > 1:
            self.remarks.append(f"{name!r} stays text: it has {' and '.join(u or 'numbers without' for u in units)}")
            return None
        if units == ["%"]:
            self.remarks.append(f"{name!r} is in percent: 12 % is 12")
        elif units:
            self.remarks.append(f"{name!r} is in {units[0]}, which was left out")
        return Numbers(cores)

    def _dates_of(self, name, values, whole):
        """Dates, when nearly all of the values are some; else None."""
        d = Dates(values)
        if not d.all:
            return None
        if d.fiscal:
            self.remarks.append(f"{name!r} stays text: {values[0]} may be a month, or a year that ends in the next")
            return None
        return d if whole is values else Dates(v for v in whole if v not in MISSING)

    def _day_first(self, name, how, orders, comma):
        """Whether days come first; None when it cannot be."""
        if how.order == "both":
            self.remarks.append(f"{name!r} stays text: some of its dates have the day first and some the month, so most cannot be told")
            return None
        if how.order in ("", "day", "month"):
            return how.order != "month"
        clear = orders - {"", "either", "both"}
        if len(clear) == 1:
            self.remarks.append(f"{name!r}: {'the day' if clear == {'day'} else 'the month'} was taken to be first, as in another column")
            return clear == {"day"}
        dotted = any("." in f for f in how.forms)
        day = dotted or comma
        if not dotted:
            self.remarks.append(f"{name!r}: no date tells whether day or month is first; {'the day' if day else 'the month'} was taken" + (", as the file is written as in most of Europe" if day else ""))
        return day

    def code(self):
        """A function that does all of it."""
        first = "dict(df.astype('str').items())" if self.untyped else "dict(df.items())"
        body = "\n".join([f"columns = {first}", *self.lines, "return pd.DataFrame(columns, index=df.index)"])
        return "def tidy(df):\n" + "\n".join("    " + line for line in body.splitlines()) + "\n"


def serials(column):
    """Whether all numbers of a column may be Excel's count of days, of the years from 1954 to 2119."""
    column = column.dropna()
    return len(column) > 0 and bool((column.between(20000, 80000) & (column % 1 == 0)).all())
