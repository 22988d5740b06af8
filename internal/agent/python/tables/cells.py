"""What single cells are."""

import re

from .dates import date_format
from .numbers import digits_of

# Missing in columns of numbers and dates. In columns of words fewer are, see words(): NA is a country, too.
MISSING = ["", "-", "--", "—", "–", ".", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None", "none", "#N/A", "#NA", "#DIV/0!", "#VALUE!", "#REF!", "k.A.", "k. A.", "n.v."]


def looks_typed(value):
    """Whether a cell is a number or a date."""
    return not isinstance(value, str) and value is not None or isinstance(value, str) and bool(digits_of(value) or date_format(value))


def a_year(c):
    return isinstance(c, (int, str)) and bool(re.fullmatch(r"(19|20)\d\d", str(c)))


def listed(names):
    return ", ".join(map(str, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
