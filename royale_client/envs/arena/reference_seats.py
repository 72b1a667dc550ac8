"""What the plain reference plays with: seats, towers, units, spells; and all of it as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import CARDS, Card
from royale_client.envs.arena.reference_paths import Point


@dataclass(slots=True, eq=False)
class Tower:
    """A tower of one seat; `place` is 0 for the keep, 1 and 2 for the flanks."""

    place: int
    hp: int
    cooldown: int = 0
    target: int = rules.LOST_TARGET
    stun: int = 0
    stunned: int = 0

    @property
    def at(self) -> Point:
        """Its middle, in its owner's frame."""
        return rules.TOWER_X[self.place], rules.TOWER_Y[self.place]


@dataclass(slots=True, eq=False)
class Unit:
    """A troop or a building of one seat."""

    card_id: int
    x: int
    y: int
    deploy: int
    hp: int
    life: int
    cooldown: int = 0
    target: int = rules.LOST_TARGET
    stun: int = 0
    stunned: int = 0

    @property
    def card(self) -> Card:
        """Its numbers."""
        return CARDS[self.card_id]


@dataclass(slots=True, eq=False)
class Spell:
    """A spell on its way, aimed in its owner's frame."""

    card_id: int
    x: int
    y: int
    delay: int


@dataclass(slots=True, eq=False)
class Seat:
    """Everything of one seat, in its own frame. A free slot is None."""

    deck: list[int]
    hand: list[int]
    queue: list[int]
    elixir: int = rules.ELIXIR_START
    counted_elixir: int = rules.ELIXIR_START
    crowns: int = 0
    keep_awake: int = 0
    play_status: int = rules.PLAY_NONE
    plays: int = 0
    refused: int = 0
    dropped: int = 0
    leak_decisions: int = 0
    seen: set[int] = field(default_factory=set)
    last_card: int = -1
    last_play_tick: int = -1
    towers: list[Tower] = field(
        default_factory=lambda: [Tower(t, rules.TOWER_HP[t]) for t in range(rules.TOWERS)]
    )
    units: list[Unit | None] = field(default_factory=lambda: [None] * rules.UNIT_SLOTS)
    spells: list[Spell | None] = field(default_factory=lambda: [None] * rules.SPELL_SLOTS)

    def standing(self) -> list[tuple[int, Unit]]:
        """Return the units with their slots, ascending."""
        return [(slot, unit) for slot, unit in enumerate(self.units) if unit is not None]

    def add(self, slots: list[Any], thing: Unit | Spell) -> None:
        """Put something into the lowest free slot, or count it as dropped."""
        if None in slots:
            slots[slots.index(None)] = thing
        else:
            self.dropped += 1

    def add_unit(self, card_id: int, x: int, y: int, deploy: int) -> None:
        """Put a fresh unit of a card down."""
        card = CARDS[card_id]
        unit = Unit(card_id, x, y, deploy, hp=card.hp, life=card.lifetime)
        self.add(self.units, unit)


_TOWER_NAMES = ("hp", "cooldown", "target", "stun", "stunned")
_FREE_UNIT = {
    "card": -1, "hp": 0, "x": 0, "y": 0, "cooldown": 0, "deploy": 0, "stun": 0, "stunned": 0,
    "target": rules.NO_TARGET, "life": -1,
}  # fmt: skip
_FREE_SPELL = {"card": -1, "x": 0, "y": 0, "delay": 0}
_SCALARS = (
    "elixir", "counted_elixir", "crowns", "keep_awake", "play_status", "plays", "refused",
    "dropped", "leak_decisions", "last_card", "last_play_tick",
)  # fmt: skip
_CARD_LISTS = ("deck", "hand", "queue")
SEAT_NAMES = (
    *_SCALARS,
    "seen",
    *_CARD_LISTS,
    *(f"tower_{name}" for name in _TOWER_NAMES),
    *(f"unit_{name}" for name in _FREE_UNIT),
    *(f"spell_{name}" for name in _FREE_SPELL),
)
"""Fields of a seat."""


def seat_fields(seat: Seat) -> dict[str, Any]:
    """Return the numbers of a seat by the names of its fields."""
    fields: dict[str, Any] = {name: getattr(seat, name) for name in _SCALARS}
    fields["seen"] = sum(1 << card_id for card_id in seat.seen)
    fields |= {name: list(getattr(seat, name)) for name in _CARD_LISTS}
    for name in _TOWER_NAMES:
        fields[f"tower_{name}"] = [getattr(tower, name) for tower in seat.towers]
    for prefix, slots, free in (
        ("unit", seat.units, _FREE_UNIT),
        ("spell", seat.spells, _FREE_SPELL),
    ):
        for name, blank in free.items():
            attribute = "card_id" if name == "card" else name
            fields[f"{prefix}_{name}"] = [
                blank if thing is None else getattr(thing, attribute) for thing in slots
            ]
    return fields


def seat_from(fields: Mapping[str, Any]) -> Seat:
    """Return the seat that `seat_fields` describes."""
    seat = Seat(list(fields["deck"]), list(fields["hand"]), list(fields["queue"]))
    for name in _SCALARS:
        setattr(seat, name, fields[name])
    seat.seen = {card_id for card_id in range(len(CARDS)) if fields["seen"] >> card_id & 1}
    for t in range(rules.TOWERS):
        values = {name: fields[f"tower_{name}"][t] for name in _TOWER_NAMES}
        seat.towers[t] = Tower(t, **values)
    for slot in range(rules.UNIT_SLOTS):
        values = {name: fields[f"unit_{name}"][slot] for name in _FREE_UNIT}
        card_id = values.pop("card")
        seat.units[slot] = None if card_id < 0 else Unit(card_id=card_id, **values)
    for slot in range(rules.SPELL_SLOTS):
        values = {name: fields[f"spell_{name}"][slot] for name in _FREE_SPELL}
        card_id = values.pop("card")
        seat.spells[slot] = None if card_id < 0 else Spell(card_id=card_id, **values)
    return seat
