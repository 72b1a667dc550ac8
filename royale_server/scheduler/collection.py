"""Whether learner rows may be inferred, and since when not. Knows numbers and times only."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIN_REVOKE_WAIT_S = 0.02
REVOKE_SHARE = 0.05
"""Groups outside the quorum are given this share of the collection time to finish."""


@dataclass(slots=True)
class Collection:
    """One iteration's collecting: open while frames are wanted.

    On-policy, ``target`` frames are wanted and the learn step takes them all. Off-policy
    (``target`` None) a learn step is due for every ``block`` stored frames, and learner rows
    wait only while more than ``max_debt`` blocks are owed.
    """

    target: int | None
    block: int = 1
    max_debt: int = 1
    close_wait_s: float = 1.0
    opened_at: float | None = None
    """When the iteration's first frame was asked for: the clock may start anywhere."""
    first_closed_at: float | None = None
    learning: bool = False
    learned_total: int = 0
    """Off-policy: stored frames that learn steps have already been run for."""

    def is_open(self, *, complete: int, reserved: int, stored_total: int) -> bool:
        """The one inequality that decides whether learner rows may be inferred."""
        if self.target is None:
            return stored_total - self.learned_total <= self.max_debt * self.block
        return complete + reserved < self.target

    def is_learn_due(self, *, is_open: bool, reserved: int, stored_total: int) -> bool:
        """Whether nothing but learning can come next (on-policy), or a block is owed."""
        if self.learning:
            return False
        if self.target is None:
            return stored_total - self.learned_total >= self.block
        return not is_open and reserved == 0

    def note_opened(self, now: float) -> None:
        """Remember when collecting began; later calls of the iteration do not move it."""
        if self.opened_at is None:
            self.opened_at = now

    def note_closed(self, now: float) -> None:
        """Remember the first closing of the iteration; later ones do not move it."""
        if self.first_closed_at is None:
            self.first_closed_at = now

    def revoke_at(self, *, in_quorum: bool) -> float:
        """Until when a late group's cells are waited for; infinite before a first closing."""
        if self.first_closed_at is None:
            return math.inf
        if in_quorum or self.opened_at is None:
            return self.first_closed_at + self.close_wait_s
        share = REVOKE_SHARE * (self.first_closed_at - self.opened_at)
        return self.first_closed_at + min(self.close_wait_s, max(MIN_REVOKE_WAIT_S, share))

    def start_learning(self) -> None:
        """Begin the learn step: nothing is inferred until `reopen`."""
        self.learning = True

    def reopen(self, target: int | None) -> None:
        """Begin the next iteration after a learn step."""
        self.learning = False
        self.target = target
        self.opened_at = None
        self.first_closed_at = None
        if target is None:
            self.learned_total += self.block
