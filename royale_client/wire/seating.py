"""Who sits where, as it is told on the wire: assignments, and the features that ask for them.

A client that declares the feature ``assignments`` is told who plays each seat of its environments
with several. It plays scripted bots itself, those it offers by the features ``scripted:NAME``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from royale_client.wire.errors import ContractError, brief
from royale_client.wire.fields import integer, text
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

    def to_data(self) -> dict[str, Any]:
        """Return it as a map of the wire."""
        data = {"slot": self.slot, "episode": self.episode, "player": self.player.value}
        return {**data, "name": self.name} if self.name else data

    @classmethod
    def from_data(cls, data: Mapping[str, Any], num_slots: int) -> SeatAssignment:
        """Read a map of the wire.

        Raises:
            ProtocolError: A field is missing, or of another kind, or names no slot or player.
        """
        where = "assignments"
        fields = dict(data)
        slot = integer(fields, "slot", where)
        player = text(fields, "player", where, Limits().max_name_length)
        if slot >= num_slots:
            raise _wrong("slot", str(slot), f"one of {num_slots} slots, from 0")
        if player not in _PLAYERS:
            raise _wrong("player", brief(player), " or ".join(_PLAYERS))
        return cls(
            slot=slot,
            episode=integer(fields, "episode", where),
            player=Player(player),
            name=text(fields, "name", where, Limits().max_name_length) if "name" in fields else "",
        )


_PLAYERS = tuple(player.value for player in Player)


def read_assignments(
    maps: Sequence[Mapping[str, Any]], num_slots: int
) -> tuple[SeatAssignment, ...]:
    """Read the assignments of a welcome or an action.

    Args:
        maps: As they came.
        num_slots: Slots of the client.

    Raises:
        ProtocolError: One of them is none.
    """
    return tuple(SeatAssignment.from_data(data, num_slots) for data in maps)


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
