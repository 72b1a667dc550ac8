"""Weights that are pinned for evaluation rounds, and which of them plays each slot.

Has the engine copy the policy when a round begins, and let copies go that nobody plays any more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from royale_server.model.engine import Engine

IntArray = npt.NDArray[np.int64]
Slots = slice | IntArray


class PinnedRound(Protocol):
    """A round of evaluation, of whatever kind."""

    code: int
    """Stands for the pinned policy among who plays a slot."""
    version: int | None
    """The policy version that plays; known once its weights are pinned."""


class Pins:
    """Which pinned policy plays which slot.

    Args:
        engine: Where pinned policies live; only its jobs are made here.
        submit: Has the model thread do a job, after those before it.
        in_use: Codes of the pinned policies that play, or will.
    """

    def __init__(
        self,
        engine: Engine,
        submit: Callable[[Callable[[], None]], None],
        in_use: Callable[[], set[int]],
    ) -> None:
        self._engine = engine
        self._submit = submit
        self._in_use = in_use
        self._codes = np.zeros(0, np.int64)
        self._pinned: set[int] = set()

    def add_slots(self, count: int) -> None:
        """Follow further slots of the run, in the order in which they are numbered."""
        self._codes = np.concatenate([self._codes, np.zeros(count, np.int64)])

    def play(self, round_: PinnedRound, slots: Slots, *, greedy: bool) -> None:
        """From now on the policy of a round plays these slots; it is pinned if it was not.

        Args:
            round_: The round.
            slots: Numbers of the slots.
            greedy: Whether it takes its most likely actions.
        """
        self._codes[slots] = round_.code
        if round_.code in self._pinned:
            return
        idle = self._pinned - self._in_use()
        self._pinned = (self._pinned - idle) | {round_.code}
        self._submit(partial(_pin, self._engine, round_, sorted(idle), greedy=greedy))

    def of(self, slots: slice) -> IntArray:
        """Return the codes of who plays these slots, ``(n,)``, as a copy."""
        return self._codes[slots].copy()


def _pin(engine: Engine, round_: PinnedRound, idle: list[int], *, greedy: bool) -> None:
    """On the model thread: copy the weights as they are now, and note their version."""
    engine.unpin(idle)
    engine.pin(round_.code, greedy=greedy)
    round_.version = engine.learner.policy_version
