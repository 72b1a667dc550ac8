"""What became of every frame. Knows tags and reasons, and counts; no times, no clients.

Every cell is free, reserved (its action was inferred), or complete (its outcome arrived).
There is no operation that loses a frame: reserved cells either complete or are given up for
one named reason, so the numbers always add up (`conservation_error`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from royale_server.scheduler.books import LedgerBooks
from royale_server.scheduler.cells import COMPLETE, RESERVED, Cells, first_of_block
from royale_server.scheduler.roster import BoolArray, IntArray, Span
from royale_server.scheduler.slots import (
    CELL_GIVEN_UP,
    NEVER,
    NO_CELL,
    OF_OTHERS,
    SETTLED,
    WITH_CELL,
    WITHOUT_CELL,
    Slots,
)
from royale_server.scheduler.spans import Spans


class Discard(enum.Enum):
    """Why a frame was not trained on."""

    LATE = "late"
    CUT = "cut"
    LOST = "lost"
    INVALID = "invalid"
    STALE = "stale"
    BUFFER_FULL = "buffer_full"


_OUTLIVED: Final = "a reserved cell outlived its policy version"


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
        self.others_answered_total = 0
        """Actions inferred for somebody else than the learner, and those loaded while open."""
        self.others_total = 0
        """Those of them whose outcome arrived: frames that are never trained on."""
        self.others_lost_total = 0
        """Those whose outcome never comes."""
        self.env_steps_total = 0
        """Environment steps reported by learner seats, trained on or not."""
        self._given_up = dict.fromkeys(Discard, 0)
        self._ring = ring
        self._cells = Cells(capacity, ring=ring)
        self._slots = Slots()
        self._spans = Spans(self._cells, self._slots)

    def add_slots(self, count: int) -> int:
        """Number ``count`` new slots; numbers are never used twice. Returns the first."""
        return self._slots.add(count)

    # --- an action is inferred ---------------------------------------------------------

    def reserve(self, slots: IntArray) -> tuple[IntArray, IntArray]:
        """Reserve one cell for each slot, in order. Their spans must be settled.

        Args:
            slots: Slots about to get an action, shape ``(k,)``.

        Returns:
            The cells and the frames' ordinals within their slots, each ``(k,)``.
        """
        count, columns = len(slots), self._slots
        cells = self._take(count)
        ordinals = columns.ordinal[slots]
        columns.ordinal[slots] = ordinals + 1
        columns.open[slots] = cells
        columns.answered[slots] = WITH_CELL
        self._cells.reserve(cells, slots, self.version)
        self.num_reserved += count
        self.reserved_total += count
        return cells, ordinals

    def reserve_spans(
        self, spans: Sequence[Span], slots: IntArray
    ) -> tuple[IntArray, IntArray, slice | None]:
        """Reserve one cell for each slot of whole spans; the same as `reserve`, for the usual case.

        Args:
            spans: Spans of which every slot is about to get an action.
            slots: Their slots, in order, shape ``(k,)``.

        Returns:
            The same as `reserve`; and the cells as a range, if they were the next ones.
        """
        count = len(slots)
        first = self._cells.take_next(count)
        if first is None:
            return *self._reserve_elsewhere(spans, slots), None
        self.num_reserved += count
        self.reserved_total += count
        ordinals = self._spans.reserve(spans, first, self.version)
        block = slice(first, first + count)
        return self._cells.numbers[block], ordinals, block

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

    def _take(self, count: int) -> IntArray:
        first = self._cells.take_next(count)
        if first is not None:
            return self._cells.numbers[first : first + count]
        self._settle_all()
        if not (self._ring and count):
            return self._cells.take_free(count)
        cells = self._cells.take_oldest(count, num_reserved=self.num_reserved)
        overwritten = self._cells.complete_among(cells)
        self.num_complete -= len(overwritten)
        self._slots.overwritten(overwritten, self._cells.slots_of(overwritten))
        return cells

    def settle(self, span: Span) -> None:
        """Write what is known of a span's slots alike into the columns, for a look at each."""
        self._spans.settle(span)

    def as_block(self, span: Span, first: int) -> None:
        """Keep the cells of a span's slots, which follow each other, as a block from now on."""
        self._spans.as_block(span, first, self.version)

    def answered_without_cell(self, span: Span, rows: IntArray) -> None:
        """Note that these rows of a span got an action whose frame is not the learner's."""
        self.settle(span)
        self._slots.answered[span.slots][rows] = WITHOUT_CELL
        self._slots.tail[span.slots][rows] = NO_CELL

    def answered_for_others(self, span: Span, rows: IntArray) -> None:
        """Note that these rows of a span got an action of somebody else than the learner."""
        self.settle(span)
        self._slots.answered[span.slots][rows] = OF_OTHERS
        self._slots.tail[span.slots][rows] = NO_CELL
        self.others_answered_total += len(rows)

    # --- its outcome arrives -----------------------------------------------------------

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
        answered = self._slots.answered[slots]
        over = asks | ended
        rows = (answered == WITH_CELL).nonzero()[0]
        cells = self._slots.open[slots][rows]
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
        answered[over] = SETTLED
        return rows, cells, finished

    def receive_block(self, span: Span, ended: BoolArray | None) -> tuple[IntArray, slice]:
        """Take the outcome of a group of which every row asks and has a cell of the span's block.

        The same as `receive`, for the usual case, at a cost that hardly depends on the rows.

        Args:
            span: The group's slots, ``n`` of them.
            ended: Rows whose episode ended, ``(n,)``; None if none did. Kept, not copied.

        Returns:
            The cells, which are all complete now, ``(n,)``; and the same as a range.
        """
        first, count = span.block, span.size
        assert first is not None, "the rows of this group have no cells that follow each other"
        if span.version != self.version and not self._ring:
            raise AssertionError(_OUTLIVED)
        self._spans.complete(span, first, ended)
        self.env_steps_total += count
        self.num_reserved -= count
        self.num_complete += count
        self.stored_total += count
        block = slice(first, first + count)
        return self._cells.numbers[block], block

    def _count_others(self, answered: IntArray, over: BoolArray, *, has_feedback: bool) -> None:
        """Count the frames of rows that have no cell."""
        if not has_feedback:
            answered[answered == NEVER] = SETTLED  # fresh episodes: no action is open anywhere
            return
        others = answered == OF_OTHERS
        self.env_steps_total += int(np.count_nonzero((answered != SETTLED) & ~others))
        self.others_total += int(np.count_nonzero(over & others))
        self.no_state_total += int(np.count_nonzero(over & (answered == NEVER)))
        self.without_cell_total += int(np.count_nonzero(over & (answered == WITHOUT_CELL)))

    def _complete(self, slots: slice, rows: IntArray, cells: IntArray, ended: BoolArray) -> None:
        """Count rows of a group whose frames are complete.

        Args:
            slots: The group's slots.
            rows: Rows of the group.
            cells: Their cells.
            ended: Rows of the group whose episode ended.
        """
        self._cells.complete(cells)
        self._slots.open[slots][rows] = NO_CELL
        self._slots.tail[slots][rows] = np.where(ended[rows], NO_CELL, cells)
        self._slots.episode_frames[slots][rows] += 1
        self.num_reserved -= len(cells)
        self.num_complete += len(cells)
        self.stored_total += len(cells)

    def _is_current(self, cells: IntArray) -> bool:
        """Whether all these frames were made by the current policy (the version rule)."""
        return self._cells.are_of(self.version, cells)

    # --- or does not --------------------------------------------------------------------

    def give_up(self, cells: IntArray, reason: Discard) -> tuple[IntArray, IntArray]:
        """Give reserved cells up and free their storage.

        Args:
            cells: As `open_cells` or `open_rows` named them.
            reason: Why.

        Returns:
            ``(previous, given_up)``: complete frames that were followed by one of the cells
            and need its value as bootstrap, and those cells; equal shapes.
        """
        slots = self._cells.slots_of(cells)
        tails = self._slots.tail[slots]
        followed = tails != NO_CELL
        self._cells.free(cells)
        self._slots.open[slots] = NO_CELL
        self._slots.tail[slots] = NO_CELL
        self._slots.answered[slots] = CELL_GIVEN_UP
        self.num_reserved -= len(cells)
        self._given_up[reason] += len(cells)
        return tails[followed], cells[followed]

    def lose_others(self, span: Span) -> None:
        """Wait no longer for the outcome of actions of others than the learner in these slots."""
        self.settle(span)
        answered = self._slots.answered[span.slots]
        others = answered == OF_OTHERS
        self.others_lost_total += int(np.count_nonzero(others))
        answered[others] = SETTLED

    def has_given_up(self, span: Span) -> bool:
        """Whether a cell of the last actions of these slots was given up."""
        self.settle(span)
        return bool((self._slots.answered[span.slots] == CELL_GIVEN_UP).any())

    def open_cells(self, span: Span) -> IntArray:
        """Reserved cells of a group, in slot order."""
        return self.open_rows(span)[1]

    def open_rows(self, span: Span) -> tuple[IntArray, IntArray]:
        """Rows of a group with a reserved cell, and those cells."""
        self.settle(span)
        cells = self._slots.open[span.slots]
        rows = (cells != NO_CELL).nonzero()[0]
        return rows, cells[rows]

    # --- what follows -------------------------------------------------------------------

    def unfinished_tails(self, span: Span, asks: BoolArray) -> tuple[IntArray, IntArray]:
        """Asking rows whose last frame is stored and goes on, and that frame's cell.

        These are the frames whose successor value is that of the waiting observation.
        """
        self.settle(span)
        tails = self._slots.tail[span.slots]
        rows = (asks & (tails != NO_CELL)).nonzero()[0]
        return rows, tails[rows]

    def forget_tails(self, slots: slice | BoolArray) -> None:
        """Let nothing that comes later be taken for a successor of these slots' last frames."""
        self._spans.settle_all()
        self._slots.forget_tails(slots)

    def take_episode_frames(self, span: Span, rows: IntArray) -> IntArray:
        """Stored frames of the episodes that just ended in these rows of a span; counts anew."""
        frames = self._slots.episode_frames[span.slots]
        counts = frames[rows] + span.frames
        frames[rows] = -span.frames
        return counts

    def restart(self, span: Span) -> None:
        """Let fresh episodes begin in these slots, whatever their environments did before.

        The frame numbers get a gap: nothing that comes is a successor of what was.
        """
        self.lose_others(span)
        self._slots.restart(span.slots)

    # --- the iteration ------------------------------------------------------------------

    def complete_cells(self) -> IntArray:
        """Cells to learn from, ascending."""
        handed_out = self._cells.handed_out()
        if handed_out is not None and len(handed_out) == self.num_complete:
            return handed_out
        self._spans.post()
        return self._cells.all_complete()

    def start_version(self, version: int) -> None:
        """Count a learn step; on-policy, its frames are used up and their cells free."""
        self.version = version
        if self._ring:
            return
        if self.num_reserved:
            raise AssertionError(f"{self.num_reserved} cells reserved across a learn step")
        self._spans.drop_blocks()
        self._cells.clear()
        self.num_complete = 0

    # --- the books ----------------------------------------------------------------------

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
        made = self.reserved_total + self.loaded_total
        kept = self.stored_total + self.discarded_total + self._cells.count(RESERVED)
        of_others = self.others_total + self.others_lost_total + self._slots.num_of_others()
        return (
            abs(made - kept)
            + abs(self.num_complete - self._cells.count(COMPLETE))
            + abs(self.others_answered_total - of_others)
        )

    def books(self) -> LedgerBooks:
        """Copy what decides the future of the frames. No cell may be reserved."""
        if self.num_reserved:
            raise AssertionError(f"{self.num_reserved} cells reserved at rest")
        self._settle_all()
        return LedgerBooks.copied(self._cells, self._slots, self.complete_cells())

    def load(self, books: LedgerBooks) -> None:
        """Begin with the frames of a checkpoint, in the first cells. Nothing may have happened."""
        books.write(self._cells, self._slots, self.version)
        count = len(books.cells)
        self.num_complete = count
        self.stored_total += count
        self.loaded_total += count
        self.others_answered_total += self._slots.num_of_others()

    def _settle_all(self) -> None:
        """Bring the columns of slots and of cells up to date."""
        self._spans.settle_all()
        self._spans.post()
