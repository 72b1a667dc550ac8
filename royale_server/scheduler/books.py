"""What decides the future of the frames, as plain values: the ledger's part of a checkpoint.

Knows how the columns of a ledger without reserved cells become values and begin from them again.
Never knows sessions or requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from royale_server.scheduler.cells import Cells
from royale_server.scheduler.roster import IntArray
from royale_server.scheduler.slots import NO_CELL, Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBooks:
    """What decides the future of the frames when no cell is reserved. M cells, S slots."""

    cells: IntArray
    """Complete cells, ascending, ``(M,)``. Loaded, they become the cells 0 to M - 1."""
    cell_slots: IntArray
    """Slot of each, ``(M,)``."""
    tails: IntArray
    """Each slot's last stored frame if it goes on, as an index into ``cells``; else -1. ``(S,)``"""
    ordinals: IntArray
    """Number of each slot's next frame, ``(S,)``."""
    answered: IntArray
    """What each slot's last answer was, ``(S,)``."""
    episode_frames: IntArray
    """Stored frames of each slot's running episode, ``(S,)``."""

    @classmethod
    def copied(cls, cells: Cells, slots: Slots, complete: IntArray) -> LedgerBooks:
        """Copy a ledger's columns, which must be up to date; ``complete`` are its frames."""
        used = slots.used
        tails = slots.tail[used]
        places = np.where(tails != NO_CELL, np.searchsorted(complete, tails), NO_CELL)
        return cls(
            cells=complete,
            cell_slots=cells.slots_of(complete),
            tails=places,
            ordinals=slots.ordinal[used].copy(),
            answered=slots.answered[used].copy(),
            episode_frames=slots.episode_frames[used].copy(),
        )

    def write(self, cells: Cells, slots: Slots, version: int) -> None:
        """Let columns to which nothing has happened begin here."""
        cells.load(self.cell_slots, version)
        slots.add(len(self.tails))
        used = slots.used
        slots.tail[used] = self.tails
        slots.ordinal[used] = self.ordinals
        slots.answered[used] = self.answered
        slots.episode_frames[used] = self.episode_frames
