"""Who sits where, as it is told on the wire: assignments, and the features that ask for them.

A client that declares the feature ``assignments`` is told who plays each seat of its environments
with several. It plays scripted bots itself, those it offers by the features ``scripted:NAME``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from royale_client.wire.errors import ContractError, brief
from royale_client.wire.fields import integer, integers, text
from royale_client.wire.limits import Limits

ASSIGNMENTS = "assignments"
"""The feature of clients that follow assignments."""

_OFFER = "scripted:"


class Player(Enum):
    """Who may sit in a seat."""

    LEARNER = "learner"
    """The policy that learns."""
    SNAPSHOT = "snapshot"
    """An earlier policy: to the client the same as the learner."""
    SCRIPTED = "scripted"
    """A bot of the client's own: its row does not ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatAssignment:
    """Who plays one episode of one slot."""

    slot: int
    """Number of the slot within its client, from 0; within its group once it is at a driver."""
    episode: int
    """Ordinal of the episode in the slot, as the server counts."""
    player: Player
    name: str = ""
    """Name of the bot, or number of the snapshot; empty for the learner."""


_PLAYERS = tuple(player.value for player in Player)


def write_assignments(assignments: Iterable[SeatAssignment]) -> tuple[dict[str, Any], ...]:
    """Return assignments as maps of the wire.

    One map holds all slots of one episode and player, so that a client with thousands of slots is
    told in a few hundred bytes. Each slot's episodes stay in their order.
    """
    slots: dict[tuple[int, Player, str], list[int]] = {}
    for a in assignments:
        slots.setdefault((a.episode, a.player, a.name), []).append(a.slot)
    return tuple(
        {"slots": slots[key], "episode": key[0], "player": key[1].value}
        | ({"name": key[2]} if key[2] else {})
        for key in sorted(slots, key=lambda key: key[0])
    )


def read_assignments(
    maps: Iterable[Mapping[str, Any]], num_slots: int
) -> tuple[SeatAssignment, ...]:
    """Read the assignments of a welcome or an action.

    Args:
        maps: As they came.
        num_slots: Slots of the client.

    Returns:
        Each slot's in the order in which they came.

    Raises:
        ProtocolError: A field is missing, or of another kind, or names no slot or player.
    """
    return tuple(assignment for data in maps for assignment in _read(dict(data), num_slots))


def _read(data: dict[str, Any], num_slots: int) -> list[SeatAssignment]:
    where, longest = "assignments", Limits().max_name_length
    slots = integers(data, "slots", where, num_slots)
    player = text(data, "player", where, longest)
    if slots and max(slots) >= num_slots:
        raise _wrong("slots", str(max(slots)), f"slots of {num_slots}, from 0")
    if player not in _PLAYERS:
        raise _wrong("player", brief(player), " or ".join(_PLAYERS))
    episode = integer(data, "episode", where)
    name = text(data, "name", where, longest) if "name" in data else ""
    return [
        SeatAssignment(slot=slot, episode=episode, player=Player(player), name=name)
        for slot in slots
    ]


def seating_features(bots: Iterable[str]) -> tuple[str, ...]:
    """Return the features of a client that follows assignments and offers these bots."""
    return (ASSIGNMENTS, *(_OFFER + bot for bot in bots))


def offered_bots(features: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the bots that a client offers, in its order."""
    return tuple(f.removeprefix(_OFFER) for f in features if f.startswith(_OFFER))


def _wrong(key: str, got: str, expected: str) -> ContractError:
    return ContractError(
        "an assignment of seats names nothing there is",
        where=f"assignments.{key}",
        got=got,
        expected=expected,
    )
