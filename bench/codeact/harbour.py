"""Calculations of trade: what goods cost in the harbours of a made-up coast, with rates, duties and freight that have to be looked up."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from .pack import Ask, Family, Task, call, money

# --- the tools ------------------------------------------------------------------------------------------------------


def price(good: str, harbour: str) -> float:
    """What a tonne of a good costs in a harbour, in the harbour's own currency.

    Args:
        good: such as wool.
        harbour: such as Brae.
    """
    return PRICES[harbour][good]


def harbours(good: str) -> list[str]:
    """The harbours where a good is traded.

    Args:
        good: such as wool.
    """
    return [harbour for harbour, goods in PRICES.items() if good in goods]


def currency(harbour: str) -> str:
    """The currency of a harbour.

    Args:
        harbour: such as Brae.
    """
    return CURRENCIES[harbour]


def rate(currency: str) -> float:
    """How many marks one unit of a currency is.

    Args:
        currency: such as skell.
    """
    return RATES[currency]


def duty(good: str, harbour: str) -> float:
    """The duty on a good that comes into a harbour, in percent of its price.

    Args:
        good: such as wool.
        harbour: where it comes in.
    """
    return DUTIES[harbour].get(good, 4.0)


def freight(start: str, end: str) -> float:
    """What a tonne costs to carry from a harbour straight to another one, in marks.

    Args:
        start: harbour.
        end: harbour.
    """
    return FREIGHT[frozenset((start, end))]


def calculate(expression: str) -> float:
    """The value of an expression of numbers with + - * / and brackets, and of min, max and round over such.

    Args:
        expression: such as "min(2 * (3 + 4), 15.5)".
    """
    return float(_value(ast.parse(expression, mode="eval").body))


_BINARY: dict[type, Callable[[Any, Any], Any]] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_NAMED: dict[str, Callable[..., Any]] = {"min": min, "max": max, "round": round}


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMED:
        return _NAMED[node.func.id](*map(_value, node.args))
    raise ValueError(f"this cannot be calculated: {ast.unparse(node)}; there are numbers, + - * / and brackets, min, max and round")


# --- what the harbours ask ------------------------------------------------------------------------------------------

PRICES = {
    "Brae": {"wool": 412.0, "tin": 1960.5, "salt": 88.25, "amber": 7310.0},
    "Orle": {"wool": 1288.0, "tin": 6105.0, "salt": 301.5, "flax": 940.0},
    "Tarn": {"wool": 57.4, "tin": 279.8, "copper": 655.0, "flax": 44.9},
    "Vessel Point": {"tin": 1204.0, "salt": 61.0, "copper": 2790.0, "amber": 4488.0},
    "Quill": {"wool": 731.0, "tin": 3390.0, "copper": 8120.0, "flax": 566.0, "amber": 12875.0},
}
CURRENCIES = {"Brae": "crown", "Orle": "skell", "Tarn": "guinea", "Vessel Point": "dalen", "Quill": "ora"}
RATES = {"crown": 1.42, "skell": 0.455, "guinea": 10.15, "dalen": 2.36, "ora": 0.815}
DUTIES = {
    "Brae": {"tin": 6.5, "copper": 9.0},
    "Orle": {"wool": 3.25, "amber": 11.0, "copper": 7.75, "tin": 5.5},
    "Tarn": {"salt": 2.0, "amber": 12.5},
    "Vessel Point": {"wool": 5.0, "flax": 1.5},
    "Quill": {"salt": 8.5, "tin": 7.0},
}
FREIGHT = {
    frozenset(pair.split("/")): marks
    for pair, marks in {
        "Brae/Orle": 31.4, "Brae/Tarn": 18.75, "Brae/Vessel Point": 42.0, "Brae/Quill": 27.3, "Orle/Tarn": 22.6,
        "Orle/Vessel Point": 12.9, "Orle/Quill": 35.15, "Tarn/Vessel Point": 15.8, "Tarn/Quill": 39.95, "Vessel Point/Quill": 19.05,
    }.items()
}


def _marks(good: str, harbour: str) -> float:
    return PRICES[harbour][good] * RATES[CURRENCIES[harbour]]


def _priced(ask: Ask, *asked: tuple[str, str]) -> tuple[list[float], dict[str, float]]:
    """Prices of goods in harbours, and what a unit of each harbour's currency is in marks."""
    places = list(dict.fromkeys(harbour for _, harbour in asked))
    got = ask(*(call("price", good=good, harbour=harbour) for good, harbour in asked), *(call("currency", harbour=harbour) for harbour in places))
    prices, currencies = got[: len(asked)], got[len(asked) :]
    return prices, dict(zip(places, ask(*(call("rate", currency=each) for each in currencies))))


def _one_duty(ask: Ask) -> Any:
    return f"{ask.one('duty', good='copper', harbour='Orle')}"


def _one_freight(ask: Ask) -> Any:
    return money(ask.one("freight", start="Tarn", end="Quill"))


def _bought(ask: Ask) -> Any:
    (tonne,), marks = _priced(ask, ("amber", "Brae"))
    return money(ask.one("calculate", expression=f"12 * {tonne} * {marks['Brae']}"))


def _landed(ask: Ask) -> Any:
    (tonne, place, percent, carried) = ask(
        call("price", good="tin", harbour="Quill"), call("currency", harbour="Quill"),
        call("duty", good="tin", harbour="Brae"), call("freight", start="Quill", end="Brae"),
    )
    marks = ask.one("rate", currency=place)
    return money(ask.one("calculate", expression=f"30 * ({tonne} * {marks} * (1 + {percent} / 100) + {carried})"))


def _cheapest_wool(ask: Ask) -> Any:
    places = ["Brae", "Orle", "Tarn"]
    prices, marks = _priced(ask, *(("wool", place) for place in places))
    return money(ask.one("calculate", expression=f"min({', '.join(f'{p} * {marks[place]}' for p, place in zip(prices, places))})"))


def _cheapest_tin(ask: Ask) -> Any:
    places = ask.one("harbours", good="tin")
    prices, marks = _priced(ask, *(("tin", place) for place in places))
    return money(ask.one("calculate", expression=f"min({', '.join(f'{p} * {marks[place]}' for p, place in zip(prices, places))})"))


def _profit(ask: Ask) -> Any:
    here, there, here_in, there_in, percent, carried = ask(
        call("price", good="copper", harbour="Tarn"), call("price", good="copper", harbour="Quill"), call("currency", harbour="Tarn"),
        call("currency", harbour="Quill"), call("duty", good="copper", harbour="Quill"), call("freight", start="Tarn", end="Quill"),
    )
    first, second = ask(call("rate", currency=here_in), call("rate", currency=there_in))
    bought = f"{here} * {first}"
    return money(ask.one("calculate", expression=f"20 * ({there} * {second} - {bought} * (1 + {percent} / 100) - {carried})"))


ORDER = {"wool": 5, "tin": 2, "salt": 40, "flax": 8}


def _order(ask: Ask) -> Any:
    got = ask(
        *(call("price", good=good, harbour="Orle") for good in ORDER), *(call("duty", good=good, harbour="Brae") for good in ORDER),
        call("currency", harbour="Orle"), call("freight", start="Orle", end="Brae"),
    )
    prices, duties, carried = got[:4], got[4:8], got[9]
    marks = ask.one("rate", currency=got[8])
    sums = " + ".join(f"{n} * {p} * (1 + {d} / 100)" for n, p, d in zip(ORDER.values(), prices, duties))
    return money(ask.one("calculate", expression=f"({sums}) * {marks} + {sum(ORDER.values())} * {carried}"))


VIA = ["Orle", "Tarn", "Vessel Point"]


def _route(ask: Ask) -> Any:
    costs = ask(
        call("freight", start="Brae", end="Quill"), *(call("freight", start="Brae", end=place) for place in VIA),
        *(call("freight", start=place, end="Quill") for place in VIA),
    )
    ways = ", ".join(f"{first} + {second}" for first, second in zip(costs[1:4], costs[4:]))
    return money(ask.one("calculate", expression=f"max({costs[0]}, {ways})"))


FAMILY = Family(
    "harbour",
    [price, harbours, currency, rate, duty, freight, calculate],
    [
        Task(
            "one_duty",
            "How much duty, in percent, is there on copper that comes into Orle? Answer with the number.",
            "7.75",
            _one_duty,
            ["from tools import duty\nprint(duty(good='copper', harbour='Orle'))"],
        ),
        Task(
            "one_freight",
            "What does a tonne cost to carry from Tarn straight to Quill, in marks? Answer with two decimals.",
            "39.95",
            _one_freight,
            ["from tools import freight\nprint(f\"{freight(start='Tarn', end='Quill'):.2f}\")"],
        ),
        Task(
            "bought",
            "What do 12 tonnes of amber cost in Brae, in marks? Answer with two decimals.",
            money(12 * _marks("amber", "Brae")),
            _bought,
            [
                "from tools import price, currency, rate\n"
                "print(f\"{12 * price(good='amber', harbour='Brae') * rate(currency=currency(harbour='Brae')):.2f}\")"
            ],
        ),
        Task(
            "landed",
            "30 tonnes of tin are bought in Quill and carried straight to Brae. What do they cost in marks, with Brae's duty on their price "
            "and the freight? Answer with two decimals.",
            money(30 * (_marks("tin", "Quill") * 1.065 + 27.3)),
            _landed,
            [
                "from tools import price, currency, rate, duty, freight\n"
                "p = price(good='tin', harbour='Quill') * rate(currency=currency(harbour='Quill'))\n"
                "one = p * (1 + duty(good='tin', harbour='Brae') / 100) + freight(start='Quill', end='Brae')\n"
                "print(f'{30 * one:.2f}')"
            ],
        ),
        Task(
            "cheapest_wool",
            "What is the lowest price of a tonne of wool in Brae, Orle and Tarn, in marks? Answer with two decimals.",
            money(min(_marks("wool", place) for place in ("Brae", "Orle", "Tarn"))),
            _cheapest_wool,
            [
                "from tools import price, currency, rate\n"
                "print(f\"{min(price(good='wool', harbour=h) * rate(currency=currency(harbour=h)) for h in ['Brae', 'Orle', 'Tarn']):.2f}\")"
            ],
        ),
        Task(
            "cheapest_tin",
            "What is the lowest price of a tonne of tin in all harbours where it is traded, in marks? Answer with two decimals.",
            money(min(_marks("tin", place) for place in PRICES)),
            _cheapest_tin,
            [
                "from tools import harbours, price, currency, rate\n"
                "print(f\"{min(price(good='tin', harbour=h) * rate(currency=currency(harbour=h)) for h in harbours(good='tin')):.2f}\")"
            ],
        ),
        Task(
            "profit",
            "20 tonnes of copper are bought in Tarn, carried straight to Quill, and sold there. Quill's duty is on what they cost in Tarn. "
            "What is left, in marks, after price, duty and freight? Answer with two decimals.",
            money(20 * (_marks("copper", "Quill") - _marks("copper", "Tarn") * 1.04 - 39.95)),
            _profit,
            [
                "from tools import price, currency, rate, duty, freight\n"
                "p = {h: price(good='copper', harbour=h) * rate(currency=currency(harbour=h)) for h in ('Tarn', 'Quill')}\n"
                "cost = p['Tarn'] * (1 + duty(good='copper', harbour='Quill') / 100) + freight(start='Tarn', end='Quill')\n"
                "print(f\"{20 * (p['Quill'] - cost):.2f}\")"
            ],
        ),
        Task(
            "order",
            f"An order of {', '.join(f'{n} tonnes of {good}' for good, n in ORDER.items())} is bought in Orle and carried straight to Brae. "
            "What does it cost in marks, with Brae's duty on each price and the freight? Answer with two decimals.",
            money(sum(n * (_marks(good, "Orle") * (1 + DUTIES["Brae"].get(good, 4.0) / 100) + 31.4) for good, n in ORDER.items())),
            _order,
            [
                "from tools import price, currency, rate, duty, freight\n"
                f"order = {ORDER}\n"
                "r, f = rate(currency=currency(harbour='Orle')), freight(start='Orle', end='Brae')\n"
                "one = {g: price(good=g, harbour='Orle') * r * (1 + duty(good=g, harbour='Brae') / 100) + f for g in order}\n"
                "print(f'{sum(n * one[g] for g, n in order.items()):.2f}')"
            ],
        ),
        Task(
            "dearest_way",
            "A tonne goes from Brae to Quill, straight or by way of one of Orle, Tarn and Vessel Point. What does the freight of the dearest "
            "of these four ways come to, in marks? Answer with two decimals.",
            money(max(FREIGHT[frozenset(("Brae", via))] + FREIGHT[frozenset((via, "Quill"))] for via in VIA)),
            _route,
            [
                "from tools import freight\n"
                "ways = [freight(start='Brae', end=v) + freight(start=v, end='Quill') for v in ('Orle', 'Tarn', 'Vessel Point')]\n"
                "print(f\"{max(ways + [freight(start='Brae', end='Quill')]):.2f}\")"
            ],
        ),
    ],
)
