"""Keeps the newest actions that were sent to clients, so that an episode can be played again.

One entry a batch, a few small copies each, nothing per frame; the oldest go first. Runs
on the I/O thread; looking an episode up is left to who wants it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

if TYPE_CHECKING:
    from royale_server.model.engine import Inferred

Array = npt.NDArray[Any]

MOST_BYTES = 64 * 1024 * 1024
"""Size of the entries kept."""
MOST_EPISODES = 2000
"""Ended episodes that can be looked up."""


@dataclass(slots=True)
class Answered:
    """The actions of one batch."""

    slots: Array
    """Slot of each row, ``(n,)``."""
    episodes: Array
    """Episode ordinal of each row, ``(n,)``."""
    steps: Array
    """Step of each row within its episode, ``(n,)``."""
    actions: tuple[tuple[Array, ...], ...]
    """For each request of the batch one array per action leaf; rows in the order of ``slots``."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        leaves = sum(leaf.nbytes for part in self.actions for leaf in part)
        return leaves + self.slots.nbytes + self.episodes.nbytes + self.steps.nbytes

    def place(self, slot: int) -> int | None:
        """Return the row of a slot; None if it is not in the batch."""
        places = (self.slots == slot).nonzero()[0]
        return int(places[0]) if len(places) else None

    def action(self, place: int) -> list[Any]:
        """Return the action of a row, one entry a leaf."""
        part = 0
        while place >= len(self.actions[part][0]):
            place -= len(self.actions[part][0])
            part += 1
        return [leaf[place].tolist() for leaf in self.actions[part]]


@dataclass(frozen=True, slots=True)
class Ended:
    """An episode that ended."""

    row: Mapping[str, Any]
    """As in ``episodes.jsonl``."""
    slot: int
    """Within the run."""
    at: int
    """Number of batches answered before its end."""


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """An episode as its client was told to play it."""

    ordinal: int
    """Number of the episode within its slot."""
    actions: tuple[list[Any], ...]
    """One list of leaves a decision."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What was kept at one moment. Safe to look at from any thread."""

    answered: tuple[Answered, ...]
    """Oldest first."""
    first: int
    """Number of the first of them."""
    ended: tuple[Ended, ...]
    """Oldest first."""

    def episode(self, ended: Ended, *, slot: int | None = None) -> RecordedEpisode | None:
        """Look up the actions of an episode.

        Args:
            ended: The episode.
            slot: Another slot whose episode ended with it, as the other seat's; by default its own.

        Returns:
            None if nothing was answered in it, or its beginning is no longer kept.
        """
        wanted = ended.slot if slot is None else slot
        ordinal: int | None = None
        actions: list[list[Any]] = []
        for entry in reversed(self.answered[: max(0, ended.at - self.first)]):
            place = entry.place(wanted)
            if place is None:
                continue
            ordinal = int(entry.episodes[place]) if ordinal is None else ordinal
            if entry.episodes[place] != ordinal:
                return None
            actions.append(entry.action(place))
            if entry.steps[place] == 0:
                return RecordedEpisode(ordinal, tuple(reversed(actions)))
        return None


class ActionRecorder:
    """Takes what is answered and what ended.

    Args:
        most_bytes: Size of what is kept of answers.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._answered: deque[Answered] = deque()
        self._bytes = 0
        self._num_answered = 0
        self._ended: deque[Ended] = deque(maxlen=MOST_EPISODES)

    def inferred(self, result: Inferred) -> None:
        """Take the actions of a batch."""
        batch = result.batch
        actions = tuple(tuple(leaf.copy() for leaf in part) for part in result.actions)
        entry = Answered(batch.slots, batch.episodes.copy(), batch.steps.copy(), actions)
        self._answered.append(entry)
        self._num_answered += 1
        self._bytes += entry.nbytes
        while self._bytes > self._most_bytes:
            self._bytes -= self._answered.popleft().nbytes

    def ended(self, rows: Sequence[Mapping[str, Any]], first_slot: int) -> None:
        """Take episodes that ended; their slots count from the client's first."""
        at = self._num_answered
        self._ended.extend(Ended(row, first_slot + row["slot"], at) for row in rows)

    def recording(self) -> Recording:
        """Return what is kept now."""
        first = self._num_answered - len(self._answered)
        return Recording(tuple(self._answered), first, tuple(self._ended))
