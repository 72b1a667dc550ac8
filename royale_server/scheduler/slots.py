"""What the ledger keeps per slot: its open cell, its last frame, its numbers.

Knows columns over slots, one entry each. Never knows which cells are free, nor clients.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from royale_server.scheduler.roster import BoolArray, IntArray

NO_CELL: Final = -1

# What a slot's last answer was.
NEVER: Final = 0
WITH_CELL: Final = 1
CELL_GIVEN_UP: Final = 2
WITHOUT_CELL: Final = 3
SETTLED: Final = 4
"""Its last frame is settled, if it had one, and its next is not yet inferred."""
OF_OTHERS: Final = 5
"""Without a cell, since somebody else than the learner plays it."""


class Slots:
    """Columns over all slots that were ever numbered, with room for more behind them."""

    def __init__(self) -> None:
        self.count = 0
        self.open = np.zeros(0, np.int64)
        """The slot's reserved cell, else -1."""
        self.tail = np.zeros(0, np.int64)
        """Its last stored frame if that goes on, else -1."""
        self.ordinal = np.zeros(0, np.int64)
        """Number of its next frame."""
        self.answered = np.zeros(0, np.int64)
        """What its last answer was."""
        self.episode_frames = np.zeros(0, np.int64)
        """Stored frames of its running episode."""

    @property
    def used(self) -> slice:
        """The slots there are, as an index into the columns."""
        return slice(0, self.count)

    def add(self, count: int) -> int:
        """Number ``count`` new slots; numbers are never used twice. Returns the first."""
        first = self.count
        self.count += count
        if self.count > len(self.open):
            self._grow(max(2 * len(self.open), self.count))
        return first

    def _grow(self, size: int) -> None:
        self.open = _extended(self.open, size, NO_CELL)
        self.tail = _extended(self.tail, size, NO_CELL)
        self.ordinal = _extended(self.ordinal, size, 0)
        self.answered = _extended(self.answered, size, NEVER)
        self.episode_frames = _extended(self.episode_frames, size, 0)

    def forget_tails(self, slots: slice | BoolArray) -> None:
        """Let nothing that comes later be taken for a successor of these slots' last frames."""
        self.tail[self.used][slots] = NO_CELL

    def num_of_others(self) -> int:
        """Slots in which an action of somebody else than the learner is being carried out."""
        return int(np.count_nonzero(self.answered[self.used] == OF_OTHERS))

    def overwritten(self, cells: IntArray, slots: IntArray) -> None:
        """These frames of these slots are no longer stored: nothing follows them."""
        self.tail[slots[self.tail[slots] == cells]] = NO_CELL

    def restart(self, slots: slice) -> None:
        """Let fresh episodes begin here; the frame numbers get a gap."""
        self.tail[slots] = NO_CELL
        self.answered[slots] = NEVER
        self.episode_frames[slots] = 0
        self.ordinal[slots] += 1


def _extended(array: IntArray, size: int, fill: int) -> IntArray:
    grown = np.full(size, fill, array.dtype)
    grown[: len(array)] = array
    return grown
