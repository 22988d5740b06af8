"""Browsing over a small made-up site: that of a workshop for clocks and orreries.

What its pages are called and how they are written can only be known by looking. So code opens all pages and prints those that have words of the
task, or looks at the front page first where a whole section is wanted; the answer is read off what is printed. Who clicks sees every page that
is opened, and goes where the names of links point.
"""

from __future__ import annotations

import re
from typing import Any, TypedDict

from .pack import Ask, Family, Task, call, money
from .harbour import calculate

# --- the tools ------------------------------------------------------------------------------------------------------


class Page(TypedDict):
    title: str
    text: str
    links: list[str]


def open_page(address: str) -> Page:
    """A page of the site of Hallam & Dray, with the addresses that it links to.

    Args:
        address: such as /; the front page is /.
    """
    return PAGES[address]


# --- the site -------------------------------------------------------------------------------------------------------

ITEMS: dict[str, tuple[float, int, int, str]] = {  # price, wheels, weight in grams, wood
    "Tidewheel": (129.50, 14, 2300, "oak"), "Little Orrery": (248.00, 22, 1750, "walnut"), "Grand Orrery": (1890.00, 61, 21400, "walnut"),
    "Moon Dial": (74.90, 5, 640, "ash"), "Ship Clock": (312.25, 18, 3100, "teak"), "Lamp Clock": (96.00, 9, 1200, "oak"),
    "Rain Glass": (58.40, 3, 980, "ash"), "Eclipse Table": (415.00, 31, 5250, "pear"), "Comet Box": (184.75, 12, 1480, "pear"),
    "Harbour Bell": (221.10, 7, 4300, "teak"),
}
STAFF: dict[str, list[tuple[str, str, str]]] = {  # department: name, telephone, mail
    "workshop": [("Ines Hallam", "4410", "ines"), ("Tom Okafor", "4417", "tom"), ("Bette Lund", "4422", "bette"), ("Jun Sato", "4426", "jun")],
    "drawing office": [("Rafe Dray", "4431", "rafe"), ("Mila Vance", "4438", "mila")],
    "repairs": [("Oda Pryce", "4443", "oda"), ("Lars Ekholm", "4449", "lars"), ("Nia Byrne", "4451", "nia")],
    "accounts": [("Cleo Marsh", "4467", "cleo"), ("Abel Roth", "4470", "abel")],
}
SHOPS: dict[str, tuple[str, str, int]] = {  # street, hours on Sundays, parking places
    "Tarnby": ("7 Bridge Street", "11:00-15:00", 12), "Osk": ("2 Quay", "10:00-13:30", 0), "Vell": ("41 High Street", "12:00-18:00", 30),
    "Marrow": ("9 Mill Lane", "closed", 4), "Pike": ("15 Market", "10:30-16:00", 8),
}
NEWS = [
    ("a-new-lathe", "A new lathe", "The workshop has a new lathe. It cuts wheels of up to 300 teeth, and the old one goes to the school in Vell."),
    ("summer-hours", "Summer hours", "In July the shops open an hour later. The repairs stay open as they are."),
    ("a-spring-is-replaced", "A spring is replaced", "The mainspring of the Ship Clock breaks early. We replace it free of charge in all that were sold since March."),
    ("prize", "A prize in Osk", "The Eclipse Table won the prize of the guild for the third time."),
]


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-")


def _site() -> dict[str, Page]:
    pages: dict[str, Page] = {
        "/": {
            "title": "Hallam & Dray",
            "text": "Clocks and orreries since 1871. See what we make, where our shops are, who works here, and what is new.",
            "links": ["/catalogue", "/shops", "/people", "/news", "/help/returns"],
        },
        "/catalogue": {"title": "What we make", "text": "All of it is made here, by hand.", "links": [f"/catalogue/{_slug(name)}" for name in ITEMS]},
        "/shops": {"title": "Our shops", "text": "Five towns. Come in and hear them strike.", "links": [f"/shops/{_slug(town)}" for town in SHOPS]},
        "/people": {"title": "Who works here", "text": "By department.", "links": [f"/people/{_slug(name)}" for name in STAFF]},
        "/news": {"title": "What is new", "text": "The newest first.", "links": [f"/news/{address}" for address, _, _ in NEWS]},
        "/help/returns": {
            "title": "Returns",
            "text": "What you do not like goes back within 45 days, in its box. We pay for the way back of what weighs less than 5 kg.",
            "links": ["/"],
        },
    }
    for name, (price, wheels, grams, wood) in ITEMS.items():
        text = f"The {name} has {wheels} wheels of brass in a case of {wood}. It weighs {grams} g and runs for eight days. Price: {price:.2f} crowns, with two years of guarantee."
        pages[f"/catalogue/{_slug(name)}"] = {"title": name, "text": text, "links": ["/catalogue", "/help/returns"]}
    for town, (street, sunday, places) in SHOPS.items():
        text = f"{street}, {town}. Weekdays 9:00-18:00, Saturdays 9:00-17:00, Sundays {sunday}. Parking places: {places}."
        pages[f"/shops/{_slug(town)}"] = {"title": f"Our shop in {town}", "text": text, "links": ["/shops"]}
    for department, people in STAFF.items():
        text = " ".join(f"{name}, telephone {number}, {mail}@hallamdray.example." for name, number, mail in people)
        pages[f"/people/{_slug(department)}"] = {"title": f"The {department}", "text": text, "links": ["/people"]}
    for address, title, text in NEWS:
        pages[f"/news/{address}"] = {"title": title, "text": text, "links": ["/news"]}
    return pages


PAGES = _site()
FRONT = "from tools import open_page\nprint(open_page(address='/'))"
CRAWL = """\
from tools import open_page
pages, todo = {}, ['/']
while todo:
    if (a := todo.pop()) not in pages:
        pages[a] = open_page(address=a)
        todo += pages[a]['links']
print(*(p['text'] for a, p in pages.items() if %s), sep='\\n')"""
BASKET = ["Little Orrery", "Moon Dial", "Comet Box"]


def _page(ask: Ask, *addresses: str) -> list[Page]:
    return ask(*(call("open_page", address=address) for address in addresses))


def _one(pattern: str, page: "Page | str") -> str:
    """What somebody reads off a page."""
    text = page if isinstance(page, str) else page["text"]
    found = re.search(pattern, text)
    assert found, text
    return found[1]


PRICE = r"Price: ([\d.]+)"
REPLACED = r"mainspring of the ([A-Z]\w+ [A-Z]\w+)"


def _items(ask: Ask, *names: str) -> list[Page]:
    """Pages of the catalogue, by way of it."""
    (front,) = _page(ask, "/")
    (index,) = _page(ask, front["links"][0])
    return _page(ask, *(link for link in index["links"] if not names or link.rpartition("/")[2] in map(_slug, names)))


def _returns(ask: Ask) -> Any:
    return _one(r"within (\d+) days", *_page(ask, "/help/returns"))


def _longest_sunday(pages: list[str]) -> str:
    """Of pages of shops, the town of the one that is open the longest."""
    return _one(r", (\w+)\.", max(pages, key=lambda page: _open(re.search(r"Sundays ([\d:]+)-([\d:]+)", page))))


def _cheapest_light(pages: list[str]) -> str:
    """Of pages of the catalogue, what is light, has wheels enough, and costs the least."""
    fit = [page for page in pages if int(_one(r"weighs (\d+) g", page)) < 2000 and int(_one(r"has (\d+) wheels", page)) >= 9]
    return _one(r"The (.+?) has", min(fit, key=lambda page: float(_one(PRICE, page))))


def _saturday(ask: Ask) -> Any:
    return _one(r"Saturdays [\d:]+-([\d:]+)", *_page(ask, "/shops/osk"))


def _price(ask: Ask) -> Any:
    return _one(PRICE, *_items(ask, "Eclipse Table"))


def _basket(ask: Ask) -> Any:
    return money(ask.one("calculate", expression=" + ".join(_one(PRICE, page) for page in _items(ask, *BASKET))))


def _telephone(ask: Ask) -> Any:
    _page(ask, "/")
    (index,) = _page(ask, "/people")
    for page in _page(ask, *index["links"]) if ask.together else (_page(ask, link)[0] for link in index["links"]):
        if owner := re.search(r"(\w+ \w+), telephone 4449", page["text"]):
            return owner[1]
    return None


def _headcount(ask: Ask) -> Any:
    _page(ask, "/")
    (index,) = _page(ask, "/people")
    return sum(page["text"].count("telephone") for page in _page(ask, *index["links"]))


def _sunday(ask: Ask) -> Any:
    _page(ask, "/")
    (index,) = _page(ask, "/shops")
    return _longest_sunday([page["text"] for page in _page(ask, *index["links"])])


def _open(hours: "re.Match[str] | None") -> int:
    if hours is None:
        return 0
    (h, m), (h2, m2) = (map(int, clock.split(":")) for clock in hours.groups())
    return (h2 - h) * 60 + m2 - m


def _light(ask: Ask) -> Any:
    return _cheapest_light([page["text"] for page in _items(ask)])


def _replaced(ask: Ask) -> Any:
    _page(ask, "/")
    index, catalogue = _page(ask, "/news", "/catalogue")
    link = next(link for link in index["links"] if "replaced" in link)
    name = _one(REPLACED, *_page(ask, link))
    return _one(PRICE, *_page(ask, next(link for link in catalogue["links"] if link.endswith(_slug(name)))))


FAMILY = Family(
    "site",
    [open_page, calculate],
    [
        Task(
            "returns",
            "Within how many days may something go back, by the page /help/returns? Answer with the number.",
            "45",
            _returns,
            ["from tools import open_page\nprint(open_page(address='/help/returns')['text'])"],
            lambda text: _one(r"within (\d+) days", text),
        ),
        Task(
            "saturday",
            "When does the shop of the page /shops/osk close on Saturdays? Answer as HH:MM.",
            "17:00",
            _saturday,
            ["from tools import open_page\nprint(open_page(address='/shops/osk')['text'])"],
            lambda text: _one(r"Saturdays [\d:]+-([\d:]+)", text),
        ),
        Task(
            "price",
            "What does the Eclipse Table cost at Hallam & Dray? Answer with two decimals.",
            money(ITEMS["Eclipse Table"][0]),
            _price,
            [CRAWL % "'Eclipse Table' in p['text']"],
            lambda text: _one(PRICE, text),
        ),
        Task(
            "basket",
            f"What do the {', the '.join(BASKET[:-1])} and the {BASKET[-1]} of Hallam & Dray cost together? Answer with two decimals.",
            money(sum(ITEMS[name][0] for name in BASKET)),
            _basket,
            [CRAWL % f"any(n in p['text'] for n in {BASKET})", lambda told: f"print(f'{{{' + '.join(re.findall(PRICE, told))}:.2f}}')"],
        ),
        Task(
            "telephone",
            "Who at Hallam & Dray has the telephone 4449? Answer with the name.",
            "Lars Ekholm",
            _telephone,
            [CRAWL % "'4449' in p['text']"],
            lambda text: _one(r"(\w+ \w+), telephone 4449", text),
        ),
        Task(
            "headcount",
            "How many people work in all departments of Hallam & Dray together? Answer with the number.",
            str(sum(map(len, STAFF.values()))),
            _headcount,
            [FRONT, CRAWL % "a.startswith('/people/')"],
            lambda text: str(text.count("telephone")),
        ),
        Task(
            "sunday",
            "Which shop of Hallam & Dray is open the longest on Sundays? Answer with the town.",
            max(SHOPS, key=lambda town: _open(re.match(r"([\d:]+)-([\d:]+)", SHOPS[town][1]))),
            _sunday,
            [FRONT, CRAWL % "a.startswith('/shops/')"],
            lambda text: _longest_sunday(text.splitlines()),
        ),
        Task(
            "light",
            "What is the cheapest that Hallam & Dray make which weighs less than 2000 g and has nine wheels or more? Answer with its name.",
            min((name for name, (_, wheels, grams, _) in ITEMS.items() if grams < 2000 and wheels >= 9), key=lambda name: ITEMS[name][0]),
            _light,
            [FRONT, CRAWL % "a.startswith('/catalogue/')"],
            lambda text: _cheapest_light(text.splitlines()),
        ),
        Task(
            "replaced",
            "In the news of Hallam & Dray a part of something is replaced free of charge. What does that thing cost? Answer with two decimals.",
            money(ITEMS["Ship Clock"][0]),
            _replaced,
            [
                CRAWL % "'free of charge' in p['text']",
                lambda told: f"print(next(p['text'] for p in pages.values() if '{_one(REPLACED, told)} has' in p['text']))",
            ],
            lambda text: _one(PRICE, text),
        ),
    ],
)
