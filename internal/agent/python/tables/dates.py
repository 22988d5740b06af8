"""How the dates of a column are written."""

import re

MONTH = r"[A-Za-z]{3,9}"
TIME = r"(?:([ T])([0-9]{1,2}:[0-9]{2})(:[0-9]{2})?(\.[0-9]+)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
SHAPES = [
    (re.compile(rf"^[0-9]{{4}}-[0-9]{{1,2}}-[0-9]{{1,2}}{TIME}$"), "%Y-%m-%d"),
    (re.compile(rf"^[0-9]{{4}}/[0-9]{{1,2}}/[0-9]{{1,2}}{TIME}$"), "%Y/%m/%d"),
    (re.compile(rf"^[0-9]{{4}}\.[0-9]{{1,2}}\.[0-9]{{1,2}}{TIME}$"), "%Y.%m.%d"),
    (re.compile(rf"^[0-9]{{1,2}}([./-])[0-9]{{1,2}}\1[0-9]{{4}}{TIME}$"), "{0}\\1{1}\\1%Y"),
    (re.compile(rf"^[0-9]{{1,2}}([./-])[0-9]{{1,2}}\1[0-9]{{2}}{TIME}$"), "{0}\\1{1}\\1%y"),
    (re.compile(rf"^[0-9]{{1,2}}([ -]){MONTH}\1[0-9]{{4}}{TIME}$"), "%d\\1%b\\1%Y"),
    (re.compile(rf"^[0-9]{{1,2}}([ -]){MONTH}\1[0-9]{{2}}{TIME}$"), "%d\\1%b\\1%y"),
    (re.compile(rf"^{MONTH} [0-9]{{1,2}}, [0-9]{{4}}{TIME}$"), "%b %d, %Y"),
    (re.compile(r"^[0-9]{4}-[0-9]{2}$"), "%Y-%m"),
    (re.compile(rf"^{MONTH} [0-9]{{4}}$"), "%b %Y"),
]
BAD_SHARE = 0.02  # of a column's values that may be no dates, or numbers, in a column of them
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()


def date_format(value):
    """The format of a date, with {0} and {1} where day and month are not told apart; None when it is none."""
    if not 6 <= len(value) <= 40:
        return None
    for shape, form in SHAPES:
        m = shape.match(value)
        if not m:
            continue
        groups = list(m.groups())
        if "\\1" in form:
            form = form.replace("\\1", groups.pop(0))
        if "%b" in form:
            month = re.search(MONTH, value)[0].lower()
            if month[:3] not in MONTHS:
                return None
            if len(month) > 3 and month != "sept":
                form = form.replace("%b", "%B")
        if groups and groups[0]:
            form += groups[0] + "%H:%M" + ("" if not groups[2] else ":%S") + ("" if not groups[3] else ".%f") + ("" if not groups[4] else "%z")
        if form.startswith("%Y") and not real(value):
            return None
        return form
    return None


def real(value):
    """Whether month and day are such, where the year comes first."""
    _, month, *rest = map(int, re.findall("[0-9]+", value)[:3])
    return 1 <= month <= 12 and all(1 <= day <= 31 for day in rest)


class Dates:
    """How the dates of a column are written."""

    def __init__(self, values, serials_too=False):
        """serials_too: values that all are Excel's counts of days are dates, too."""
        values = list(values)
        self.forms, self.serials = {}, 0
        first, second = 0, 0
        for v in values:
            form = date_format(v)
            if form is None:
                self.serials += bool(re.fullmatch(r"[2-7][0-9]{4}(\.0)?", v))
                continue
            self.forms[form] = self.forms.get(form, 0) + 1
            if "{0}" in form:
                a, b = map(int, re.findall("[0-9]+", v)[:2])
                first, second = max(first, a), max(second, b)
        self.share = (sum(self.forms.values()) + (self.serials if self.forms or serials_too else 0)) / max(len(values), 1)
        self.all = bool(self.forms) and self.share >= 1 - BAD_SHARE
        self.fiscal = list(self.forms) == ["%Y-%m"] and len(set(values)) > 1 and all((int(v[:4]) + 1) % 100 == int(v[5:]) for v in values if date_format(v))
        numeric = any("{0}" in f for f in self.forms)
        self.order = "both" if first > 12 and second > 12 else "day" if first > 12 else "month" if second > 12 else "either" if numeric else ""

    def formats(self, day_first):
        order = "%d %m" if day_first else "%m %d"
        return [f.format(*order.split()) for f in sorted(self.forms, key=self.forms.get, reverse=True)] + (["serial"] if self.serials else [])
