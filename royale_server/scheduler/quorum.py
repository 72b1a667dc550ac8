"""Who is on time. Knows turns and times, nothing of frames or requests.

A turn of a group runs from its answer to its next request. It is late once longer than
``patience`` times the running median turn of the *other* sessions' groups; three late turns
running and the group leaves the quorum, three on time and it returns.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from royale_server.scheduler.state import Turns

TURNS_KEPT = 9
TURNS_TO_CHANGE = 3

K = TypeVar("K")


@dataclass(slots=True, eq=False)
class Punctuality:
    """The turns of one group, in seconds."""

    session: Hashable
    turns: deque[float] = field(default_factory=lambda: deque(maxlen=TURNS_KEPT))
    median: float | None = None
    in_quorum: bool = True
    streak: int = 0
    """Turns running that speak for a change of membership."""


class Quorum(Generic[K]):
    """Membership by punctuality.

    Args:
        patience: Multiple of the others' median turn beyond which a turn is late.
        floor_s: Turns up to this long are never late, seconds.
    """

    def __init__(self, *, patience: float, floor_s: float) -> None:
        self._patience = patience
        self.floor_s = floor_s
        """No turn up to this long is late, seconds."""
        self._groups: dict[K, Punctuality] = {}
        self._sessions: dict[Hashable, list[Punctuality]] = {}
        self._medians: list[float] = []  # of all groups, sorted: the others' median in O(1)
        self._unsorted: dict[Punctuality, None] = {}  # whose last turns are not in there yet
        self.on_time: set[K] = set()
        """The groups that are waited for."""

    def enter(self, group: K, session: Hashable) -> None:
        """Count a group of a session in from its first step on."""
        record = Punctuality(session)
        self._groups[group] = record
        self._sessions.setdefault(session, []).append(record)
        self.on_time.add(group)

    def turns(self, group: K) -> Turns:
        """What is known of a group's punctuality."""
        record = self._groups[group]
        return Turns(seconds=tuple(record.turns), in_quorum=record.in_quorum, streak=record.streak)

    def enter_again(self, group: K, session: Hashable, turns: Turns) -> None:
        """Count a group in with what was known of it."""
        self.enter(group, session)
        record = self._groups[group]
        record.turns.extend(turns.seconds)
        if record.turns:
            self._unsorted[record] = None
        record.streak = turns.streak
        self._set_membership(group, record, turns.in_quorum)

    def leave(self, group: K) -> None:
        """Forget a group that is gone."""
        record = self._groups.pop(group, None)
        if record is None:
            return
        if record.median is not None:
            self._forget_median(record.median)
        self._unsorted.pop(record, None)
        self.on_time.discard(group)
        self._sessions[record.session].remove(record)
        if not self._sessions[record.session]:
            del self._sessions[record.session]

    def __contains__(self, group: K) -> bool:
        return group in self.on_time

    def patience_s(self, group: K) -> float:
        """How long a turn of this group may last, in seconds; infinite without others.

        The others' median is the median of their own medians: one number a group, so that a
        fast group's many turns do not outvote the rest. A client's own second group is no
        other: it runs on the same machine and would vouch for its twin. Others that have not
        ended a turn yet are not made to wait for one whose first turn never ends.
        """
        own = self._sessions[self._groups[group].session]
        if len(self._groups) == len(own):
            return math.inf
        self._sort()
        middle = self._median_without([r.median for r in own if r.median is not None])
        return self.floor_s if middle is None else max(self.floor_s, self._patience * middle)

    def turn_ended(self, group: K, duration_s: float) -> bool | None:
        """Record a turn.

        Returns:
            True if the group returns to the quorum by it, False if it leaves, else None.
        """
        record = self._groups[group]
        # Most turns are below the floor, which needs no median.
        is_late = duration_s > self.floor_s and duration_s > self.patience_s(group)
        record.turns.append(duration_s)
        self._unsorted[record] = None
        if is_late is not record.in_quorum:
            record.streak = 0
            return None
        record.streak += 1
        if record.streak < TURNS_TO_CHANGE:
            return None
        record.streak = 0
        self._set_membership(group, record, not is_late)
        return record.in_quorum

    def _set_membership(self, group: K, record: Punctuality, in_quorum: bool) -> None:
        record.in_quorum = in_quorum
        if in_quorum:
            self.on_time.add(group)
        else:
            self.on_time.discard(group)

    def _sort(self) -> None:
        """Bring the medians up to date."""
        for record in self._unsorted:
            if record.median is not None:
                self._forget_median(record.median)
            ordered = sorted(record.turns)
            record.median = ordered[(len(ordered) - 1) // 2]
            bisect.insort(self._medians, record.median)
        self._unsorted.clear()

    def _forget_median(self, value: float) -> None:
        del self._medians[bisect.bisect_left(self._medians, value)]

    def _median_without(self, own: list[float]) -> float | None:
        """Median of all groups' medians but these; of two middle ones the lower.

        The mean of the two would let one slow client vouch for another beside one fast one.
        """
        count = len(self._medians) - len(own)
        if count <= 0:
            return None
        middle = (count - 1) // 2
        skipped = -1
        for value in sorted(own):
            skipped = bisect.bisect_left(self._medians, value, skipped + 1)
            middle += middle >= skipped
        return self._medians[middle]
