"""How chosen requests become one batch: rows, cells, and what keys their noise.

Knows requests and their place in the ledger. Never chooses who is in a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from royale_server.scheduler.cells import first_of_block
from royale_server.scheduler.commands import Effect, Infer, InferItem
from royale_server.scheduler.ledger import FrameLedger
from royale_server.scheduler.roster import (
    LEARNER_SEAT,
    ONE,
    BoolArray,
    Group,
    IntArray,
    Request,
    Span,
    joined,
)


class Batches:
    """Makes batches, reserving a cell for each learner row."""

    def __init__(self, ledger: FrameLedger) -> None:
        self._ledger = ledger

    def make(
        self, groups: Sequence[Group], effects: tuple[Effect, ...], *, evaluation: bool
    ) -> Infer:
        """Take the waiting requests of these groups into a batch.

        Args:
            groups: In batch order, each with a request that asks.
            effects: What has to be written before the batch is inferred.
            evaluation: Whether these are evaluation seats.
        """
        items: list[InferItem] = []
        spans: list[Span] = []
        slots, episodes, steps = [], [], []
        is_whole = True
        for group in groups:
            request = group.waiting
            assert request is not None, "only a group that waits is answered"
            group.waiting = None
            group.in_flight = True
            group.reserved += request.num_learner
            if request.num_learner == group.size:
                items.append(InferItem(group, request, group.rows, group.everyone))
                spans.append(group.span)
                slots.append(group.slot_numbers)
                episodes.append(group.episodes)
                steps.append(group.steps)
                group.steps = group.steps + ONE
            else:
                is_whole = False
                item = self._item_of_rows(group, request)
                items.append(item)
                slots.append(group.slot_numbers[item.rows])
                episodes.append(group.episodes[item.rows])
                steps.append(group.steps[item.rows])
                group.steps[item.rows] += 1
        all_slots = learner_slots = joined(slots)
        seats = None if is_whole else _seats(items)
        block = None
        if is_whole:
            cells, ordinals, block = self._ledger.reserve_spans(spans, all_slots)
        else:
            learner_slots = all_slots[joined([item.learner for item in items])]
            cells, ordinals = self._reserve_rows(items, learner_slots)
        return Infer(
            tuple(items),
            all_slots,
            joined(episodes),
            joined(steps),
            cells,
            learner_slots,
            ordinals,
            effects,
            evaluation,
            seats,
            block,
        )

    def _item_of_rows(self, group: Group, request: Request) -> InferItem:
        """The item of a group of which not every row asks for a frame of its own."""
        rows = group.rows if request.num_asking == group.size else request.asks.nonzero()[0]
        learner = request.learner_rows[rows]
        if request.num_learner < len(rows) and group.trains:
            self._note_without_cell(group, rows, learner)
        return InferItem(group, request, rows, learner)

    def _note_without_cell(self, group: Group, rows: IntArray, learner: BoolArray) -> None:
        """Enter in the books whose actions those are that have no cell."""
        others = np.zeros(len(rows), np.bool_)
        if group.seats is not None:
            others = group.seats[rows] != LEARNER_SEAT
            self._ledger.answered_for_others(group.span, rows[others])
        self._ledger.answered_without_cell(group.span, rows[~learner & ~others])

    def _reserve_rows(
        self, items: Sequence[InferItem], slots: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Reserve cells for these learner rows; those of whole groups are kept as blocks."""
        for item in items:
            self._ledger.settle(item.group.span)
        cells, ordinals = self._ledger.reserve(slots)
        place = first_of_block(cells)
        if place is not None:
            for item in items:
                if item.learner is item.group.everyone:
                    self._ledger.as_block(item.group.span, place)
                place += item.request.num_learner
        return cells, ordinals


def _seats(items: Sequence[InferItem]) -> IntArray | None:
    """Who plays each asking row over all items; None if the learner plays all."""
    if all(item.group.seats is None for item in items):
        return None
    parts = []
    for item in items:
        seats = item.group.seats
        parts.append(np.zeros(len(item.rows), np.int64) if seats is None else seats[item.rows])
    return joined(parts)
