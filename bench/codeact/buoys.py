"""Messages that are decoded in steps: notes that the buoys of a pilot station send in a code."""

from __future__ import annotations

from typing import Any, TypedDict

from .pack import Ask, Family, Task, call

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Note(TypedDict):
    coded: str
    turn: int
    columns: int


# --- the tools ------------------------------------------------------------------------------------------------------


def list_notes(buoy: str) -> list[str]:
    """Names of the notes that a buoy has sent, the oldest first.

    Args:
        buoy: its name, such as Gannet.
    """
    return sorted(name for name, (sender, _, _, _) in PLAIN.items() if sender == buoy)


def read_note(name: str) -> Note:
    """A note as it was sent. To read it, turn its letters back by `turn`, then unweave it from `columns` columns.

    Args:
        name: of the note.
    """
    _, text, turn, columns = PLAIN[name]
    return {"coded": _turn(_weave(text, columns), turn), "turn": turn, "columns": columns}


def turn_back(text: str, by: int) -> str:
    """Put every letter back in the alphabet by some places; A by 1 is Z. Other characters stay.

    Args:
        text: of capital letters.
        by: places.
    """
    return _turn(text, -by)


def unweave(text: str, columns: int) -> str:
    """Undo weaving: the text had been written in rows, so many letters wide, and read column by column.

    Args:
        text: the woven text.
        columns: how wide the rows were.
    """
    rows, longer = divmod(len(text), columns)
    lengths = [rows + (column < longer) for column in range(columns)]
    starts = [sum(lengths[:column]) for column in range(columns)]
    return "".join(text[starts[i % columns] + i // columns] for i in range(len(text)))


def from_pairs(digits: str) -> str:
    """Letters for pairs of digits: 01 is A, 26 is Z, 00 is a space.

    Args:
        digits: of an even number.
    """
    pairs = [int(digits[i : i + 2]) for i in range(0, len(digits), 2)]
    return "".join(LETTERS[pair - 1] if pair else " " for pair in pairs)


def flip_words(text: str) -> str:
    """Turn every word around, and leave the words in their order.

    Args:
        text: words with a space between them.
    """
    return " ".join(word[::-1] for word in text.split(" "))


# --- what the pilot station has -------------------------------------------------------------------------------------


def _turn(text: str, by: int) -> str:
    return "".join(LETTERS[(LETTERS.index(c) + by) % 26] if c in LETTERS else c for c in text)


def _weave(text: str, columns: int) -> str:
    return "".join(text[column::columns] for column in range(columns))


def _pairs(text: str) -> str:
    return "".join(f"{LETTERS.index(c) + 1 if c in LETTERS else 0:02d}" for c in text)


PLAIN: dict[str, tuple[str, str, int, int]] = {  # a note to its buoy, text, turn and columns
    "G1": ("Gannet", "CALM WATER AND A LIGHT WIND FROM THE WEST", 3, 4),
    "G2": ("Gannet", "TWO TRAWLERS PASSED BEFORE DAWN", 11, 5),
    "G3": ("Gannet", "FOG UNTIL NOON THEN CLEAR", 7, 3),
    "G4": ("Gannet", "DRIFT ICE NORTH OF THE OUTER BANK", 19, 6),
    "G5": ("Gannet", "BATTERY AT SIXTY PER CENT", 5, 4),
    "G6": ("Gannet", "SEALS ON THE SANDBAR AGAIN", 23, 5),
    "P1": ("Petrel", "SWELL OF THREE METRES", 2, 4),
    "P2": ("Petrel", "BELL HEARD TO THE EAST", 9, 3),
    "P3": ("Petrel", "PRESSURE FELL SEVEN POINTS", 14, 5),
    "P4": ("Petrel", "LEE SHORE KEEP CLEAR", 21, 4),
    "K1": ("Kittiwake", "NEXT K6", 4, 3),
    "K3": ("Kittiwake", "BURIED UNDER THE THIRD CAIRN", 8, 5),
    "K5": ("Kittiwake", "NEXT K3", 17, 2),
    "K6": ("Kittiwake", "NEXT K5", 12, 4),
}

FOUR = ["HARBOUR MASTER ABSENT", "LAMP OUT", "DREDGER AT BERTH NINE", "ROPE NEEDED ON THE MOLE"]
FIVE = [("THE", 6, 2), ("PILOT", 13, 3), ("BOARDS", 2, 2), ("AT", 20, 2), ("SUNRISE", 9, 4)]

DECODE = "unweave(text=turn_back(text=n['coded'], by=n['turn']), columns=n['columns'])"


def _decoded(ask: Ask, *names: str) -> list[str]:
    """Notes read and decoded, each step a layer."""
    notes = ask(*(call("read_note", name=name) for name in names))
    turned = ask(*(call("turn_back", text=n["coded"], by=n["turn"]) for n in notes))
    return ask(*(call("unweave", text=text, columns=n["columns"]) for text, n in zip(turned, notes)))


def _one_turn(ask: Ask) -> Any:
    return ask.one("turn_back", text=_turn("ANCHOR DRAGGING SEND THE TUG", 6), by=6)


def _one_flip(ask: Ask) -> Any:
    return ask.one("flip_words", text="EHT REGNAD SI TSAP")


def _pairs_then_turn(ask: Ask) -> Any:
    return ask.one("turn_back", text=ask.one("from_pairs", digits=_pairs(_turn("MOOR AT THE SOUTH QUAY", 9))), by=9)


def _three_steps(ask: Ask) -> Any:
    turned = ask.one("turn_back", text=_turn(_weave("ESEHT SRETTEL ERA DRAWKCAB", 5), 3), by=3)
    return ask.one("flip_words", text=ask.one("unweave", text=turned, columns=5))


def _longest(ask: Ask) -> Any:
    letters = ask(*(call("from_pairs", digits=_pairs(_turn(text, 7))) for text in FOUR))
    return max(ask(*(call("turn_back", text=text, by=7) for text in letters)), key=len)


def _five_words(ask: Ask) -> Any:
    turned = ask(*(call("turn_back", text=_turn(_weave(word, columns), by), by=by) for word, by, columns in FIVE))
    return " ".join(ask(*(call("unweave", text=text, columns=columns) for text, (_, _, columns) in zip(turned, FIVE))))


def _about_ice(ask: Ask) -> Any:
    names = ask.one("list_notes", buoy="Gannet")
    if ask.together:
        return next(text for text in _decoded(ask, *names) if "ICE" in text.split())
    for name in names:  # who has one call a turn stops at the note
        if "ICE" in (text := _decoded(ask, name)[0]).split():
            return text
    return None


def _count_e(ask: Ask) -> Any:
    return sum(text.count("E") for text in _decoded(ask, *ask.one("list_notes", buoy="Petrel")))


def _trail(ask: Ask) -> Any:
    name = "K1"
    while (text := _decoded(ask, name)[0]).startswith("NEXT "):
        name = text.split()[1]
    return text


FAMILY = Family(
    "buoys",
    [list_notes, read_note, turn_back, unweave, from_pairs, flip_words],
    [
        Task(
            "one_turn",
            f"The letters of '{_turn('ANCHOR DRAGGING SEND THE TUG', 6)}' were turned on by 6. Answer with the text as it was before.",
            "ANCHOR DRAGGING SEND THE TUG",
            _one_turn,
            [f"from tools import turn_back\nprint(turn_back(text='{_turn('ANCHOR DRAGGING SEND THE TUG', 6)}', by=6))"],
        ),
        Task(
            "one_flip",
            "The words of 'EHT REGNAD SI TSAP' stand backwards. Answer with the text in which they do not.",
            "THE DANGER IS PAST",
            _one_flip,
            ["from tools import flip_words\nprint(flip_words(text='EHT REGNAD SI TSAP'))"],
        ),
        Task(
            "pairs_then_turn",
            f"'{_pairs(_turn('MOOR AT THE SOUTH QUAY', 9))}' is a text whose letters were turned on by 9 and then written as pairs of digits. "
            "Answer with the text.",
            "MOOR AT THE SOUTH QUAY",
            _pairs_then_turn,
            [f"from tools import from_pairs, turn_back\nprint(turn_back(text=from_pairs(digits='{_pairs(_turn('MOOR AT THE SOUTH QUAY', 9))}'), by=9))"],
        ),
        Task(
            "three_steps",
            "A text had each of its words turned around, was woven with 5 columns, and then its letters were turned on by 3, which gave "
            f"'{_turn(_weave('ESEHT SRETTEL ERA DRAWKCAB', 5), 3)}'. Answer with the text.",
            "THESE LETTERS ARE BACKWARD",
            _three_steps,
            [
                "from tools import turn_back, unweave, flip_words\n"
                f"t = turn_back(text='{_turn(_weave('ESEHT SRETTEL ERA DRAWKCAB', 5), 3)}', by=3)\n"
                "print(flip_words(text=unweave(text=t, columns=5)))"
            ],
        ),
        Task(
            "longest_of_four",
            "These four texts had their letters turned on by 7 and were then written as pairs of digits. Which of them is the longest? "
            f"Answer with its text. {', '.join(_pairs(_turn(text, 7)) for text in FOUR)}",
            max(FOUR, key=len),
            _longest,
            [
                "from tools import from_pairs, turn_back\n"
                f"coded = {[_pairs(_turn(text, 7)) for text in FOUR]}\n"
                "print(max((turn_back(text=from_pairs(digits=c), by=7) for c in coded), key=len))"
            ],
        ),
        Task(
            "five_words",
            "Each of these words was woven and then turned on; the numbers are places turned and columns. Answer with the sentence that "
            f"they make: {', '.join(f'{_turn(_weave(word, columns), by)} {by} {columns}' for word, by, columns in FIVE)}",
            " ".join(word for word, _, _ in FIVE),
            _five_words,
            [
                "from tools import turn_back, unweave\n"
                f"words = {[(_turn(_weave(word, columns), by), by, columns) for word, by, columns in FIVE]}\n"
                "print(' '.join(unweave(text=turn_back(text=w, by=b), columns=c) for w, b, c in words))"
            ],
        ),
        Task(
            "about_ice",
            "One of the notes of the buoy Gannet is about ice. Answer with its text, decoded.",
            next(text for _, text, _, _ in PLAIN.values() if "ICE" in text.split()),
            _about_ice,
            [
                "from tools import list_notes, read_note, turn_back, unweave\n"
                "notes = [read_note(name=name) for name in list_notes(buoy='Gannet')]\n"
                f"texts = [{DECODE} for n in notes]\n"
                "print(next(t for t in texts if 'ICE' in t.split()))"
            ],
        ),
        Task(
            "count_e",
            "How often does the letter E occur in all notes of the buoy Petrel together, decoded? Answer with the number.",
            str(sum(text.count("E") for buoy, text, _, _ in PLAIN.values() if buoy == "Petrel")),
            _count_e,
            [
                "from tools import list_notes, read_note, turn_back, unweave\n"
                "notes = [read_note(name=name) for name in list_notes(buoy='Petrel')]\n"
                f"print(sum({DECODE}.count('E') for n in notes))"
            ],
        ),
        Task(
            "trail",
            "The note K1, decoded, is the word NEXT and the name of another note, and so on, until one says something else. "
            "Answer with the text of that one, decoded.",
            PLAIN["K3"][1],
            _trail,
            [
                "from tools import read_note, turn_back, unweave\n"
                "text = 'NEXT K1'\n"
                "while text.startswith('NEXT '):\n"
                "    n = read_note(name=text.split()[1])\n"
                f"    text = {DECODE}\n"
                "print(text)"
            ],
        ),
    ],
)
