"""Advantages: generalised advantage estimation over ragged sequences, and their scaling.

Knows neither storage nor policies: rows in, rows out. Letters: M frames in sequence order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from algorithms.sequences import discounted_sums
from algorithms.storage import BoolArray, FloatArray


def compute_gae(
    rewards: FloatArray,
    values: npt.NDArray[np.floating[Any]],
    next_values: FloatArray,
    continues: BoolArray,
    *,
    gamma: float,
    gae_lambda: float,
) -> FloatArray:
    """Estimate advantages by GAE(lambda), in float64.

    ``A[i] = delta[i] + gamma * gae_lambda * A[i + 1]`` where row i continues, and ``delta[i]``
    alone where it does not: at the end of an episode, at a hole, at the last frame of a slot.
    A row's result depends on no other sequence, to the last bit. Pass usable rows only: leaving
    out the others keeps ``continues`` right, since nothing continues into or out of them.

    Args:
        rewards: Reward of each frame. Shape ``(M,)``, environment units.
        values: ``V(s_t)``. Shape ``(M,)``.
        next_values: ``V(s_{t+1})`` of the true successor, 0 after a termination. Shape ``(M,)``.
        continues: The next row is the successor, and its advantage flows in. Shape ``(M,)``.
        gamma: Discount per frame, in ``[0, 1]``.
        gae_lambda: Bias-variance trade-off, in ``[0, 1]``.

    Returns:
        Unscaled advantages. Shape ``(M,)``.

    Raises:
        ValueError: If the shapes differ, an input is not finite, or a coefficient is outside
            ``[0, 1]``.

    Source:
        Schulman et al. 2016, arXiv:1506.02438, equation 16.
    """
    shapes = {a.shape for a in (rewards, values, next_values, continues)}
    if len(shapes) != 1 or rewards.ndim != 1:
        raise ValueError(f"compute_gae: all inputs must be (M,), got {sorted(shapes)}")
    if not (0.0 <= gamma <= 1.0 and 0.0 <= gae_lambda <= 1.0):
        raise ValueError(
            f"compute_gae: gamma and gae_lambda must be in [0, 1], got {gamma} and {gae_lambda}"
        )
    with np.errstate(invalid="ignore", over="ignore"):
        deltas: FloatArray = rewards + gamma * next_values - values
    if not np.isfinite(deltas).all():
        row = int(np.isfinite(deltas).argmin())
        raise ValueError(
            f"compute_gae: row {row} is not finite (reward {rewards[row]}, value {values[row]}, "
            f"next value {next_values[row]}); leave out the rows that are not usable"
        )
    return discounted_sums(deltas, np.where(continues, gamma * gae_lambda, 0.0))


def scale_advantages(advantages: torch.Tensor) -> torch.Tensor:
    """Shift advantages to mean 0 and scale them to sample standard deviation (n - 1) 1.

    The result is finite for finite input: a single advantage has no deviation and is returned
    unscaled; equal advantages say that no action was better than another and become zeros.

    Args:
        advantages: Shape ``(n,)``.

    Returns:
        Shape ``(n,)``, same dtype.
    """
    if len(advantages) < 2:
        return advantages
    if bool(advantages.min() == advantages.max()):  # rounding in the mean must not be blown up
        return torch.zeros_like(advantages)
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)
