"""Which rows of a step hold numbers that must not reach a network or a statistic.

NaN, infinities, and finite numbers so large that their squares are not: one of them in one frame
would overflow the loss of all. Pure array work; a step of sane numbers costs one reduction per
float array, or two if it is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from royale_client.wire.messages import Step

MAX_MAGNITUDE = 1e15
"""Larger numbers count as not finite: squared and summed they leave the range of float32."""

SANE_SQUARES = MAX_MAGNITUDE**2 / 10
"""A sum of squares up to this proves that no number is larger, and none a NaN or an infinity.
Below the square itself, since sums are rounded."""
FEW = 10_000
"""Numbers up to which squaring them costs less than looking for the extremes. The library that
sums more of them does so in threads of its own."""

_F2_MAGNITUDE = np.uint16(0x7FFF)
"""All bits of a float16 but its sign. Read as integers, magnitudes have the order they have."""
_F2_INFINITY = 0x7C00
"""The magnitude of infinity; those of NaN are above."""

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
    finals = step.final_observations or ()
    are_sane = all(map(_is_sane, step.observations)) and all(map(_is_sane, finals))
    if are_sane and (step.rewards is None or _is_sane(step.rewards)):
        return None
    observation = _rows_of(_bad(step.observations), asks)
    feedback = None
    if step.rewards is not None:
        feedback = _rows_of(_bad(finals), ended)
        if not _is_sane(step.rewards):
            bad_rewards = ~(np.abs(step.rewards) <= MAX_MAGNITUDE)
            feedback = bad_rewards if feedback is None else np.logical_or(feedback, bad_rewards)
    if observation is None and feedback is None:
        return None
    return NonFinite(feedback, observation)


def nonfinite_observations(step: Step, asks: BoolArray) -> BoolArray | None:
    """Find the same in the observations alone, of a step whose outcome was taken before.

    Args:
        step: A validated step of ``n`` rows.
        asks: Rows that ask, ``(n,)``.

    Returns:
        The bad rows, ``(n,)``, or None if there are none.
    """
    return _rows_of(_bad(step.observations), asks)


def culprits(
    step: Step, asks: BoolArray, ended: BoolArray, paths: Sequence[str], most: int
) -> list[tuple[int, str, float]]:
    """Name the numbers that `find_nonfinite` stumbled over.

    Args:
        step: The step.
        asks: Rows that ask, ``(n,)``.
        ended: Rows that ended, ``(n,)``.
        paths: Path of each leaf of the observations.
        most: Numbers to name at most.

    Returns:
        Row, key and value of the first bad number of each array and row, as far as ``most`` goes.
    """
    named = [(f"observation {path}".rstrip(), asks) for path in paths]
    finals = [(f"final observation {path}".rstrip(), ended) for path in paths]
    arrays = [*zip(named, step.observations, strict=True)]
    arrays += zip(finals, step.final_observations or (), strict=False)
    if step.rewards is not None:
        arrays.append((("reward", np.ones(len(step.rewards), np.bool_)), step.rewards))
    found: list[tuple[int, str, float]] = []
    for (key, present), array in arrays:
        if _is_sane(array):
            continue
        flat = array.reshape(len(array), -1).astype(np.float64)
        bad = ~(np.abs(flat) <= MAX_MAGNITUDE)
        rows = np.flatnonzero(present)
        places = np.flatnonzero(bad.any(axis=1))[: most - len(found)]
        values = flat[places, bad[places].argmax(axis=1)]
        found += zip(rows[places].tolist(), [key] * len(places), values.tolist(), strict=True)
    return found


def _bad(leaves: tuple[Array, ...]) -> BoolArray | None:
    """Rows of the leaves with an entry out of bounds, or None."""
    bad: BoolArray | None = None
    for leaf in leaves:
        if _is_sane(leaf):
            continue
        # In double precision: the bound itself is beyond the range of the smallest floats.
        sane = (np.abs(leaf, dtype=np.float64) <= MAX_MAGNITUDE).reshape(len(leaf), -1)
        rows = np.asarray(~sane.all(axis=1))
        bad = rows if bad is None else np.logical_or(bad, rows)
    return bad


def _is_sane(numbers: Array) -> bool:
    """Whether all numbers are within bounds, as integers always are; NaN fails comparisons."""
    if numbers.dtype.kind != "f" or numbers.size == 0:
        return True
    if numbers.itemsize == 2:  # none is beyond the bounds; NumPy compares them one by one
        return int((numbers.view(np.uint16) & _F2_MAGNITUDE).max()) < _F2_INFINITY
    if numbers.size <= FEW and np.vdot(numbers, numbers) <= SANE_SQUARES:
        return True
    return float(numbers.max()) <= MAX_MAGNITUDE and float(numbers.min()) >= -MAX_MAGNITUDE


def _rows_of(bad: BoolArray | None, present: BoolArray) -> BoolArray | None:
    """Place a mask over the present rows into one over all rows of the group."""
    if bad is None:
        return None
    rows = np.zeros(len(present), np.bool_)
    rows[np.flatnonzero(present)[bad]] = True
    return rows
