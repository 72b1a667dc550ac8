"""What became of every frame. Knows cells, slots, tags and reasons; no times, no clients.

Every cell is free, reserved (its action was inferred), or complete (its outcome arrived).
There is no operation that loses a frame: reserved cells either complete or are given up for
one named reason, so the numbers always add up (`conservation_error`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from royale_server.scheduler.roster import ONE, BoolArray, IntArray, Span, joined

NO_CELL = -1


class Discard(enum.Enum):
    """Why a frame was not trained on."""

    LATE = "late"
    CUT = "cut"
    LOST = "lost"
    INVALID = "invalid"
    STALE = "stale"
    BUFFER_FULL = "buffer_full"


# Plain integers: comparing an array with an enumeration member asks that member's class for
# half a dozen attributes, which costs more than the comparison.
_FREE: Final = 0
_RESERVED: Final = 1
_COMPLETE: Final = 2

# What a slot's last answer was.
_NEVER: Final = 0
_WITH_CELL: Final = 1
_CELL_GIVEN_UP: Final = 2
_WITHOUT_CELL: Final = 3
_SETTLED: Final = 4
"""Its last frame is settled, if it had one, and its next is not yet inferred."""

_OUTLIVED: Final = "a reserved cell outlived its policy version"


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


class FrameLedger:
    """Cells of the rollout storage and the open cell of every slot.

    Args:
        capacity: Cells in storage: the target and the most slots for on-policy runs,
            the ring of a replay buffer otherwise.
        ring: Whether reserving overwrites the oldest complete cells (off-policy).
    """

    def __init__(self, *, capacity: int, ring: bool = False) -> None:
        self.capacity = capacity
        self.version = 0
        self.num_reserved = 0
        self.num_complete = 0
        self.reserved_total = 0
        self.stored_total = 0
        self.loaded_total = 0
        self.no_state_total = 0
        self.without_cell_total = 0
        self.env_steps_total = 0
        """Environment steps reported by learner seats, trained on or not."""
        self._given_up = dict.fromkeys(Discard, 0)
        self._ring = ring
        self._cursor = 0
        self._numbers = np.arange(capacity)
        self._numbers.flags.writeable = False  # views of it are handed out as cells
        self._state = np.zeros(capacity, np.int8)
        self._tag = np.zeros(capacity, np.int64)
        self._slot = np.zeros(capacity, np.int64)
        self._num_slots = 0
        self._open = np.zeros(0, np.int64)
        self._tail = np.zeros(0, np.int64)
        self._ordinal = np.zeros(0, np.int64)
        self._answered = np.zeros(0, np.int64)
        self._episode_frames = np.zeros(0, np.int64)
        # What the arrays do not say yet: spans of which more is known, completed blocks.
        self._unsettled: dict[Span, None] = {}
        self._unposted: list[tuple[int, Span]] = []

    # --- slots ---------------------------------------------------------------------

    def add_slots(self, count: int) -> int:
        """Number ``count`` new slots; numbers are never used twice. Returns the first."""
        first = self._num_slots
        self._num_slots += count
        if self._num_slots > len(self._open):
            self._grow(max(2 * len(self._open), self._num_slots))
        return first

    def _grow(self, size: int) -> None:
        self._open = _extended(self._open, size, NO_CELL)
        self._tail = _extended(self._tail, size, NO_CELL)
        self._ordinal = _extended(self._ordinal, size, 0)
        self._answered = _extended(self._answered, size, _NEVER)
        self._episode_frames = _extended(self._episode_frames, size, 0)

    # --- the life of a frame -------------------------------------------------------

    def reserve(self, slots: IntArray) -> tuple[IntArray, IntArray]:
        """Reserve one cell for each slot, in order. Their spans must be settled.

        Args:
            slots: Slots about to get an action, shape ``(k,)``.

        Returns:
            The cells and the frames' ordinals within their slots, each ``(k,)``.
        """
        cells = self._take(len(slots))
        ordinals = self._ordinal[slots]
        self._ordinal[slots] = ordinals + 1
        self._state[cells] = _RESERVED
        self._tag[cells] = self.version
        self._slot[cells] = slots
        self._open[slots] = cells
        self._answered[slots] = _WITH_CELL
        self.num_reserved += len(slots)
        self.reserved_total += len(slots)
        return cells, ordinals

    def reserve_spans(self, spans: Sequence[Span], slots: IntArray) -> tuple[IntArray, IntArray]:
        """Reserve one cell for each slot of whole spans; the same as `reserve`, for the usual case.

        Args:
            spans: Spans of which every slot is about to get an action.
            slots: Their slots, in order, shape ``(k,)``.
        """
        first, count = self._cursor, len(slots)
        stop = first + count
        if self._ring or stop > self.capacity:
            return self._reserve_elsewhere(spans, slots)
        cells = self._numbers[first:stop]
        ordinals = []
        for span in spans:
            span.block, span.version = first, self.version
            first += span.size
            taken = span.ordinals
            if taken is None:
                taken = self._ordinal[span.slots].copy()
            ordinals.append(taken)
            span.ordinals = taken + ONE
            self._unsettled[span] = None
        self._cursor = stop
        self.num_reserved += count
        self.reserved_total += count
        return cells, joined(ordinals)

    def _reserve_elsewhere(
        self, spans: Sequence[Span], slots: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Reserve cells that may lie anywhere, and as blocks if they do not."""
        for span in spans:
            self.settle(span)
        cells, ordinals = self.reserve(slots)
        first = first_of_block(cells)
        if first is not None:
            for span in spans:
                self.as_block(span, first)
                first += span.size
        return cells, ordinals

    def answered_without_cell(self, span: Span, rows: IntArray) -> None:
        """Note that these rows of a span got an action whose frame is not the learner's."""
        self.settle(span)
        self._answered[span.slots][rows] = _WITHOUT_CELL
        self._tail[span.slots][rows] = NO_CELL

    def receive(
        self, span: Span, asks: BoolArray, ended: BoolArray, *, has_feedback: bool
    ) -> tuple[IntArray, IntArray, BoolArray]:
        """Take the outcome of a group's last actions.

        A cell completes when its row asks again or its episode ended; until then rewards
        add up in it.

        Args:
            span: The group's slots, ``n`` of them.
            asks: Rows that want the next action, ``(n,)``.
            ended: Rows whose episode ended, ``(n,)``.
            has_feedback: Whether the message answers for a last action at all.

        Returns:
            Rows with an open cell ``(k,)``, their cells ``(k,)``, and which completed ``(k,)``.
        """
        self.settle(span)
        slots = span.slots
        answered = self._answered[slots]
        over = asks | ended
        rows = (answered == _WITH_CELL).nonzero()[0]
        cells = self._open[slots][rows]
        finished = over[rows]
        if len(rows) == len(answered):
            self.env_steps_total += len(rows)
        else:
            self._count_others(answered, over, has_feedback=has_feedback)
        done = cells[finished]
        if len(done):
            if not self._ring and not self._is_current(done):
                raise AssertionError(_OUTLIVED)
            self._complete(slots, rows[finished], done, ended)
        answered[over] = _SETTLED
        return rows, cells, finished

    def receive_block(self, span: Span, ended: BoolArray | None) -> IntArray:
        """Take the outcome of a group of which every row asks and has a cell of the span's block.

        The same as `receive`, for the usual case, at a cost that hardly depends on the rows.

        Args:
            span: The group's slots, ``n`` of them.
            ended: Rows whose episode ended, ``(n,)``; None if none did. Kept, not copied.

        Returns:
            The cells, which are all complete now, ``(n,)``.
        """
        first, count = span.block, span.size
        assert first is not None, "the rows of this group have no cells that follow each other"
        if span.version != self.version and not self._ring:
            raise AssertionError(_OUTLIVED)
        span.block = None
        span.tails = first
        span.no_tails = ended
        span.frames += 1
        self._unsettled[span] = None
        self._unposted.append((first, span))
        self.env_steps_total += count
        self.num_reserved -= count
        self.num_complete += count
        self.stored_total += count
        return self._numbers[first : first + count]

    def settle(self, span: Span) -> None:
        """Write what is known of a span's slots alike into the arrays, for a look at each."""
        self._unsettled.pop(span, None)
        slots = span.slots
        if span.block is not None:
            cells = self._numbers[span.block : span.block + span.size]
            self._state[cells] = _RESERVED
            self._slot[cells] = np.arange(span.start, span.stop)
            self._tag[cells] = span.version
            self._open[slots] = cells
            self._answered[slots] = _WITH_CELL
            span.block = None
        if span.tails is not None:
            cells = self._numbers[span.tails : span.tails + span.size]
            ended = span.no_tails
            self._tail[slots] = cells if ended is None else np.where(ended, NO_CELL, cells)
            span.tails = span.no_tails = None
        if span.frames:
            self._episode_frames[slots] += span.frames
            span.frames = 0
        if span.ordinals is not None:
            self._ordinal[slots] = span.ordinals
            span.ordinals = None

    def as_block(self, span: Span, first: int) -> None:
        """Keep the cells of a span's slots, which follow each other, as a block from now on."""
        self._answered[span.slots] = _SETTLED
        self._open[span.slots] = NO_CELL
        span.block, span.version = first, self.version

    def _count_others(self, answered: IntArray, over: BoolArray, *, has_feedback: bool) -> None:
        """Count the frames of rows that have no cell."""
        if not has_feedback:
            answered[answered == _NEVER] = _SETTLED  # fresh episodes: no action is open anywhere
            return
        self.env_steps_total += int(np.count_nonzero(answered != _SETTLED))
        self.no_state_total += int(np.count_nonzero(over & (answered == _NEVER)))
        self.without_cell_total += int(np.count_nonzero(over & (answered == _WITHOUT_CELL)))

    def _complete(
        self,
        slots: slice,
        rows: IntArray,
        cells: IntArray,
        ended: BoolArray,
    ) -> None:
        """Count rows of a group whose frames are complete.

        Args:
            slots: The group's slots.
            rows: Rows of the group.
            cells: Their cells.
            ended: Rows of the group whose episode ended.
        """
        self._state[cells] = _COMPLETE
        self._open[slots][rows] = NO_CELL
        self._tail[slots][rows] = np.where(ended[rows], NO_CELL, cells)
        self._episode_frames[slots][rows] += 1
        self.num_reserved -= len(cells)
        self.num_complete += len(cells)
        self.stored_total += len(cells)

    def _is_current(self, cells: IntArray) -> bool:
        """Whether all these frames were made by the current policy (the version rule)."""
        return bool((self._tag[cells] == self.version).all())

    def give_up(self, cells: IntArray, reason: Discard) -> tuple[IntArray, IntArray]:
        """Give reserved cells up and free their storage.

        Args:
            cells: As `open_cells` or `open_rows` named them.
            reason: Why.

        Returns:
            ``(previous, given_up)``: complete frames that were followed by one of the cells
            and need its value as bootstrap, and those cells; equal shapes.
        """
        slots = self._slot[cells]
        tails = self._tail[slots]
        followed = tails != NO_CELL
        self._state[cells] = _FREE
        self._open[slots] = NO_CELL
        self._tail[slots] = NO_CELL
        self._answered[slots] = _CELL_GIVEN_UP
        self.num_reserved -= len(cells)
        self._given_up[reason] += len(cells)
        return tails[followed], cells[followed]

    def open_cells(self, span: Span) -> IntArray:
        """Reserved cells of a group, in slot order."""
        return self.open_rows(span)[1]

    def open_rows(self, span: Span) -> tuple[IntArray, IntArray]:
        """Rows of a group with a reserved cell, and those cells."""
        self.settle(span)
        cells = self._open[span.slots]
        rows = (cells != NO_CELL).nonzero()[0]
        return rows, cells[rows]

    def unfinished_tails(self, span: Span, asks: BoolArray) -> tuple[IntArray, IntArray]:
        """Asking rows whose last frame is stored and goes on, and that frame's cell.

        These are the frames whose successor value is that of the waiting observation.
        """
        self.settle(span)
        tails = self._tail[span.slots]
        rows = (asks & (tails != NO_CELL)).nonzero()[0]
        return rows, tails[rows]

    def forget_tails(self, slots: slice | BoolArray) -> None:
        """Let nothing that comes later be taken for a successor of these slots' last frames."""
        self._settle_spans()
        self._tail[: self._num_slots][slots] = NO_CELL

    def take_episode_frames(self, span: Span, rows: IntArray) -> IntArray:
        """Stored frames of the episodes that just ended in these rows of a span; counts anew."""
        frames = self._episode_frames[span.slots]
        counts = frames[rows] + span.frames
        frames[rows] = -span.frames
        return counts

    # --- the iteration --------------------------------------------------------------

    def complete_cells(self) -> IntArray:
        """Cells to learn from, ascending."""
        if self.num_complete == self._cursor and not self._ring:
            return self._numbers[: self._cursor].copy()  # all that were handed out
        self._post()
        return np.flatnonzero(self._state == _COMPLETE)

    def start_version(self, version: int) -> None:
        """Count a learn step; on-policy, its frames are used up and their cells free."""
        self.version = version
        if self._ring:
            return
        if self.num_reserved:
            raise AssertionError(f"{self.num_reserved} cells reserved across a learn step")
        self._unposted.clear()
        self._state[:] = _FREE
        self.num_complete = 0
        self._cursor = 0

    # --- at rest ------------------------------------------------------------------------

    def books(self) -> LedgerBooks:
        """Copy what decides the future of the frames. No cell may be reserved."""
        if self.num_reserved:
            raise AssertionError(f"{self.num_reserved} cells reserved at rest")
        self._settle_all()
        cells = self.complete_cells()
        used = slice(0, self._num_slots)
        tails = self._tail[used]
        has_tail = tails != NO_CELL
        places = np.where(has_tail, np.searchsorted(cells, tails), NO_CELL)
        return LedgerBooks(
            cells=cells,
            cell_slots=self._slot[cells],
            tails=places,
            ordinals=self._ordinal[used].copy(),
            answered=self._answered[used].copy(),
            episode_frames=self._episode_frames[used].copy(),
        )

    def load(self, books: LedgerBooks) -> None:
        """Begin with the frames of a checkpoint, in the first cells. Nothing may have happened."""
        count = len(books.cells)
        if count > self.capacity:
            raise AssertionError(f"{count} frames do not fit into {self.capacity} cells")
        self.add_slots(len(books.tails))
        self._state[:count] = _COMPLETE
        self._tag[:count] = self.version
        self._slot[:count] = books.cell_slots
        self._cursor = count
        self.num_complete = count
        self.stored_total += count
        self.loaded_total += count
        used = slice(0, self._num_slots)
        self._tail[used] = books.tails
        self._ordinal[used] = books.ordinals
        self._answered[used] = books.answered
        self._episode_frames[used] = books.episode_frames

    def restart(self, span: Span) -> None:
        """Let fresh episodes begin in these slots, whatever their environments did before.

        The frame numbers get a gap: nothing that comes is a successor of what was.
        """
        self.settle(span)
        slots = span.slots
        self._tail[slots] = NO_CELL
        self._answered[slots] = _NEVER
        self._episode_frames[slots] = 0
        self._ordinal[slots] += 1

    # --- the books --------------------------------------------------------------------

    @property
    def given_up(self) -> Mapping[Discard, int]:
        """Frames not trained on in this attempt, by reason."""
        return self._given_up

    @property
    def discarded_total(self) -> int:
        """Frames given up in this attempt, for whatever reason."""
        return sum(self._given_up.values())

    @property
    def conservation_error(self) -> int:
        """Frames unaccounted for: 0, or the books (or the states) are wrong."""
        self._settle_all()
        reserved = int(np.count_nonzero(self._state == _RESERVED))
        complete = int(np.count_nonzero(self._state == _COMPLETE))
        made = self.reserved_total + self.loaded_total
        kept = self.stored_total + self.discarded_total + reserved
        return abs(made - kept) + abs(self.num_complete - complete)

    def _settle_all(self) -> None:
        """Bring all arrays up to date."""
        self._settle_spans()
        self._post()

    def _settle_spans(self) -> None:
        """Bring the arrays over slots up to date."""
        for span in list(self._unsettled):
            self.settle(span)

    def _post(self) -> None:
        """Bring state and slot of completed cells up to date."""
        if not self._unposted:
            return
        blocks = [(first, span.start, span.size) for first, span in self._unposted]
        self._unposted.clear()
        firsts, starts, sizes = np.array(blocks).T
        place = np.arange(sizes.sum()) - np.repeat(sizes.cumsum() - sizes, sizes)
        cells = np.repeat(firsts, sizes) + place
        self._state[cells] = _COMPLETE
        self._slot[cells] = np.repeat(starts, sizes) + place

    def _take(self, count: int) -> IntArray:
        stop = self._cursor + count
        if stop <= self.capacity and not self._ring:
            cells = self._numbers[self._cursor : stop]
            self._cursor = stop
            return cells
        self._settle_all()
        if self._ring and count:
            return self._take_from_ring(count)
        free = np.flatnonzero(self._state == _FREE)[:count]
        if len(free) < count:
            raise AssertionError(f"storage of {self.capacity} cells is full: {count} wanted")
        return free

    def _take_from_ring(self, count: int) -> IntArray:
        span = min(self.capacity, count + self.num_reserved)
        order = (self._cursor + np.arange(span)) % self.capacity
        cells: IntArray = order[self._state[order] != _RESERVED][:count]
        if len(cells) < count:
            raise AssertionError(f"ring of {self.capacity} cells is all reserved: {count} wanted")
        overwritten = cells[self._state[cells] == _COMPLETE]
        self.num_complete -= len(overwritten)
        slots = self._slot[overwritten]
        self._tail[slots[self._tail[slots] == overwritten]] = NO_CELL
        self._cursor = int(cells[-1] + 1) % self.capacity
        return cells


def first_of_block(cells: IntArray) -> int | None:
    """Return the first of these cells if each follows the one before; None if there is none."""
    count = len(cells)
    if not count:
        return None
    first = int(cells[0])
    return first if int(cells[-1]) - first == count - 1 else None


def _extended(array: np.ndarray, size: int, fill: int) -> np.ndarray:
    grown = np.full(size, fill, array.dtype)
    grown[: len(array)] = array
    return grown
