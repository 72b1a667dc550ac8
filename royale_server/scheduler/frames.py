"""What requests, revocations and endings mean for a group's frames (rules 6 and 8).

Knows the rows of a group, their cells in the ledger, and what the model thread is to write for
them (effects). Never knows who is late, and decides neither when frames are given up nor when
they are learnt from.
"""

from __future__ import annotations

import numpy as np

from royale_server.scheduler.commands import Bootstrap, Bridge, Effect, Record
from royale_server.scheduler.ledger import Discard, FrameLedger
from royale_server.scheduler.roster import Group, IntArray, Request, count_true

FEW_ROWS = 4
"""Up to so many rows are changed one by one: that is cheaper than arrays of them."""


class Frames:
    """Enters outcomes in the ledger and notes what has to be written to storage."""

    def __init__(self, ledger: FrameLedger) -> None:
        self._ledger = ledger
        self._effects: list[Effect] = []

    def take_effects(self) -> tuple[Effect, ...]:
        """Take what is to be written before the next batch or learn step, in order."""
        effects, self._effects = tuple(self._effects), []
        return effects

    # --- outcomes --------------------------------------------------------------------------

    def take_outcome(self, group: Group, request: Request, *, any_ended: bool) -> None:
        """Enter rewards and endings of a train group's last actions; find its learner rows."""
        if request.invalid_feedback is not None or request.invalid_observation is not None:
            self._reject_invalid(group, request)
        elif group.is_tainted and any_ended:
            group.tainted[request.ended] = False
            group.is_tainted = bool(group.tainted.any())
        if group.span.block is not None and request.num_asking == group.size:
            ended = request.ended if any_ended else None
            cells, block = self._ledger.receive_block(group.span, ended)
            self._effects.append(Record(request, group.rows, cells, group.everyone, block))
            group.reserved = 0
        else:
            self._take_outcome_by_row(group, request)
        request.learner_rows = request.asks
        group.seats = request.seats
        if group.is_tainted or group.seats is not None:
            request.learner_rows = group.learner_rows(request.asks)
            request.num_learner = count_true(request.learner_rows)

    def _take_outcome_by_row(self, group: Group, request: Request) -> None:
        rows, cells, finished = self._ledger.receive(
            group.span, request.asks, request.ended, has_feedback=request.has_feedback
        )
        if len(rows):
            self._effects.append(Record(request, rows, cells, finished))
            group.reserved -= count_true(finished)

    def _reject_invalid(self, group: Group, request: Request) -> None:
        """Give up the frames of non-finite rows and keep the rest of their episodes out."""
        feedback, observation = (
            group.nobody if invalid is None else invalid
            for invalid in (request.invalid_feedback, request.invalid_observation)
        )
        bad_frame = feedback | (observation & ~request.ended)
        rows, cells = self._ledger.open_rows(group.span)
        self._give_up(group, cells[bad_frame[rows]], Discard.INVALID)
        group.tainted = np.where(request.ended, observation, group.tainted | bad_frame)
        group.is_tainted = bool(group.tainted.any())

    def count_episodes(self, group: Group, request: Request) -> None:
        """Some rows' episodes ended: what keys their noise begins anew."""
        rows = request.ended.nonzero()[0]
        group.episodes = episodes = group.episodes.copy()
        if len(rows) <= FEW_ROWS:
            for row in rows.tolist():
                episodes[row] = episodes.item(row) + 1
                group.steps[row] = 0
        else:
            episodes[rows] += 1
            group.steps[rows] = 0

    # --- what never comes --------------------------------------------------------------------

    def give_up(self, group: Group, reason: Discard) -> int:
        """Give up the frames the group still owes; return how many."""
        cells = self._ledger.open_cells(group.span)
        self._give_up(group, cells, reason)
        return len(cells)

    def _give_up(self, group: Group, cells: IntArray, reason: Discard) -> None:
        if not len(cells):
            return
        previous, given_up = self._ledger.give_up(cells, reason)
        group.reserved -= len(cells)
        if len(previous):
            self._effects.append(Bridge(previous, given_up))

    def lose(self, group: Group) -> None:
        """A group is gone: its waiting observations are kept, what it owes is lost."""
        self.bootstrap(group)
        self.give_up(group, Discard.LOST)
        self.lose_others(group)
        self._ledger.forget_tails(group.slots)

    def lose_others(self, group: Group) -> None:
        """Actions of others than the learner never arrived, or their outcome never will."""
        self._ledger.lose_others(group.span)

    def are_given_up(self, group: Group) -> bool:
        """Whether the group's last answer had cells, and none is waited for any more."""
        return not group.reserved and self._ledger.has_given_up(group.span)

    # --- what follows a frame ----------------------------------------------------------------

    def bootstrap(self, group: Group) -> None:
        """The waiting observations are the successors of the slots' last stored frames."""
        request = group.waiting
        if request is None or request.num_asking == 0:
            return
        rows, cells = self._ledger.unfinished_tails(group.span, request.asks)
        if len(rows):
            self._effects.append(Bootstrap(request, rows, cells))

    def begin_afresh(self, group: Group, *, episode: int) -> None:
        """Fresh episodes begin in a group; its parked request is only what its frames lead to."""
        self.bootstrap(group)
        self._ledger.restart(group.span)
        group.tainted[:] = group.is_tainted = False
        group.seats = None
        group.episodes = np.full(group.size, episode)
        group.steps[:] = 0
