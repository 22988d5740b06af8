"""Sequences over four letters, as of DNA: ribbons of beads, which pair, and whose triads tie knots."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

from .pack import Ask, Family, Task, call

BEADS = "RSTU"
PARTNER = dict(zip(BEADS, "UTSR"))
KNOTS = ["bowline", "hitch", "loop", "reef", "sheepshank", "slip", "stop", "splice"]
# As with the letters of life, what a triad ties hangs most on its first two beads.
TIES = {a + b + c: KNOTS[(5 * i + 3 * j + k // 2) % 8] for (i, a), (j, b), (k, c) in product(enumerate(BEADS), repeat=3)}


# --- the tools ------------------------------------------------------------------------------------------------------


def sample(name: str) -> str:
    """The ribbon of a sample, as beads R, S, T and U.

    Args:
        name: of the sample, such as fern-1.
    """
    return SAMPLES[name]


def partner(ribbon: str) -> str:
    """The ribbon that pairs with another one: R pairs with U and S with T, and it is read from the other end.

    Args:
        ribbon: its beads.
    """
    return "".join(PARTNER[bead] for bead in reversed(ribbon))


def count_beads(ribbon: str) -> dict[str, int]:
    """How many of each bead a ribbon has.

    Args:
        ribbon: its beads.
    """
    return {bead: ribbon.count(bead) for bead in BEADS}


def find_motif(ribbon: str, motif: str) -> list[int]:
    """Where a motif begins on a ribbon, counted from 0; matches may overlap.

    Args:
        ribbon: its beads.
        motif: beads to look for.
    """
    return [at for at in range(len(ribbon)) if ribbon.startswith(motif, at)]


def cut(ribbon: str, at: int) -> list[str]:
    """The two pieces of a ribbon that is cut before a bead.

    Args:
        ribbon: its beads.
        at: the bead, counted from 0.
    """
    return [ribbon[:at], ribbon[at:]]


def join(ribbons: list[str]) -> str:
    """One ribbon of several, in order.

    Args:
        ribbons: the beads of each.
    """
    return "".join(ribbons)


def knots(ribbon: str, start: int = 0) -> list[str]:
    """Names of the knots that the triads of a ribbon tie, one after the other. Beads that are left over tie none.

    Args:
        ribbon: its beads.
        start: the bead at which the first triad begins, from 0.
    """
    return [TIES[ribbon[at : at + 3]] for at in range(start, len(ribbon) - 2, 3)]


# --- the samples ----------------------------------------------------------------------------------------------------

_chance = random.Random(20)
LENGTHS = {"fern-1": 42, "fern-2": 48, "moss-1": 36, "moss-2": 45, "moss-3": 39, "kelp-1": 54}
SAMPLES = {name: "".join(_chance.choices(BEADS, k=length)) for name, length in LENGTHS.items()}
GIVEN = "".join(_chance.choices(BEADS, k=40))
MOTIF = SAMPLES["kelp-1"][20:25]


def _tied(ribbon: str, start: int = 0) -> list[str]:
    return [TIES[a + b + c] for a, b, c in zip(ribbon[start::3], ribbon[start + 1 :: 3], ribbon[start + 2 :: 3])]


def _other(ribbon: str) -> str:
    return ribbon[::-1].translate(str.maketrans(PARTNER))


RARE = _other(SAMPLES["moss-2"])[6:10]


def _count(ask: Ask) -> Any:
    return ask.one("count_beads", ribbon=GIVEN)["T"]


def _motif(ask: Ask) -> Any:
    return ask.one("find_motif", ribbon=GIVEN, motif=GIVEN[17:21])[0]


def _partner_count(ask: Ask) -> Any:
    return ask.one("count_beads", ribbon=ask.one("partner", ribbon=ask.one("sample", name="fern-1")))["R"]


def _fifth_knot(ask: Ask) -> Any:
    return ask.one("knots", ribbon=ask.one("partner", ribbon=ask.one("sample", name="fern-2")))[4]


def _more_s(ask: Ask) -> Any:
    names = ["moss-1", "moss-3"]
    counts = ask(*(call("count_beads", ribbon=ribbon) for ribbon in ask(*(call("sample", name=name) for name in names))))
    return max(zip(names, counts), key=lambda pair: pair[1]["S"])[0]


def _cut_at_motif(ask: Ask) -> Any:
    ribbon = ask.one("sample", name="kelp-1")
    piece = ask.one("cut", ribbon=ribbon, at=ask.one("find_motif", ribbon=ribbon, motif=MOTIF)[0])[1]
    return ask.one("partner", ribbon=piece)


def _on_partners(ask: Ask) -> Any:
    names = ["moss-1", "moss-2", "moss-3"]
    others = ask(*(call("partner", ribbon=ribbon) for ribbon in ask(*(call("sample", name=name) for name in names))))
    found = ask(*(call("find_motif", ribbon=ribbon, motif=RARE) for ribbon in others))
    return ", ".join(name for name, at in zip(names, found) if at)


def _joined(ask: Ask) -> Any:
    ribbons = ask(call("sample", name="fern-2"), call("sample", name="moss-1"))
    return ask.one("knots", ribbon=ask.one("partner", ribbon=ask.one("join", ribbons=ribbons))).count("loop")


def _best_start(ask: Ask) -> Any:
    ribbon = ask.one("sample", name="moss-2")
    tied = ask(*(call("knots", ribbon=ribbon, start=start) for start in (0, 1, 2)))
    return max(range(3), key=lambda start: tied[start].count("slip"))


FAMILY = Family(
    "ribbons",
    [sample, partner, count_beads, find_motif, cut, join, knots],
    [
        Task(
            "count",
            f"How many beads T has the ribbon {GIVEN}? Answer with the number.",
            str(GIVEN.count("T")),
            _count,
            [f"from tools import count_beads\nprint(count_beads(ribbon='{GIVEN}')['T'])"],
        ),
        Task(
            "motif",
            f"At which bead, counted from 0, does {GIVEN[17:21]} first begin on the ribbon {GIVEN}? Answer with the number.",
            str(GIVEN.index(GIVEN[17:21])),
            _motif,
            [f"from tools import find_motif\nprint(find_motif(ribbon='{GIVEN}', motif='{GIVEN[17:21]}')[0])"],
        ),
        Task(
            "partner_count",
            "How many beads R has the partner of the sample fern-1? Answer with the number.",
            str(_other(SAMPLES["fern-1"]).count("R")),
            _partner_count,
            ["from tools import sample, partner, count_beads\nprint(count_beads(ribbon=partner(ribbon=sample(name='fern-1')))['R'])"],
        ),
        Task(
            "fifth_knot",
            "Which is the fifth knot that the partner of the sample fern-2 ties, from its first bead? Answer with its name.",
            _tied(_other(SAMPLES["fern-2"]))[4],
            _fifth_knot,
            ["from tools import sample, partner, knots\nprint(knots(ribbon=partner(ribbon=sample(name='fern-2')))[4])"],
        ),
        Task(
            "more_s",
            "Which of the samples moss-1 and moss-3 has more beads S? Answer with its name.",
            max(["moss-1", "moss-3"], key=lambda name: SAMPLES[name].count("S")),
            _more_s,
            [
                "from tools import sample, count_beads\n"
                "print(max(['moss-1', 'moss-3'], key=lambda name: count_beads(ribbon=sample(name=name))['S']))"
            ],
        ),
        Task(
            "cut_at_motif",
            f"The ribbon of the sample kelp-1 is cut where {MOTIF} first begins. Answer with the partner of the second piece.",
            _other(SAMPLES["kelp-1"][SAMPLES["kelp-1"].index(MOTIF) :]),
            _cut_at_motif,
            [
                "from tools import sample, find_motif, cut, partner\n"
                "r = sample(name='kelp-1')\n"
                f"print(partner(ribbon=cut(ribbon=r, at=find_motif(ribbon=r, motif='{MOTIF}')[0])[1]))"
            ],
        ),
        Task(
            "on_partners",
            f"On the partners of which of the samples moss-1, moss-2 and moss-3 is the motif {RARE}? Answer with their names in that "
            "order, with a comma and a space between them.",
            ", ".join(name for name in ("moss-1", "moss-2", "moss-3") if RARE in _other(SAMPLES[name])),
            _on_partners,
            [
                "from tools import sample, partner, find_motif\n"
                "names = ['moss-1', 'moss-2', 'moss-3']\n"
                f"print(', '.join(n for n in names if find_motif(ribbon=partner(ribbon=sample(name=n)), motif='{RARE}')))"
            ],
        ),
        Task(
            "joined",
            "The ribbons of fern-2 and moss-1 are joined in this order. How many knots of the name loop does the partner of the joined "
            "ribbon tie, from its first bead? Answer with the number.",
            str(_tied(_other(SAMPLES["fern-2"] + SAMPLES["moss-1"])).count("loop")),
            _joined,
            [
                "from tools import sample, join, partner, knots\n"
                "r = join(ribbons=[sample(name='fern-2'), sample(name='moss-1')])\n"
                "print(knots(ribbon=partner(ribbon=r)).count('loop'))"
            ],
        ),
        Task(
            "best_start",
            "With which start, 0, 1 or 2, does the ribbon of moss-2 tie the most knots of the name slip? Answer with the start; "
            "when several are equal, with the smallest.",
            str(max(range(3), key=lambda start: _tied(SAMPLES["moss-2"], start).count("slip"))),
            _best_start,
            [
                "from tools import sample, knots\n"
                "r = sample(name='moss-2')\n"
                "print(max(range(3), key=lambda s: knots(ribbon=r, start=s).count('slip')))"
            ],
        ),
    ],
)
