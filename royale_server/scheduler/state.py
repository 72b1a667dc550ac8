"""What the scheduler remembers at a rest point, as plain values: the part of it in a checkpoint.

At rest no cell is reserved and nothing is in flight, so a session is its parked requests and the
turns that were measured. Sessions that have no request here are not part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from royale_server.scheduler.books import LedgerBooks
from royale_server.scheduler.roster import BoolArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Punctuality of one group."""

    seconds: tuple[float, ...]
    """Its last turns, oldest first."""
    in_quorum: bool
    streak: int
    """Turns running that speak for a change of membership."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedGroup:
    """One group with its parked request. ``n`` slots."""

    start: int
    """Its first slot."""
    size: int
    number: int
    """Request number."""
    asks: BoolArray
    """Rows that ask, ``(n,)``."""
    payload: Any
    """The received message; never looked into here."""
    turns: Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedMember:
    """One train session."""

    name: str
    groups: tuple[SavedGroup, ...]

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Slots of each group."""
        return tuple(group.size for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerState:
    """All of it. S slots were ever numbered."""

    version: int
    round: int
    """Number of the next round of a fixed order."""
    members_ever: int
    """Train sessions that ever joined."""
    members: tuple[SavedMember, ...]
    """In order of joining."""
    books: LedgerBooks
    tainted: BoolArray
    """Slots whose running episode is not trained on, ``(S,)``."""
    seats: IntArray
    """Who plays each slot's running episode, ``(S,)``; see ``Request.seats``."""
    episodes: IntArray
    """Ordinal of each slot's running episode, ``(S,)``."""
    steps: IntArray
    """Actions taken in it, ``(S,)``."""
