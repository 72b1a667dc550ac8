"""Slots that are alike, kept as one: the usual state of a group.

Knows what all slots of a span have in common, and writes it into the columns of slots (`settle`)
and cells (`post`) before anything looks at them one by one. Never decides or counts anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from royale_server.scheduler.cells import Cells
from royale_server.scheduler.roster import ONE, BoolArray, IntArray, Span, joined
from royale_server.scheduler.slots import NO_CELL, SETTLED, WITH_CELL, Slots


class Spans:
    """The spans of which more is known than the columns say."""

    def __init__(self, cells: Cells, slots: Slots) -> None:
        self._cells = cells
        self._slots = slots
        self._unsettled: dict[Span, None] = {}
        self._unposted: list[tuple[int, Span]] = []  # completed blocks

    def reserve(self, spans: Sequence[Span], first: int, version: int) -> IntArray:
        """Give consecutive cells to every slot of these spans, in order.

        Args:
            spans: Spans of which every slot is about to get an action.
            first: The first of the cells.
            version: Policy version of the frames.

        Returns:
            The frames' ordinals within their slots, over all spans.
        """
        ordinals = []
        for span in spans:
            span.block, span.version = first, version
            first += span.size
            taken = span.ordinals
            if taken is None:
                taken = self._slots.ordinal[span.slots].copy()
            ordinals.append(taken)
            span.ordinals = taken + ONE
            self._unsettled[span] = None
        return joined(ordinals)

    def complete(self, span: Span, first: int, ended: BoolArray | None) -> None:
        """Every cell of the span's block, which begins at ``first``, is complete.

        Args:
            span: The span.
            first: The first of its cells.
            ended: Slots whose episode ended, ``(n,)``; None if none did. Kept, not copied.
        """
        span.block = None
        span.tails = first
        span.no_tails = ended
        span.frames += 1
        self._unsettled[span] = None
        self._unposted.append((first, span))

    def as_block(self, span: Span, first: int, version: int) -> None:
        """Keep the cells of a span's slots, which follow each other, as a block from now on."""
        self._slots.answered[span.slots] = SETTLED
        self._slots.open[span.slots] = NO_CELL
        span.block, span.version = first, version

    def settle(self, span: Span) -> None:
        """Write what is known of a span's slots alike into the columns, for a look at each."""
        self._unsettled.pop(span, None)
        columns, slots = self._slots, span.slots
        if span.block is not None:
            cells = self._cells.numbers[span.block : span.block + span.size]
            self._cells.reserve(cells, np.arange(span.start, span.stop), span.version)
            columns.open[slots] = cells
            columns.answered[slots] = WITH_CELL
            span.block = None
        if span.tails is not None:
            cells = self._cells.numbers[span.tails : span.tails + span.size]
            ended = span.no_tails
            columns.tail[slots] = cells if ended is None else np.where(ended, NO_CELL, cells)
            span.tails = span.no_tails = None
        if span.frames:
            columns.episode_frames[slots] += span.frames
            span.frames = 0
        if span.ordinals is not None:
            columns.ordinal[slots] = span.ordinals
            span.ordinals = None

    def settle_all(self) -> None:
        """Bring the columns of all slots up to date."""
        for span in list(self._unsettled):
            self.settle(span)

    def post(self) -> None:
        """Bring state and slot of the cells of completed blocks up to date."""
        if not self._unposted:
            return
        blocks = [(first, span.start, span.size) for first, span in self._unposted]
        self._unposted.clear()
        firsts, starts, sizes = np.array(blocks).T
        place = np.arange(sizes.sum()) - np.repeat(sizes.cumsum() - sizes, sizes)
        self._cells.complete_of(np.repeat(firsts, sizes) + place, np.repeat(starts, sizes) + place)

    def drop_blocks(self) -> None:
        """Forget completed blocks that were not posted: their cells are used up."""
        self._unposted.clear()
