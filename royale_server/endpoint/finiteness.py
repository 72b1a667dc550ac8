"""Which rows of a step hold numbers that must not reach a network or a statistic.

NaN, infinities, and finite numbers so large that their squares are not: one of them in one frame
would overflow the loss of all. Pure array work; a step of sane numbers costs two reductions per
float array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.wire.messages import Step

MAX_MAGNITUDE = 1e15
"""Larger numbers count as not finite: squared and summed they leave the range of float32."""

BoolArray = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class NonFinite:
    """Rows of a group with bad numbers; either mask may be None for «none»."""

    feedback: BoolArray | None
    """Reward or final observation, ``(n,)``."""
    observation: BoolArray | None
    """Observation of an asking row, ``(n,)``."""

    def rows(self) -> list[int]:
        """All bad rows, ascending."""
        masks = [mask for mask in (self.feedback, self.observation) if mask is not None]
        return [int(row) for row in np.flatnonzero(np.logical_or.reduce(masks))]


def find_nonfinite(step: Step, asks: BoolArray, ended: BoolArray) -> NonFinite | None:
    """Find NaN, infinities and absurdly large numbers in a step.

    Args:
        step: A validated step of ``n`` rows.
        asks: Rows that ask, ``(n,)``.
        ended: Rows that ended, ``(n,)``.

    Returns:
        The bad rows, or None if there are none.
    """
    observation = _rows_of(_bad(step.observations), asks)
    feedback = None
    if step.rewards is not None:
        finals = step.final_observations or ()
        feedback = _rows_of(_bad(finals), ended)
        if not _is_sane(step.rewards):
            bad_rewards = ~(np.abs(step.rewards) <= MAX_MAGNITUDE)
            feedback = bad_rewards if feedback is None else np.logical_or(feedback, bad_rewards)
    if observation is None and feedback is None:
        return None
    return NonFinite(feedback, observation)


def _bad(leaves: tuple[Array, ...]) -> BoolArray | None:
    """Rows of the leaves with an entry out of bounds, or None."""
    bad: BoolArray | None = None
    for leaf in leaves:
        if leaf.dtype.kind != "f" or _is_sane(leaf):
            continue
        sane = (np.abs(leaf) <= MAX_MAGNITUDE).reshape(len(leaf), -1)
        rows = np.asarray(~sane.all(axis=1))
        bad = rows if bad is None else np.logical_or(bad, rows)
    return bad


def _is_sane(numbers: Array) -> bool:
    """Whether all numbers are within bounds; NaN fails both comparisons."""
    if numbers.size == 0:
        return True
    return bool(numbers.max() <= MAX_MAGNITUDE and numbers.min() >= -MAX_MAGNITUDE)


def _rows_of(bad: BoolArray | None, present: BoolArray) -> BoolArray | None:
    """Place a mask over the present rows into one over all rows of the group."""
    if bad is None:
        return None
    rows = np.zeros(len(present), np.bool_)
    rows[np.flatnonzero(present)[bad]] = True
    return rows
