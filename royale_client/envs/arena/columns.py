"""What the numbers of an observation mean: one table of planes, one table of vector columns.

Data only. The writers in `tensors` take their positions from here, and documentation is printed
from here, so the two cannot disagree. Every number is the seat's own view: own towers at the
bottom, left as that seat sees it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """One plane of tiles."""

    name: str
    """Short name, unique."""
    index: int
    """Position on the plane axis."""
    meaning: str
    """What a tile holds, unit included; 0 where nothing stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A range of neighbouring vector entries."""

    name: str
    """Short name, unique."""
    first: int
    """Position of the first entry."""
    count: int
    """Number of entries."""
    meaning: str
    """What they hold; every entry lies within [0, 1]."""

    @property
    def end(self) -> int:
        """Position after the last entry."""
        return self.first + self.count


NUM_CARDS = 16
"""Cards that one-hot columns have room for; `tensors` refuses a card table of another length."""
HAND = 4
"""Hand slots."""
ONE_OF = NUM_CARDS + 1
"""Entries of a one-hot «which card»: the first means none, then the cards in order."""

CARD_ID_TOWER = 1
"""Value of a tower in the planes of card identity."""
CARD_ID_FIRST = 2
"""Value of card 0 in the planes of card identity and of spells."""
HP_PER_LEVEL = 20
"""Hit points per level of a hit point plane."""

PLANES: tuple[Plane, ...] = tuple(
    Plane(name=name, index=index, meaning=meaning)
    for index, (name, meaning) in enumerate(
        (
            ("own ground", "own ground troops on the tile"),
            ("own air", "own flying troops on the tile"),
            ("own buildings", "own buildings on the tile"),
            ("own towers", "1 on every tile of an own tower that stands"),
            ("own hp", "hit points of what is own on the tile: levels of 20 begun, at most 255"),
            ("enemy ground", "enemy ground troops on the tile"),
            ("enemy air", "enemy flying troops on the tile"),
            ("enemy buildings", "enemy buildings on the tile"),
            ("enemy towers", "1 on every tile of an enemy tower that stands"),
            ("enemy hp", "hit points of all that is the enemy's on the tile, as «own hp»"),
            ("own deploying", "ticks until the slowest own unit on the tile may act"),
            ("enemy deploying", "ticks until the slowest enemy unit on the tile may act"),
            ("own card", "1 for a tower, 2 + card for a unit; the greatest on the tile"),
            ("enemy card", "as «own card», the enemy's"),
            ("own spell", "2 + card of an own spell that will land on the tile's centre"),
            ("enemy spell", "2 + card of an enemy spell that will land on the tile's centre"),
            ("own stunned", "1 where something own was stunned since the last view"),
            ("enemy stunned", "1 where something of the enemy was stunned since the last view"),
        )
    )
)
"""The planes of every observation, in order."""

STATIC_PLANE_NAMES = ("terrain", "no deploy")
"""Planes that never change. They are no part of an observation: they would make every stored and
every sent row 11 % longer to say the same each time. `tensors.STATIC_PLANES` holds them for a
policy that wants them; a bias learnt per tile after the first layer can express them as well."""


def _columns(entries: Iterable[tuple[str, int, str]]) -> tuple[Column, ...]:
    columns: list[Column] = []
    for name, count, meaning in entries:
        first = columns[-1].end if columns else 0
        columns.append(Column(name=name, first=first, count=count, meaning=meaning))
    return tuple(columns)


COLUMNS: tuple[Column, ...] = _columns(
    (
        ("own elixir", 1, "own elixir / 10, exact"),
        ("enemy elixir", 1, "the enemy's elixir / 10, known by counting its plays"),
        ("hand", HAND * ONE_OF, "per hand slot: one-hot of none, then the 16 cards"),
        ("hand cost", HAND, "per hand slot: elixir cost / 10, 0 if empty"),
        ("hand affordable", HAND, "per hand slot: 1 if the own elixir covers the cost"),
        ("next card", ONE_OF, "card that will replace the next one played: none, then the cards"),
        ("own deck", NUM_CARDS, "1 per card of the own deck"),
        ("enemy seen", NUM_CARDS, "1 per card that the enemy has played"),
        (
            "enemy hand",
            NUM_CARDS,
            "chance that the enemy holds the card, by its plays alone: 0 for its last four plays, "
            "1 for other cards seen, and the slots left spread evenly over the cards unseen",
        ),
        ("own last card", ONE_OF, "last card played: one-hot of none, then the cards"),
        ("enemy last card", ONE_OF, "the enemy's last card: one-hot of none, then the cards"),
        ("own tower hp", 3, "share of hit points left: keep, left, right"),
        ("enemy tower hp", 3, "share of hit points left: keep, left, right as this seat sees them"),
        ("crowns", 2, "crowns / 3: own, enemy"),
        ("keep awake", 2, "1 if the keep shoots: own, enemy"),
        (
            "clock",
            3,
            "ticks played / ticks of the longest battle; share of regulation left; 1 in overtime",
        ),
        ("elixir rate", 2, "one-hot: single rate, double rate"),
        ("own play age", 1, "ticks since the own last play / 200, at most 1; 1 before the first"),
        ("enemy play age", 1, "the same of the enemy"),
        ("enemy deck known", 1, "share of the enemy's eight cards that were seen"),
    )
)
"""The vector of every observation, in order."""

PLAY_AGE_TICKS = 200
"""Ticks after which a play counts as long ago."""

NUM_PLANES = len(PLANES)
VECTOR_SIZE = COLUMNS[-1].end


def markdown_tables() -> str:
    """Return both tables as Markdown, for the documentation."""
    planes = ["| plane | name | a tile holds |", "| --- | --- | --- |"]
    planes += [f"| {plane.index} | {plane.name} | {plane.meaning} |" for plane in PLANES]
    columns = ["| entries | name | meaning |", "| --- | --- | --- |"]
    columns += [f"| {_span(each)} | {each.name} | {each.meaning} |" for each in COLUMNS]
    return "\n".join([*planes, "", *columns, ""])


def _span(each: Column) -> str:
    return str(each.first) if each.count == 1 else f"{each.first}–{each.end - 1}"
