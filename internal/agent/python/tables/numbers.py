"""How the numbers of a column are written."""

import re

# Signs and codes of currencies, and %: what may stand beside a number without being a part of it.
MONEY = r"(?:€|(?:R|US|C|A)?\$|£|¥|₹|₽|₺|₩|₪|₴|EUR|USD|GBP|CHF|JPY|CNY|INR|RUB|TRY|PLN|CZK|HUF|SEK|NOK|DKK|BRL|CAD|AUD|ZAR|kr\.?|zł|Kč|Ft|руб\.?|Fr\.?|%)"
SPACES = "'’ \u00a0\u202f\u2009\u2007"
NUMBER = re.compile(rf"^\(?\s*[-+\u2212\u2013]?\s*{MONEY}?\s*[-+\u2212\u2013]?\s*((?:[0-9][0-9.,{SPACES}]*)?[0-9](?:[eE][-+]?[0-9]+)?|[.,][0-9]+)\s*{MONEY}?\s*\)?-?$")
UNIT = re.compile(MONEY)
ALIKE = {"€": "EUR", "$": "USD", "US$": "USD", "£": "GBP", "₹": "INR", "₽": "RUB", "руб": "RUB", "руб.": "RUB", "zł": "PLN", "Kč": "CZK", "Ft": "HUF", "R$": "BRL", "C$": "CAD", "A$": "AUD", "Fr": "CHF", "Fr.": "CHF", "kr.": "kr"}


def digits_of(value):
    """What of a value are its digits and their separators; None when it is no number."""
    if len(value) > 40:
        return None
    m = NUMBER.match(value)
    return m and m[1]


def grouped(core):
    """Whether what separates thousands stands where it can."""
    return bool(re.fullmatch(rf"[0-9]+(?:[.,][0-9]*)?(?:[eE][-+]?[0-9]+)?|[.,][0-9]+|[0-9]{{1,3}}(?:[.,{SPACES}][0-9]{{2,3}})*[.,{SPACES}][0-9]{{3}}(?:[.,][0-9]+)?", core))


def unlike_numbers(values, cores):
    """Why what looks like numbers is none: identifiers that would lose digits or their meaning. None when nothing speaks against it."""
    zeros = next((c for c in cores if re.fullmatch(rf"0[{SPACES}]?[0-9][0-9{SPACES}]*", c)), None)
    if zeros:
        return f"it has leading zeros, as in {zeros}"
    if any(len(c) > 15 and c.isdigit() for c in cores):
        return "its numbers are longer than numbers are exact"
    if code := next((c for c in cores if re.fullmatch(r"[0-9]+[eE][0-9]+", c)), None):  # programs write 1.2e+05, or 1e+05
        return f"{code} may be a code, or a number with an exponent"
    if all(v.startswith("+") for v in values) and any(len(re.sub(r"[^0-9]", "", c)) > 7 for c in cores):
        return f"its values look like telephone numbers, as in {values[0]}"
    if any(v.startswith("+") and re.search(rf"[{SPACES}]", c) and len(re.sub(r"[^0-9]", "", c)) > 7 and not re.search("[.,]", c) for v, c in zip(values, cores)):
        return "some of its values look like telephone numbers, since they have a + and spaces"
    if all(re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){3}", c) and all(int(part) < 256 for part in c.split(".")) for c in cores):
        return f"its values look like addresses, as in {cores[0]}"
    return None


def currencies(values):
    """What stands beside numbers: currencies, the percent sign, and "" for percentages without one, unless they are 0."""
    found = {}
    for value in values:
        if not value.strip("0123456789.,-+() '"):
            if value.strip("0.,-+() '"):
                found[""] = True
        elif unit := UNIT.search(value):
            found[ALIKE.get(unit[0], unit[0])] = True
    if "%" not in found:  # a currency is often written only once
        found.pop("", None)
    return sorted(found, reverse=True)


class Numbers:
    """How the numbers of a column are written."""

    def __init__(self, cores):
        self.spaces = {c for core in cores for c in core if c in SPACES}
        self.point, self.comma = self._role(cores, ".", ","), self._role(cores, ",", ".")
        self.used = {s for core in cores for s in ".," if s in core}

    @staticmethod
    def _role(cores, sign, other):
        """"decimal", "thousands", "either", "" when it is not used, or "both"."""
        roles = set()
        for core in cores:
            if sign not in core:
                continue
            parts = core.split(sign)
            if other in core:
                roles.add("decimal" if core.rindex(sign) > core.rindex(other) else "thousands")
            elif len(parts) > 2:
                roles.add("thousands")
            elif len(parts[1]) != 3 or len(re.sub(rf"[{SPACES}]", "", parts[0])) > 3 or parts[0].startswith("0") or parts[0] == "":
                roles.add("decimal")
            else:
                roles.add("either")
        if {"decimal", "thousands"} <= roles:
            return "both"
        return next((r for r in ("decimal", "thousands", "either") if r in roles), "")

    def signs(self, comma_is_decimal):
        """Decimal sign, thousands, whether that is a guess; None when they contradict each other."""
        point, comma = self.point, self.comma
        if "both" in (point, comma) or point == comma == "decimal" or point == comma == "thousands":
            return None
        guess = False
        if comma == "either":
            guess = point != "decimal"
            comma = "thousands" if point == "decimal" else "decimal" if point == "thousands" or comma_is_decimal else "thousands"
        if point == "either":
            guess = comma != "decimal" and comma_is_decimal
            point = "thousands" if comma == "decimal" or (comma_is_decimal and comma != "thousands") else "decimal"
        decimal = "," if comma == "decimal" or point == "thousands" else "."
        thousands = "".join(sorted(self.spaces)) + ("." if point == "thousands" else "") + ("," if comma == "thousands" else "")
        return decimal, thousands, guess
