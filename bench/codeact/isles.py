"""Plans of travel: ferries, inns, sights and weather of made-up isles."""

from __future__ import annotations

import random
from typing import Any, TypedDict

from .pack import Ask, Family, Task, call

# --- the tools ------------------------------------------------------------------------------------------------------


class Ferry(TypedDict):
    name: str
    leaves: str
    arrives: str
    fare: int


class Inn(TypedDict):
    name: str
    stars: int
    price: int


class Sight(TypedDict):
    name: str
    opens: str
    fee: int


def isles() -> list[str]:
    """The names of all isles."""
    return list(ISLES)


def ferries(start: str, end: str, day: str) -> list[Ferry]:
    """Ferries straight from an isle to another one, with times as HH:MM and fares in crowns.

    Args:
        start: isle.
        end: isle.
        day: as 2031-05-01.
    """
    return FERRIES[start, end, day]


def inns(isle: str, day: str) -> list[Inn]:
    """Inns with a free room for the night after a day, with prices in crowns.

    Args:
        isle: its name.
        day: as 2031-05-01.
    """
    return INNS[isle, day]


def sights(isle: str) -> list[Sight]:
    """What there is to see on an isle, when it opens, and what it costs in crowns.

    Args:
        isle: its name.
    """
    return SIGHTS[isle]


def weather(isle: str, day: str) -> str:
    """The weather that is foreseen: dry, rain or gale.

    Args:
        isle: its name.
        day: as 2031-05-01.
    """
    return WEATHER[isle, day]


# --- the isles ------------------------------------------------------------------------------------------------------

ISLES = ["Orm", "Skarn", "Lull", "Heddle", "Wick", "Tove"]
DAYS = ["2031-05-01", "2031-05-02", "2031-05-03", "2031-05-04"]
_chance = random.Random(4)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _timetable() -> list[Ferry]:
    out: list[Ferry] = []
    for at in sorted(_chance.sample(range(360, 1200, 5), 3)):
        out.append({"name": f"F{_chance.randrange(100, 1000)}", "leaves": _clock(at), "arrives": _clock(at + _chance.randrange(40, 200, 5)), "fare": _chance.randrange(12, 70)})
    return out


def _rooms() -> list[Inn]:
    names = _chance.sample(["The Anchor", "Gull House", "The Kelp", "Lantern Inn", "The Net", "Old Quay"], 3)
    return [{"name": name, "stars": _chance.randrange(1, 6), "price": _chance.randrange(38, 160)} for name in names]


def _seen() -> list[Sight]:
    names = _chance.sample(["lighthouse", "seal bay", "old kiln", "museum of knots", "standing stones", "tide mill"], 3)
    return [{"name": name, "opens": f"{_chance.randrange(8, 12):02d}:00", "fee": _chance.randrange(0, 19)} for name in names]


FERRIES = {(a, b, day): _timetable() for a in ISLES for b in ISLES if a != b for day in DAYS}
INNS = {(isle, day): _rooms() for isle in ISLES for day in DAYS}
SIGHTS = {isle: _seen() for isle in ISLES}
WEATHER = {(isle, day): _chance.choice(["dry", "dry", "dry", "rain", "gale"]) for isle in ISLES for day in DAYS}
WEATHER.update({("Heddle", day): "dry" for day in DAYS})

MAY1, MAY2, MAY3, MAY4 = DAYS
VIA = ["Skarn", "Lull", "Heddle", "Wick"]


def _fare(start: str, end: str, day: str) -> int:
    return min(ferry["fare"] for ferry in FERRIES[start, end, day])


def _night(isle: str, day: str, stars: int = 1) -> int:
    return min(inn["price"] for inn in INNS[isle, day] if inn["stars"] >= stars)


def _minutes(clock: str) -> int:
    hours, minutes = clock.split(":")
    return int(hours) * 60 + int(minutes)


def _earliest(legs: list[tuple[list[Ferry], list[Ferry]]]) -> str:
    return min(late["arrives"] for first, second in legs for early in first for late in second if _minutes(late["leaves"]) - _minutes(early["arrives"]) >= 30)


def _cheapest(offers: list[Any], what: str) -> int:
    return int(min(offer[what] for offer in offers))


def _one_weather(ask: Ask) -> Any:
    return ask.one("weather", isle="Wick", day=MAY3)


def _one_inn(ask: Ask) -> Any:
    return min(ask.one("inns", isle="Orm", day=MAY2), key=lambda inn: inn["price"])["name"]


def _return(ask: Ask) -> Any:
    return sum(_cheapest(offers, "fare") for offers in ask(call("ferries", start="Orm", end="Lull", day=MAY1), call("ferries", start="Lull", end="Orm", day=MAY3)))


ROUND = [("Orm", "Skarn", MAY1), ("Skarn", "Tove", MAY2), ("Tove", "Orm", MAY4)]


def _round(ask: Ask) -> Any:
    return sum(_cheapest(offers, "fare") for offers in ask(*(call("ferries", start=a, end=b, day=day) for a, b, day in ROUND)))


NIGHTS = [("Skarn", MAY1), ("Tove", MAY2), ("Tove", MAY3)]


def _with_nights(ask: Ask) -> Any:
    got = ask(*(call("ferries", start=a, end=b, day=day) for a, b, day in ROUND), *(call("inns", isle=isle, day=day) for isle, day in NIGHTS))
    rooms = [[inn for inn in offers if inn["stars"] >= 2] for offers in got[3:]]
    return sum(_cheapest(offers, "fare") for offers in got[:3]) + sum(_cheapest(offers, "price") for offers in rooms)


def _dry(ask: Ask) -> Any:
    names = ask.one("isles")
    if ask.together:
        asked = [(isle, day) for isle in names for day in DAYS[:3]]
        wet = {isle for (isle, _), said in zip(asked, ask(*(call("weather", isle=isle, day=day) for isle, day in asked))) if said != "dry"}
        return next(isle for isle in names if isle not in wet)
    for isle in names:  # with one call a turn the first day that is not dry is the last one asked about
        if all(ask.one("weather", isle=isle, day=day) == "dry" for day in DAYS[:3]):
            return isle
    return None


def _cheapest_night(ask: Ask) -> Any:
    names = ask.one("isles")
    rooms = ask(*(call("inns", isle=isle, day=MAY4) for isle in names))
    return min(inn["price"] for offers in rooms for inn in offers)


def _change(ask: Ask) -> Any:
    got = ask(*(call("ferries", start="Orm", end=via, day=MAY2) for via in VIA), *(call("ferries", start=via, end="Tove", day=MAY2) for via in VIA))
    return _earliest(list(zip(got[:4], got[4:])))


def _whole(ask: Ask) -> Any:
    got = ask(
        *(call("ferries", start="Orm", end=isle, day=MAY2) for isle in VIA), *(call("inns", isle=isle, day=MAY2) for isle in VIA),
        *(call("sights", isle=isle) for isle in VIA), *(call("ferries", start=isle, end="Orm", day=MAY3) for isle in VIA),
    )
    costs = [
        _cheapest(out, "fare") + _cheapest(rooms, "price") + sum(sight["fee"] for sight in seen) + _cheapest(back, "fare")
        for out, rooms, seen, back in zip(got[:4], got[4:8], got[8:12], got[12:])
    ]
    return min(costs)


def _whole_cost(isle: str) -> int:
    return _fare("Orm", isle, MAY2) + _night(isle, MAY2) + sum(sight["fee"] for sight in SIGHTS[isle]) + _fare(isle, "Orm", MAY3)


FAMILY = Family(
    "isles",
    [isles, ferries, inns, sights, weather],
    [
        Task(
            "one_weather",
            f"What weather is foreseen for Wick on {MAY3}? Answer with the word.",
            WEATHER["Wick", MAY3],
            _one_weather,
            [f"from tools import weather\nprint(weather(isle='Wick', day='{MAY3}'))"],
        ),
        Task(
            "one_inn",
            f"Which inn on Orm is the cheapest for the night after {MAY2}? Answer with its name.",
            next(inn["name"] for inn in INNS["Orm", MAY2] if inn["price"] == _night("Orm", MAY2)),
            _one_inn,
            [f"from tools import inns\nprint(min(inns(isle='Orm', day='{MAY2}'), key=lambda i: i['price'])['name'])"],
        ),
        Task(
            "return",
            f"What are the cheapest ferries from Orm to Lull on {MAY1} and back on {MAY3} together? Answer with the sum in crowns.",
            str(_fare("Orm", "Lull", MAY1) + _fare("Lull", "Orm", MAY3)),
            _return,
            [
                "from tools import ferries\n"
                f"trip = [('Orm', 'Lull', '{MAY1}'), ('Lull', 'Orm', '{MAY3}')]\n"
                "print(sum(min(f['fare'] for f in ferries(start=a, end=b, day=d)) for a, b, d in trip))"
            ],
        ),
        Task(
            "round",
            f"A round goes from Orm to Skarn on {MAY1}, on to Tove on {MAY2}, and back to Orm on {MAY4}. What do its cheapest ferries cost "
            "together? Answer with the sum in crowns.",
            str(sum(_fare(*leg) for leg in ROUND)),
            _round,
            [
                "from tools import ferries\n"
                f"trip = {ROUND}\n"
                "print(sum(min(f['fare'] for f in ferries(start=a, end=b, day=d)) for a, b, d in trip))"
            ],
        ),
        Task(
            "with_nights",
            f"A round goes from Orm to Skarn on {MAY1}, on to Tove on {MAY2}, and back to Orm on {MAY4}, with the nights in between on Skarn "
            "and Tove, in inns of two stars or more. What do the cheapest ferries and inns cost together? Answer with the sum in crowns.",
            str(sum(_fare(*leg) for leg in ROUND) + sum(_night(isle, day, 2) for isle, day in NIGHTS)),
            _with_nights,
            [
                "from tools import ferries, inns\n"
                f"trip, nights = {ROUND}, {NIGHTS}\n"
                "total = sum(min(f['fare'] for f in ferries(start=a, end=b, day=d)) for a, b, d in trip)\n"
                "print(total + sum(min(i['price'] for i in inns(isle=a, day=d) if i['stars'] >= 2) for a, d in nights))"
            ],
        ),
        Task(
            "dry",
            f"Which is the first of all isles, in the order in which they are listed, that stays dry from {MAY1} to {MAY3}? Answer with its name.",
            next(isle for isle in ISLES if all(WEATHER[isle, day] == "dry" for day in DAYS[:3])),
            _dry,
            [
                "from tools import isles, weather\n"
                f"days = {DAYS[:3]}\n"
                "print(next(i for i in isles() if all(weather(isle=i, day=d) == 'dry' for d in days)))"
            ],
        ),
        Task(
            "cheapest_night",
            f"What does the cheapest room on all isles cost for the night after {MAY4}? Answer with the price in crowns.",
            str(min(_night(isle, MAY4) for isle in ISLES)),
            _cheapest_night,
            [f"from tools import isles, inns\nprint(min(r['price'] for i in isles() for r in inns(isle=i, day='{MAY4}')))"],
        ),
        Task(
            "change",
            f"On {MAY2} somebody goes from Orm to Tove with one change, on Skarn, Lull, Heddle or Wick, which takes 30 minutes at least. "
            "When can they arrive at the earliest? Answer as HH:MM.",
            _earliest([(FERRIES["Orm", via, MAY2], FERRIES[via, "Tove", MAY2]) for via in VIA]),
            _change,
            [
                "from tools import ferries\n"
                "def m(t): return int(t[:2]) * 60 + int(t[3:])\n"
                f"day, best = '{MAY2}', []\n"
                f"for via in {VIA}:\n"
                "    for a in ferries(start='Orm', end=via, day=day):\n"
                "        best += [b['arrives'] for b in ferries(start=via, end='Tove', day=day) if m(b['leaves']) - m(a['arrives']) >= 30]\n"
                "print(min(best))"
            ],
        ),
        Task(
            "whole",
            f"Somebody wants to go from Orm to Skarn, Lull, Heddle or Wick on {MAY2}, see all sights there, stay a night, and go back on {MAY3}. "
            "What does it cost where it is cheapest, with the cheapest ferries and inn? Answer with the sum in crowns.",
            str(min(_whole_cost(isle) for isle in VIA)),
            _whole,
            [
                "from tools import ferries, inns, sights\n"
                "def low(offers, what): return min(o[what] for o in offers)\n"
                f"a, b = '{MAY2}', '{MAY3}'\n"
                f"print(min(low(ferries(start='Orm', end=i, day=a), 'fare') + low(inns(isle=i, day=a), 'price') + sum(s['fee'] for s in sights(isle=i))"
                f" + low(ferries(start=i, end='Orm', day=b), 'fare') for i in {VIA}))"
            ],
        ),
    ],
)
