"""The cells of rollout storage: which are free, and what each of the others holds.

Knows cells, the slot and policy version each was given to, and which comes next. Never knows what
a slot did before or does next, nor why a cell is given up.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from royale_server.scheduler.roster import IntArray

# Plain integers: comparing an array with an enumeration member asks that member's class for
# half a dozen attributes, which costs more than the comparison.
FREE: Final = 0
RESERVED: Final = 1
COMPLETE: Final = 2


class Cells:
    """State, tag and slot of every cell.

    Args:
        capacity: Cells in storage.
        ring: Whether the oldest complete cells are overwritten (off-policy).
    """

    def __init__(self, capacity: int, *, ring: bool) -> None:
        self.capacity = capacity
        self.ring = ring
        self._cursor = 0
        self.numbers = np.arange(capacity)
        """0, 1, …: views of it are handed out as cells."""
        self.numbers.flags.writeable = False
        self._state = np.zeros(capacity, np.int8)
        self._tag = np.zeros(capacity, np.int64)
        self._slot = np.zeros(capacity, np.int64)

    # --- which cells come next ------------------------------------------------------

    def take_next(self, count: int) -> int | None:
        """Take the cells after the last ones; return the first, None if they do not follow."""
        first = self._cursor
        stop = first + count
        if self.ring or stop > self.capacity:
            return None
        self._cursor = stop
        return first

    def take_free(self, count: int) -> IntArray:
        """Take free cells, wherever they lie. The spans must be settled and posted."""
        free = np.flatnonzero(self._state == FREE)[:count]
        if len(free) < count:
            raise AssertionError(f"storage of {self.capacity} cells is full: {count} wanted")
        return free

    def take_oldest(self, count: int, *, num_reserved: int) -> IntArray:
        """Take the next cells of the ring that are not reserved; what they hold is overwritten."""
        span = min(self.capacity, count + num_reserved)
        order = (self._cursor + np.arange(span)) % self.capacity
        cells: IntArray = order[self._state[order] != RESERVED][:count]
        if len(cells) < count:
            raise AssertionError(f"ring of {self.capacity} cells is all reserved: {count} wanted")
        self._cursor = int(cells[-1] + 1) % self.capacity
        return cells

    # --- what they hold ---------------------------------------------------------------

    def reserve(self, cells: IntArray, slots: IntArray, version: int) -> None:
        """Give these cells to slots, for frames of a policy version."""
        self._state[cells] = RESERVED
        self._tag[cells] = version
        self._slot[cells] = slots

    def complete(self, cells: IntArray) -> None:
        """Note that the outcome of these frames has arrived."""
        self._state[cells] = COMPLETE

    def complete_of(self, cells: IntArray, slots: IntArray) -> None:
        """Note the same of cells whose slots are not written down yet."""
        self._state[cells] = COMPLETE
        self._slot[cells] = slots

    def free(self, cells: IntArray) -> None:
        """Let these cells be taken again."""
        self._state[cells] = FREE

    def clear(self) -> None:
        """Free every cell."""
        self._state[:] = FREE
        self._cursor = 0

    def load(self, slots: IntArray, version: int) -> None:
        """Begin with one complete cell for each of these slots, in the first cells."""
        count = len(slots)
        if count > self.capacity:
            raise AssertionError(f"{count} frames do not fit into {self.capacity} cells")
        self._state[:count] = COMPLETE
        self._tag[:count] = version
        self._slot[:count] = slots
        self._cursor = count

    # --- a look at them -----------------------------------------------------------------

    def slots_of(self, cells: IntArray) -> IntArray:
        """Return the slot of each, ``(k,)``. Their spans must be posted."""
        return self._slot[cells]

    def are_of(self, version: int, cells: IntArray) -> bool:
        """Whether all these frames were made by this policy version."""
        return bool((self._tag[cells] == version).all())

    def complete_among(self, cells: IntArray) -> IntArray:
        """Return those of the cells that are complete. The spans must be posted."""
        complete: IntArray = cells[self._state[cells] == COMPLETE]
        return complete

    def handed_out(self) -> IntArray | None:
        """Return a copy of all cells since the last `clear`; None in a ring, which has no such."""
        if self.ring:
            return None
        cells: IntArray = self.numbers[: self._cursor].copy()
        return cells

    def all_complete(self) -> IntArray:
        """Return the complete cells, ascending. The spans must be posted."""
        return np.flatnonzero(self._state == COMPLETE)

    def count(self, state: int) -> int:
        """Count the cells in a state. The spans must be settled and posted."""
        return int(np.count_nonzero(self._state == state))


def first_of_block(cells: IntArray) -> int | None:
    """Return the first of these cells if each follows the one before; None if there is none."""
    count = len(cells)
    if not count:
        return None
    first = int(cells[0])
    return first if int(cells[-1]) - first == count - 1 else None
