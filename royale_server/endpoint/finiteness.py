"""Which rows of a step hold numbers that must not reach a network or a statistic.

Pure array work; a step whose numbers are all finite costs one reduction per float array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.wire.messages import Step

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
    """Find NaN and infinities in a step.

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
        if not np.isfinite(step.rewards).all():
            bad_rewards = ~np.isfinite(step.rewards)
            feedback = bad_rewards if feedback is None else np.logical_or(feedback, bad_rewards)
    if observation is None and feedback is None:
        return None
    return NonFinite(feedback, observation)


def _bad(leaves: tuple[Array, ...]) -> BoolArray | None:
    """Rows of the leaves with a non-finite entry, or None."""
    bad: BoolArray | None = None
    for leaf in leaves:
        if leaf.dtype.kind != "f" or np.isfinite(leaf).all():
            continue
        finite = np.isfinite(leaf).reshape(len(leaf), -1)
        rows = np.asarray(~finite.all(axis=1))
        bad = rows if bad is None else np.logical_or(bad, rows)
    return bad


def _rows_of(bad: BoolArray | None, present: BoolArray) -> BoolArray | None:
    """Place a mask over the present rows into one over all rows of the group."""
    if bad is None:
        return None
    rows = np.zeros(len(present), np.bool_)
    rows[np.flatnonzero(present)[bad]] = True
    return rows
